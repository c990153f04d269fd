# SPDX-License-Identifier: Apache-2.0
"""Reads a job's staged parts block by block, and patches in the fields that the commit decides."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.codec.record_encoder import EncodedRecords
from store_core.errors import StoreFormatError
from store_core.files.file_writing import make_directory, write_error
from store_core.files.store_directory import StoreDirectory
from store_core.layout import CONFIG_DIR, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, RECORD_PREFIX
from store_core.staged_commit.staged_part import read_blocks
from store_core.staged_commit.staged_records import Run, StagedRecordsReader, place
from store_core.staged_commit.staging import (
    Commit,
    JobQueueRange,
    commit_from_json,
    commit_to_json,
    read_json,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    import numpy.typing as npt

    from store_core.staged_commit.staged_part import StagedBlock, StagedChunk, StagedPart
    from store_core.staged_commit.staged_records import FileDeleter
    from store_core.staged_commit.staging import CrashPoints

    Int64s = npt.NDArray[np.int64]
    Queue = tuple[str, int]

_NO_CRCS = np.empty(0, np.int32)
LEDGER_FILE = "sinkCommits.json"
_APPLICATIONS, _LAST, _FORMAT_KEY, _FORMAT = "applications", "last", "format", 1


@dataclass(frozen=True)
class StagedJob:
    """All parts of a write, in the order of their partitions.

    Attributes
    ----------
    parts
        At most one per partition.
    application, version
        Identify the job, so that it is committed only once; None without.
    """

    name: str
    parts: tuple[StagedPart, ...]
    application: str | None = None
    version: int | None = None

    @property
    def messages(self) -> int:
        """Number of messages in all parts."""
        return sum(part.messages for part in self.parts)

    @property
    def record_bytes(self) -> int:
        """Bytes of all records."""
        return sum(part.records_bytes for part in self.parts)

    @property
    def is_multi_dispatch(self) -> bool:
        """Whether some records go to further queues, named only in their properties."""
        return any(part.is_multi_dispatch for part in self.parts)

    @property
    def dropped(self) -> dict[str, int]:
        """Number of rows that could not become messages, by column."""
        counts: dict[str, int] = {}
        for part in self.parts:
            for column, rows in part.dropped:
                counts[column] = counts.get(column, 0) + rows
        return counts

    def queue_ranges(self, next_offsets: Mapping[Queue, int]) -> tuple[JobQueueRange, ...]:
        """Return the queue offsets that the messages get, by topic and queue id."""
        counts: dict[Queue, int] = {}
        for part in self.parts:
            for topic, queue_id, messages in part.queues:
                counts[topic, queue_id] = counts.get((topic, queue_id), 0) + messages
        return tuple(
            JobQueueRange(*queue, next_offsets.get(queue, 0), counts[queue])
            for queue in sorted(counts)
        )

    def end_offset(self, start_offset: int, segment_bytes: int) -> int:
        """Return the end of the job if it begins at an offset; reads only the sizes."""
        position = start_offset
        for part in self.parts:
            for block in read_blocks(part):
                _, position = place(block.sizes, position, segment_bytes)
        return position


class PatchedRun(NamedTuple):
    """Finished records of one segment; the bytes are valid until the run after next is read."""

    commit_log_offset: int
    data: memoryview
    sizes: Int64s


def patched_runs(
    job: StagedJob,
    start_offset: int,
    segment_bytes: int,
    next_offsets: Mapping[Queue, int],
    store_timestamp: int,
    *,
    deleter: FileDeleter | None = None,
) -> Generator[PatchedRun, None, None]:
    """Yield the records of a job in log order, a few MiB at a time.

    Parameters
    ----------
    deleter
        Deletes the staged files that were read; if None, they are kept.

    Raises
    ------
    StoreFormatError, StoreReadError
        The staged files are not as the tasks wrote them.
    """
    position, counters = start_offset, dict(next_offsets)
    for part in job.parts:
        if part.messages == 0:
            continue
        queues = [(topic, queue_id) for topic, queue_id, _ in part.queues]
        base = np.array([counters.get(queue, 0) for queue in queues], np.int64)
        with StagedRecordsReader(part, deleter) as records:
            for chunk, rows in _chunks(part):
                encoded = _encoded(part, chunk, rows, records.read(chunk))
                runs, position = place(rows.sizes, position, segment_bytes)
                queue_offsets = base[rows.queue] + rows.rank
                for run in runs:
                    yield _patched(encoded, run, queue_offsets, store_timestamp)
            records.end()
        for queue, (_, _, messages) in zip(queues, part.queues):
            counters[queue] = counters.get(queue, 0) + messages


def _patched(
    encoded: EncodedRecords, run: Run, queue_offsets: Int64s, store_timestamp: int
) -> PatchedRun:
    first, stop, offset = run
    starts = encoded.starts[first:stop]
    encoded.patch(
        queue_offsets[first:stop], offset + starts - starts[0], store_timestamp, first=first
    )
    return PatchedRun(offset, memoryview(encoded.rows(first, stop)), encoded.sizes[first:stop])


def first_record_proof(run: PatchedRun) -> tuple[int, int]:
    """Return the length and CRC-32 of a run's first record."""
    size = int(run.sizes[0])
    return size, zlib.crc32(run.data[:size])


