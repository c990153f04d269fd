"""The journal of a job: what a commit is about to do, so that whoever comes next can tell."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from store_core.errors import StoreFormatError, StoreReadError
from store_core.files.store_directory import StoreDirectory
from store_core.staged_commit.staging import INTENT_FILE, job_directories

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.staged_commit.crash_points import CrashPoints

_FORMAT = 1
_EIGHT_BYTES = re.compile(r"[0-9a-f]{16}")
_SHOWN = 60


@dataclass(frozen=True)
class JobQueueRange:
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
    queues: tuple[JobQueueRange, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)


def commit_to_json(commit: Commit) -> dict[str, Any]:
    """Return a commit as plain values."""
    return asdict(commit)


def commit_from_json(values: Any, path: str) -> Commit:
    """Return the commit of plain values; StoreFormatError where they are none."""
    _check_fields(values, _COMMIT_FIELDS, "a commit", path)
    for queue in values["queues"]:
        _check_fields(queue, _QUEUE_FIELDS, "a queue of a commit", path)
    queues = tuple(JobQueueRange(**queue) for queue in values["queues"])
    return Commit(**{**values, "queues": queues})


def is_count(value: Any) -> bool:
    """Return whether a value of JSON is a whole number from 0 to the greatest of 64 bits."""
    return type(value) is int and 0 <= value < 1 << 63


def _is_eight_bytes(value: Any) -> bool:
    return isinstance(value, str) and _EIGHT_BYTES.fullmatch(value) is not None


def _is_dropped(value: Any) -> bool:
    return isinstance(value, dict) and all(is_count(count) for count in value.values())


_QUEUE_FIELDS: dict[str, Callable[[Any], bool]] = {
    "topic": lambda value: isinstance(value, str),
    "queue_id": is_count,
    "first_queue_offset": is_count,
    "messages": is_count,
}
_COMMIT_FIELDS: dict[str, Callable[[Any], bool]] = {
    "job": lambda value: isinstance(value, str),
    "application": lambda value: value is None or isinstance(value, str),
    "version": lambda value: value is None or type(value) is int,
    "start_offset": is_count,
    "end_offset": is_count,
    "first_bytes": _is_eight_bytes,
    "proof_offset": is_count,
    "proof_bytes": is_count,
    "proof_crc": is_count,
    "store_timestamp": is_count,
    "messages": is_count,
    "record_bytes": is_count,
    "queues": lambda value: isinstance(value, list),
    "dropped": _is_dropped,
}


def _check_fields(
    values: Any, fields: Mapping[str, Callable[[Any], bool]], what: str, path: str
) -> None:
    """Raise StoreFormatError unless values are an object of just these fields, each as it is."""
    if not isinstance(values, dict) or values.keys() != fields.keys():
        raise StoreFormatError(
            f"not what a commit writes: {what} is an object of {', '.join(fields)}", path
        )
    for name, is_right in fields.items():
        if not is_right(values[name]):
            shown = repr(values[name])[:_SHOWN]
            raise StoreFormatError(f"not what a commit writes: {name} of {what} is {shown}", path)


def write_intent(directory: str, commit: Commit, steps: CrashPoints) -> None:
    """Put the journal into the job's directory, forced to the disk."""
    data = json.dumps({"format": _FORMAT, **commit_to_json(commit)}, indent=1).encode()
    steps.replace_file("intent", os.path.join(directory, INTENT_FILE), data)


def read_intent(path: str, directory: StoreDirectory | None = None) -> Commit | None:
    """Return the open intent of a job; None when it has none.

    Parameters
    ----------
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
    except (ValueError, RecursionError) as err:
        raise StoreFormatError(f"not JSON: {err}", path) from err
    if not isinstance(values, dict):
        raise StoreFormatError("not a JSON object", path)
    return values


def open_intents(store: StoreDirectory) -> dict[str, Commit]:
    """Return the journals of commits that did not end, by directory of the job."""
    found = {path: read_intent(path, store) for path in job_directories(store)}
    return {path: commit for path, commit in found.items() if commit is not None}
