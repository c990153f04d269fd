# SPDX-License-Identifier: Apache-2.0
"""The directories that jobs stage in: listing and deleting them, and their journals.

Only directories that a write created are ever deleted: they have a job's name, contain no files
other than a job's, and are reached without following a link.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from store_core.errors import StoreFormatError, StoreReadError, StoreWriteError
from store_core.files.byte_source import open_to_write, read_error
from store_core.files.file_writing import (
    flush_directory,
    make_directory,
    sync_data,
    write_all,
    write_error,
)
from store_core.files.store_directory import StoreDirectory
from store_core.layout import BLANK_MAGIC_CODE, RECORD_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from store_core.log.commit_log import ReadableLog

STAGING_DIRECTORY = "_staging"
INTENT_FILE = "intent.json"
_JOB = re.compile(r"[0-9a-f]{32}")
_JOB_FILE = re.compile(  # earlier releases gave files of records no number
    r"part-[0-9]{6,}-[0-9a-f]{32}(?:(?:\.[0-9]{5,})?\.records|\.rows)|intent\.json(?:\.tmp)?"
)
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FORMAT = 1
_EIGHT_BYTES = re.compile(r"[0-9a-f]{16}")
_SHOWN = 60
Hook = Callable[[str], None]


def make_staging(root: str) -> str:
    """Return the directory below which jobs stage; create it if it is missing.

    Raises
    ------
    StoreWriteError
        The path is a link or a file, or the directory cannot be created.
    """
    path = os.path.join(root, STAGING_DIRECTORY)
    check_staging(root)
    try:
        make_directory(path)
    except OSError as err:
        raise write_error(err, path) from err
    return path


def check_staging(root: str) -> None:
    """Raise StoreWriteError if the staging directory is a link or a file."""
    path = os.path.join(root, STAGING_DIRECTORY)
    if os.path.islink(path):
        raise StoreWriteError(
            "is a symbolic link, which writes do not follow, because they delete what is below "
            "it. Remove the link; a write creates a directory in its place",
            path,
        )
    if os.path.lexists(path) and not os.path.isdir(path):
        raise StoreWriteError("is not a directory, but writes stage there; move it away", path)


def job_directories(store: StoreDirectory) -> list[str]:
    """Return the directories of the jobs staged below a store root.

    Skips links, everything below a link, and names that are not a job's.

    Raises
    ------
    StoreReadError
        A directory may exist, but cannot be checked.
    """
    staging = store.resolve(STAGING_DIRECTORY)
    if store.is_local and not _is_directory(staging):
        return []
    return [
        entry.path
        for entry in store.list(staging)
        if entry.is_dir
        and _JOB.fullmatch(entry.name)
        and (not store.is_local or _is_directory(entry.path))
    ]


def staged_files(directory: str) -> dict[str, os.stat_result]:
    """Return the files of a job by name.

    Raises
    ------
    StoreWriteError
        The directory contains something that no write made.
    OSError
        The directory is gone, is a link, or cannot be read.
    """
    with _opened(directory) as (_, job):
        return _files(job, directory)


def remove_job(directory: str) -> None:
    """Delete the directory of a job with all staged files; a missing directory is no error.

    Raises
    ------
    StoreWriteError
        The directory cannot be deleted, or contains something that no write made; in the latter
        case nothing is deleted.
    """
    try:
        with _opened(directory) as (staging, job):
            for name in _files(job, directory):
                with suppress(FileNotFoundError):  # another process is deleting it too
                    os.unlink(name, dir_fd=job)
            os.rmdir(os.path.basename(directory), dir_fd=staging)
    except FileNotFoundError:
        return
    except OSError as err:
        raise write_error(err, directory) from err


@contextmanager
def _opened(directory: str) -> Iterator[tuple[int, int]]:
    """Open the staging directory and that of a job in it; links are not followed."""
    staging = os.open(os.path.dirname(directory), _DIRECTORY_FLAGS)
    try:
        job = os.open(os.path.basename(directory), _DIRECTORY_FLAGS, dir_fd=staging)
        try:
            yield staging, job
        finally:
            os.close(job)
    finally:
        os.close(staging)


def _files(job: int, directory: str) -> dict[str, os.stat_result]:
    found = {}
    for name in os.listdir(job):
        with suppress(FileNotFoundError):
            found[name] = os.stat(name, dir_fd=job, follow_symlinks=False)
            if not (_JOB_FILE.fullmatch(name) and stat.S_ISREG(found[name].st_mode)):
                raise StoreWriteError(
                    f"contains {name!r}, which no write creates, so nothing in it is deleted; "
                    "check it, and delete the directory yourself",
                    directory,
                )
    return found


def _is_directory(path: str) -> bool:
    """Return whether a path is a directory; raise if unknown, so that no job is missed."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as err:
        raise read_error(err, path) from err


@dataclass(frozen=True)
class JobQueueRange:
    """The ``messages`` messages of a queue from ``first_queue_offset`` on."""

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
        Identify the job, so that it is committed only once; None without.
    start_offset, end_offset
        The job's range in the log, blank records included.
    first_bytes
        The eight bytes at the start, which make the job visible, as hex.
    proof_offset, proof_bytes, proof_crc
        Offset, length and CRC-32 of the job's first record. Eight bytes alone could be those of
        another message appended in its place.
    store_timestamp
        Store time of all its records, ms.
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
    """Return the commit of plain values; raise StoreFormatError if they are not one."""
    _check_fields(values, _COMMIT_FIELDS, "a commit", path)
    for queue in values["queues"]:
        _check_fields(queue, _QUEUE_FIELDS, "a queue of a commit", path)
    queues = tuple(JobQueueRange(**queue) for queue in values["queues"])
    return Commit(**{**values, "queues": queues})


