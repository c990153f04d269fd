"""The journal of a job: what a commit is about to do, so that whoever comes next can tell."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from store_core.errors import StoreFormatError, StoreReadError
from store_core.files.store_directory import StoreDirectory

if TYPE_CHECKING:
    from store_core.staged_commit.steps import Steps

STAGING_DIRECTORY = "_staging"
INTENT_FILE = "intent.json"
_FORMAT = 1


@dataclass(frozen=True)
class QueueRange:
    """Messages ``[first_queue_offset, first_queue_offset + messages)`` of a queue."""

    topic: str
    queue_id: int
    first_queue_offset: int
    messages: int


@dataclass(frozen=True)
class Commit:
    """One job, as it is or will be in the log.

    Attributes
    ----------
    job
        Its name.
    application, version
        What it is committed once by; None without.
    start_offset, end_offset
        Its bytes in the log, blank records included.
    first_bytes
        The eight bytes at the start, which make it visible; hex.
    proof_offset, proof_bytes, proof_crc
        The job's first record: where it lies, its length and CRC-32. Eight bytes alone could be
        those of another message that was appended in its place.
    store_timestamp
        Of all its records, ms.
    messages, record_bytes
        Without blank records.
    queues
        Where its messages went.
    dropped
        Rows that could be no message, by column.
    """

    job: str
    application: str | None
    version: int | None
    start_offset: int
    end_offset: int
    first_bytes: str
    proof_offset: int
    proof_bytes: int
    proof_crc: int
    store_timestamp: int
    messages: int
    record_bytes: int
    queues: tuple[QueueRange, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)


def commit_to_json(commit: Commit) -> dict[str, Any]:
    """Return a commit as plain values."""
    return asdict(commit)


def commit_from_json(values: dict[str, Any], path: str) -> Commit:
    """Return the commit of plain values; StoreFormatError where they are none."""
    try:
        queues = tuple(QueueRange(**queue) for queue in values["queues"])
        return Commit(**{**values, "queues": queues})
    except (TypeError, KeyError) as err:
        raise StoreFormatError(f"not what a commit writes: {err}", path) from err


def write_intent(directory: str, commit: Commit, steps: Steps) -> None:
    """Put the journal into the job's directory, forced to the disk."""
    data = json.dumps({"format": _FORMAT, **commit_to_json(commit)}, indent=1).encode()
    steps.replace_file("intent", os.path.join(directory, INTENT_FILE), data)


def read_intent(path: str, directory: StoreDirectory | None = None) -> Commit | None:
    """Return the open intent of a job; None when it has none.

    Parameters
    ----------
    path
        Directory of the job.
    directory
        The store, which may be remote; None: a local one.

    Raises
    ------
    StoreFormatError, StoreReadError
        There is one, but it cannot be understood or read.
    """
    store = directory or StoreDirectory(path)
    name = path.rstrip("/") + "/" + INTENT_FILE
    values = read_json(name, store)
    if values is None:
        return None
    if values.pop("format", None) != _FORMAT:
        raise StoreFormatError("a journal of another release: use that one to open the store", name)
    return commit_from_json(values, name)


def read_json(path: str, store: StoreDirectory) -> dict[str, Any] | None:
    """Return the object in a file of ours; None where the file is missing."""
    try:
        data = store.read_bytes(path)
    except StoreReadError:
        if store.stat(path) is None:  # deleted meanwhile
            return None
        raise
    if data is None:
        return None
    try:
        values = json.loads(data)
    except ValueError as err:
        raise StoreFormatError(f"not JSON: {err}", path) from err
    if not isinstance(values, dict):
        raise StoreFormatError("not a JSON object", path)
    return values


def job_directories(store: StoreDirectory) -> list[str]:
    """Return the directories of the jobs that were staged below a store root."""
    entries = store.list(store.resolve(STAGING_DIRECTORY))
    return [entry.path for entry in entries if entry.is_dir]


def open_intents(store: StoreDirectory) -> dict[str, Commit]:
    """Return the journals of commits that did not end, by directory of the job."""
    found = {path: read_intent(path, store) for path in job_directories(store)}
    return {path: commit for path, commit in found.items() if commit is not None}
