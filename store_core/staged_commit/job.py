"""The staged parts of a job, read block by block with all that only the commit knows patched in."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.encoded_records import EncodedRecords
from store_core.errors import StoreFormatError, StoreReadError
from store_core.files.file_writing import forget_read
from store_core.files.regular_file import open_to_read
from store_core.layout.message import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, RECORD_PREFIX
from store_core.staged_commit.intent import JobQueueRange
from store_core.staged_commit.placement import Run, place
from store_core.staged_commit.staged_part import RECORDS_SUFFIX, StagedBlock, read_blocks

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    import numpy.typing as npt

    from store_core.staged_commit.staged_part import StagedPart

    Int64s = npt.NDArray[np.int64]
    Queue = tuple[str, int]

_CHUNK_BYTES = 4 << 20  # what is patched and written at once stays in a cache
_NO_CRCS = np.empty(0, np.int32)


@dataclass(frozen=True)
class StagedJob:
    """All parts of a write, in the order of their partitions.

    Attributes
    ----------
    name
        Of the job.
    parts
        At most one of each partition.
    application, version
        What the job is committed once by, or None.
    """

    name: str
    parts: tuple[StagedPart, ...]
    application: str | None = None
    version: int | None = None

    @property
    def messages(self) -> int:
        """Messages of all parts."""
        return sum(part.messages for part in self.parts)

    @property
    def record_bytes(self) -> int:
        """Bytes of all records."""
        return sum(part.records_bytes for part in self.parts)

    @property
    def dropped(self) -> dict[str, int]:
        """Rows that could be no message, by column."""
        counts: dict[str, int] = {}
        for part in self.parts:
            for column, rows in part.dropped:
                counts[column] = counts.get(column, 0) + rows
        return counts

    def remove_records(self) -> None:
        """Delete the staged records; what is left of the parts goes with the job's directory."""
        for part in self.parts:
            with suppress(OSError):  # it goes later, then
                os.unlink(_records_path(part))

    def queue_ranges(self, next_offsets: Mapping[Queue, int]) -> tuple[JobQueueRange, ...]:
        """Return where the messages go, by topic and queue id."""
        counts: dict[Queue, int] = {}
        for part in self.parts:
            for topic, queue_id, messages in part.queues:
                counts[topic, queue_id] = counts.get((topic, queue_id), 0) + messages
        return tuple(
            JobQueueRange(*queue, next_offsets.get(queue, 0), counts[queue])
            for queue in sorted(counts)
        )

    def end_offset(self, start_offset: int, segment_bytes: int) -> int:
        """Return where the job ends that begins at an offset; reads the sizes only."""
        position = start_offset
        for part in self.parts:
            for block in read_blocks(part):
                _, position = place(block.sizes, position, segment_bytes)
        return position


class PatchedRun(NamedTuple):
    """Finished records of one segment; the bytes are valid until the second next is asked for."""

    commit_log_offset: int
    data: memoryview
    sizes: Int64s


def patched_runs(
    job: StagedJob,
    start_offset: int,
    segment_bytes: int,
    next_offsets: Mapping[Queue, int],
    store_timestamp: int,
) -> Generator[PatchedRun, None, None]:
    """Yield the records of a job in log order, a few MiB at a time.

    Parameters
    ----------
    job
        The job.
    start_offset
        End of the log.
    segment_bytes
        Of a segment.
    next_offsets
        Next queue offset by (topic, queue id).
    store_timestamp
        Milliseconds.

    Raises
    ------
    StoreFormatError, StoreReadError
        The staged files are not what the tasks wrote.
    """
    position, counters = start_offset, dict(next_offsets)
    for part in job.parts:
        if part.messages == 0:
            continue
        queues = [(topic, queue_id) for topic, queue_id, _ in part.queues]
        base = np.array([counters.get(queue, 0) for queue in queues], np.int64)
        with _RecordsFile(part) as records:
            for block in _chunks(read_blocks(part)):
                encoded = records.read(block)
                runs, position = place(block.sizes, position, segment_bytes)
                queue_offsets = base[block.queue] + block.rank
                for run in runs:
                    yield _patched(encoded, run, queue_offsets, store_timestamp)
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
    """Return length and CRC-32 of the first record of a run."""
    size = int(run.sizes[0])
    return size, zlib.crc32(run.data[:size])


def _chunks(blocks: Iterator[StagedBlock]) -> Iterator[StagedBlock]:
    """Yield blocks of bounded length."""
    for block in blocks:
        ends = np.cumsum(block.sizes, dtype=np.int64)
        first = begin = 0
        while first < len(ends):
            stop = max(int(np.searchsorted(ends, begin + _CHUNK_BYTES, "right")), first + 1)
            yield block.part(block.start + begin, first, stop)
            first, begin = stop, int(ends[stop - 1])


def _records_path(part: StagedPart) -> str:
    return os.path.join(part.directory, part.name + RECORDS_SUFFIX)


class _RecordsFile:
    """The records of a part, read into two buffers in turn."""

    def __init__(self, part: StagedPart) -> None:
        self._path = _records_path(part)
        self._property_crc = part.property_crc
        self._buffers = [np.empty(0, np.uint8)] * 2
        self._fd = -1

    def __enter__(self) -> _RecordsFile:
        try:
            self._fd = open_to_read(self._path)
        except OSError as err:
            raise StoreReadError(err.strerror or str(err), self._path) from err
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, block: StagedBlock) -> EncodedRecords:
        """Return the records of a block, checked against its sizes."""
        sizes = block.sizes.astype(np.int64)
        length = int(sizes.sum())
        self._buffers.reverse()
        if len(self._buffers[0]) < length:
            self._buffers[0] = np.empty(max(length, _CHUNK_BYTES), np.uint8)
        data = self._buffers[0][:length]
        try:
            forget_read(self._fd, block.start)
            done = os.preadv(self._fd, [memoryview(data)], block.start)
        except OSError as err:
            raise StoreReadError(err.strerror or str(err), self._path) from err
        starts = np.cumsum(sizes) - sizes
        if done != length or not _are_records(data, starts, block.sizes):
            raise StoreFormatError(
                f"not what a task staged, from byte {block.start} on", self._path
            )
        return EncodedRecords(
            block=data,
            starts=starts,
            sizes=sizes,
            body_crc=_NO_CRCS,
            store_timestamp_at=starts + block.store_timestamp_at,
            property_crc=self._property_crc,
        )


def _are_records(data: npt.NDArray[np.uint8], starts: Int64s, sizes: npt.NDArray[np.int32]) -> bool:
    prefixes = RECORD_PREFIX.gather(data, starts)
    magic = prefixes["magic_code"]
    known = (magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)
    return bool((prefixes["total_size"] == sizes).all() and known.all())
