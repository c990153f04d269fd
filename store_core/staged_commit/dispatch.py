"""What queues and index get of a committed job: from what the tasks staged, nothing is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.index.index_entries import IndexEntries
from store_core.queue.dispatch_request import DispatchRequests
from store_core.staged_commit.staged_part import RELATIVE_TO_STORE_TIME, read_blocks
from store_core.staged_commit.staged_records import place

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy.typing as npt

    from store_core.staged_commit.intent import Commit
    from store_core.staged_commit.job import StagedJob
    from store_core.staged_commit.staged_part import StagedBlock, StagedPart

    Int64s = npt.NDArray[np.int64]

_MAX_RADIX_QUEUES = 1 << 16


class JobRows(NamedTuple):
    """Some records of a job, in log order."""

    requests: DispatchRequests
    entries: IndexEntries
    last_start: int
    end_offset: int


def job_rows(job: StagedJob, commit: Commit, segment_bytes: int) -> Generator[JobRows, None, None]:
    """Yield the rows of a job whose records are in the log, many at a time.

    Parameters
    ----------
    job
        None of its records goes to further queues (`StagedPart.is_multi_dispatch`).

    Raises
    ------
    StoreFormatError
        The staged files are not what the tasks wrote.
    """
    position = commit.start_offset
    counters = {(q.topic, q.queue_id): q.first_queue_offset for q in commit.queues}
    for part in job.parts:
        numbers = _QueueNumbers(part, counters)
        for block in read_blocks(part):
            offsets, position = _offsets(block, position, segment_bytes)
            yield _rows(block, offsets, numbers, commit.store_timestamp)
        for topic, queue_id, messages in part.queues:
            counters[topic, queue_id] += messages


class _Grouped(DispatchRequests):
    """Requests that lie queue by queue already, in the order of the log within each."""

    def by_queue(self) -> Iterator[tuple[str, int, DispatchRequests]]:
        """Yield (topic, queue id, rows in order) of each queue."""
        code, queue_id = self.topic_code, self.queue_id
        changes = (code[1:] != code[:-1]) | (queue_id[1:] != queue_id[:-1])
        cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(code)]
        for start, stop in zip(cuts[:-1], cuts[1:]):
            yield self.topics[code[start]], int(queue_id[start]), self.take(slice(start, stop))


class _QueueNumbers:
    """Topic, queue id and next queue offset of each queue of a part, by its number."""

    def __init__(self, part: StagedPart, counters: dict[tuple[str, int], int]) -> None:
        codes: dict[str, int] = {}
        found = [codes.setdefault(topic, len(codes)) for topic, _, _ in part.queues]
        self.topics = list(codes)
        self.topic_code = np.array(found, np.int32)
        self.queue_id = np.array([queue_id for _, queue_id, _ in part.queues], np.int32)
        self.base = np.array([counters[topic, id_] for topic, id_, _ in part.queues], np.int64)


def _offsets(block: StagedBlock, position: int, segment_bytes: int) -> tuple[Int64s, int]:
    """Return where in the log each record of a block begins, and where the next block goes."""
    sizes = block.sizes.astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    runs, position = place(block.sizes, position, segment_bytes)
    for first, stop, offset in runs:
        starts[first:stop] += offset - starts[first]
    return starts, position


def _rows(
    block: StagedBlock, offsets: Int64s, numbers: _QueueNumbers, store_timestamp: int
) -> JobRows:
    last = int(offsets[-1])
    entries = IndexEntries(
        block.key_hash,
        np.repeat(offsets, block.key_count),
        np.broadcast_to(np.int64(store_timestamp), len(block.key_hash)),
        last,
    )
    requests = _requests(block, offsets, numbers, store_timestamp)
    return JobRows(requests, entries, last, last + int(block.sizes[-1]))


def _requests(
    block: StagedBlock, offsets: Int64s, numbers: _QueueNumbers, store_timestamp: int
) -> _Grouped:
    count, few = len(offsets), len(numbers.base) <= _MAX_RADIX_QUEUES
    # Codes of 16 bits are sorted by radix.
    order = np.argsort(block.queue.astype(np.uint16) if few else block.queue, kind="stable")
    queue = block.queue[order]
    queue_offset = numbers.base[queue] + block.rank[order]
    tags_code = block.tags_code[order]
    is_relative = tags_code >= RELATIVE_TO_STORE_TIME
    if is_relative.any():
        tags_code[is_relative] += store_timestamp - RELATIVE_TO_STORE_TIME
    return _Grouped(
        numbers.topics,
        numbers.topic_code[queue],
        numbers.queue_id[queue],
        queue_offset,
        offsets[order],
        block.sizes[order],
        tags_code,
        np.broadcast_to(np.int64(store_timestamp), count),
        queue_offset,
        np.broadcast_to(np.int16(1), count),
        np.broadcast_to(np.int32(0), count),
        np.broadcast_to(np.False_, count),
    )