def is_count(value: Any) -> bool:
    """Return whether a JSON value is a whole number from 0 to ``2**63 - 1``."""
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
    """Raise StoreFormatError unless values are an object of exactly these fields, all valid."""
    if not isinstance(values, dict) or values.keys() != fields.keys():
        raise StoreFormatError(
            f"not what a commit writes: {what} must be an object of {', '.join(fields)}", path
        )
    for name, is_right in fields.items():
        if not is_right(values[name]):
            shown = repr(values[name])[:_SHOWN]
            raise StoreFormatError(f"not what a commit writes: {name} of {what} is {shown}", path)


def write_intent(directory: str, commit: Commit, steps: CrashPoints) -> None:
    """Write the journal to the job's directory and force it to the disk."""
    data = json.dumps({"format": _FORMAT, **commit_to_json(commit)}, indent=1).encode()
    steps.replace_file("intent", os.path.join(directory, INTENT_FILE), data)


def read_intent(path: str, directory: StoreDirectory | None = None) -> Commit | None:
    """Return the open intent of a job; None if it has none.

    Parameters
    ----------
    directory
        The store, which may be remote; optional, a local one by default.

    Raises
    ------
    StoreFormatError, StoreReadError
        There is an intent, but it cannot be understood or read.
    """
    store = directory or StoreDirectory(path)
    name = path.rstrip("/") + "/" + INTENT_FILE
    values = read_json(name, store)
    if values is None:
        return None
    if values.pop("format", None) != _FORMAT:
        raise StoreFormatError(
            "a journal of another release: open the store with that release", name
        )
    return commit_from_json(values, name)


def read_json(path: str, store: StoreDirectory) -> dict[str, Any] | None:
    """Return the object in a JSON file of this module; None if the file is missing."""
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
    """Return the journals of commits that did not end, by the job's directory."""
    found = {path: read_intent(path, store) for path in job_directories(store)}
    return {path: commit for path, commit in found.items() if commit is not None}


def no_hook(name: str) -> None:
    """Do nothing."""


class CrashPoints:
    """Does file operations, and calls a hook before and after each.

    Parameters
    ----------
    hook
        Gets ``before <name>`` and ``after <name>``; its exceptions propagate.
    """

    def __init__(self, hook: Hook = no_hook, *, sync: bool = True) -> None:
        self._hook, self.is_sync = hook, sync

    def run(self, name: str, action: Callable[..., Any], *arguments: Any) -> Any:
        """Do one step and return its result."""
        self._hook("before " + name)
        result = action(*arguments)
        self._hook("after " + name)
        return result

    def write(self, name: str, fd: int, at: int, data: memoryview) -> None:
        """Write bytes at a position of a file."""
        self.run(name, write_all, fd, at, data)

    def sync(self, name: str, fd: int) -> None:
        """Force a file to the disk."""
        if self.is_sync:
            self.run(name, sync_data, fd)

    def sync_directory(self, name: str, path: str) -> None:
        """Force the names in a directory to the disk."""
        if self.is_sync:
            self.run(name, flush_directory, path)

    def replace_file(self, name: str, path: str, data: bytes) -> None:
        """Write a small file, whole or not at all; a link there is replaced, not followed.

        Raises
        ------
        StoreWriteError
            The file cannot be written.
        """
        temporary = path + ".tmp"
        try:
            fd = open_to_write(temporary, os.O_CREAT | os.O_TRUNC)
            try:
                self.write(name + " content", fd, 0, memoryview(data))
                self.sync(name + " content sync", fd)
            finally:
                os.close(fd)
            self.run(name + " rename", os.replace, temporary, path)
            self.sync_directory(name + " directory sync", os.path.dirname(path))
        except OSError as err:
            raise write_error(err, path) from err

    def remove_file(self, name: str, path: str) -> None:
        """Delete a file and force that to the disk.

        Raises
        ------
        StoreWriteError
            The file cannot be deleted.
        """
        try:
            self.run(name, os.unlink, path)
            self.sync_directory(name + " directory sync", os.path.dirname(path))
        except OSError as err:
            raise write_error(err, path) from err


def uncommitted_offset(store: StoreDirectory, log: ReadableLog) -> int | None:
    """Return the log's end if a job did not get past its eight bytes; None if there is no such job.

    Readable records of that job may follow, but they are not part of the log. The next writer to
    open the store erases them before recovery, which would take them for records after damage.
    """
    offsets = [c.start_offset for c in open_intents(store).values() if is_unfinished(log, c)]
    return min(offsets, default=None)


def is_unfinished(log: ReadableLog, commit: Commit) -> bool:
    """Return whether the job's eight bytes are missing or torn, with nothing else in their place.

    Another record there, or one damaged since, is not the job's.
    """
    segment = log.segments.find(commit.start_offset)
    if segment is None:
        return False
    at = commit.start_offset - segment.from_offset
    records = log.records(segment, segment.from_offset + log.segments.file_size)
    wanted = np.frombuffer(bytes.fromhex(commit.first_bytes), np.uint8)
    found = records.bytes_at(at, len(wanted))
    if len(found) < len(wanted) or not ((found == 0) | (found == wanted)).all():
        return False
    if RECORD_PREFIX.unpack(wanted).magic_code == BLANK_MAGIC_CODE:
        return bool((found != wanted).any())
    return not records.is_record(at)