def _chunks(part: StagedPart) -> Iterator[tuple[StagedChunk, StagedBlock]]:
    """Yield the chunks of a part, each with the rows of its records."""
    chunks = iter(part.chunks)
    for block in read_blocks(part):
        first = 0
        while first < len(block.sizes):
            chunk = next(chunks, None)
            rows = block.part(first, first + (chunk.messages if chunk is not None else 0))
            if chunk is None or rows.total_bytes != chunk.bytes:
                raise StoreFormatError("the rows are not those of the records", part.rows_path)
            yield chunk, rows
            first += chunk.messages


def _encoded(
    part: StagedPart, chunk: StagedChunk, rows: StagedBlock, data: npt.NDArray[np.uint8]
) -> EncodedRecords:
    """Return the records of a chunk, checked against their sizes."""
    sizes = rows.sizes.astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    if not _are_records(data, starts, rows.sizes):
        raise StoreFormatError("not what a task staged", part.records_path(chunk.file))
    return EncodedRecords(
        block=data,
        starts=starts,
        sizes=sizes,
        body_crc=_NO_CRCS,
        store_timestamp_at=starts + rows.store_timestamp_at,
        property_crc=part.property_crc,
    )


def _are_records(data: npt.NDArray[np.uint8], starts: Int64s, sizes: npt.NDArray[np.int32]) -> bool:
    prefixes = RECORD_PREFIX.gather(data, starts)
    magic = prefixes["magic_code"]
    known = (magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)
    return bool((prefixes["total_size"] == sizes).all() and known.all())


# ``config/sinkCommits.json`` is beside the broker's own files, so that a copy of the store's
# configuration includes it; a broker does not read it.
class Ledger:
    """The committed jobs of one store. Each call reads the file again; nothing is ever pruned."""

    def __init__(self, root: str) -> None:
        self.path = os.path.join(root, CONFIG_DIR, LEDGER_FILE)
        self._directory = StoreDirectory(root)

    def last_commit(self) -> Commit | None:
        """Return the newest job; None if there is none yet."""
        last: Commit | None = self._load()[_LAST]
        return last

    def last_version(self, application: str) -> int | None:
        """Return the newest version that an application committed; None if it has none yet."""
        version: int | None = self._load()[_APPLICATIONS].get(application)
        return version

    def is_committed(self, application: str | None, version: int | None) -> bool:
        """Return whether a version, or a later one, is in the store.

        Reads the ledger in any case, so that damage to it fails a job before its commit, not when
        the commit is recorded.
        """
        applications = self._load()[_APPLICATIONS]
        if application is None or version is None:
            return False
        last = applications.get(application)
        return last is not None and version <= last

    def record(self, commit: Commit, steps: CrashPoints) -> None:
        """Record a job; recording it again changes nothing."""
        values = self._load()
        applications = values[_APPLICATIONS]
        if commit.application is not None:
            known = applications.get(commit.application, -1)
            applications[commit.application] = max(known, commit.version or 0)
        last = values[_LAST]
        newest = commit if last is None or last.end_offset <= commit.end_offset else last
        values[_LAST] = commit_to_json(newest)
        try:
            make_directory(os.path.dirname(self.path))
        except OSError as err:
            raise write_error(err, self.path) from err
        steps.replace_file("ledger", self.path, json.dumps(values, indent=1).encode())

    def _load(self) -> dict[str, Any]:
        values = read_json(self.path, self._directory) or {}
        applications, last = values.get(_APPLICATIONS) or {}, values.get(_LAST)
        if not isinstance(applications, dict) or not all(
            type(version) is int for version in applications.values()
        ):
            raise StoreFormatError(
                f"not what a commit writes: {_APPLICATIONS} is not an object of numbers", self.path
            )
        return {
            _FORMAT_KEY: _FORMAT,
            _APPLICATIONS: applications,
            _LAST: None if last is None else commit_from_json(last, self.path),
        }
