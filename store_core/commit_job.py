# SPDX-License-Identifier: Apache-2.0
"""Commit a staged job: one write of eight bytes makes all of it visible, or nothing does."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from store_core.codec.message_codec import encode_blank
from store_core.errors import CommitInDoubtError, StoreError
from store_core.index.index_entries import IndexEntries
from store_core.queue.dispatch_request import DispatchDecoder, DispatchRequests
from store_core.recovery.store_files import OpenOptions, open_store_files
from store_core.services.reput_message import ReputMessageService
from store_core.staged_commit.job import Ledger, first_record_proof, patched_runs
from store_core.staged_commit.log_tail import HELD_BYTES, LogTail
from store_core.staged_commit.resolve_open_jobs import finish, intent_is_open
from store_core.staged_commit.staged_part import RELATIVE_TO_STORE_TIME, read_blocks
from store_core.staged_commit.staged_records import FileDeleter, place
from store_core.staged_commit.staging import INTENT_FILE, Commit, write_intent
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.recovery.store_files import StoreFiles
    from store_core.staged_commit.job import PatchedRun, StagedJob
    from store_core.staged_commit.staged_part import StagedBlock, StagedPart
    from store_core.staged_commit.staging import CrashPoints

    Int64s = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)
_ROWS_AHEAD = 3  # of 14 MB each
T = TypeVar("T")
_MAX_RADIX_QUEUES = 1 << 16


def open_for_commit(
    root: str, config: MessageStoreConfig, clock: Callable[[], int], steps: CrashPoints
) -> StoreFiles:
    """Lock and recover a store to commit a job to; an empty directory is one, too.

    File ``abort`` exists from now until a clean `close_committed`.

    Raises
    ------
    StoreLockedError
        Another process has the store open.
    LogDamageError
        A damaged record comes before readable ones: no message is ever cut off here.
    StoreError
        The store cannot be opened; the text says why.
    """
    config = replace(config, store_path_root_dir=root)
    options = OpenOptions(clock, steps=steps, trusts_confirmed=True, cuts_tail=False)
    store = open_store_files(config, options)
    try:
        store.complete_index()
    except BaseException:
        store.close(clean=False)
        raise
    return store


def close_committed(store: StoreFiles, *, clean: bool) -> None:
    """Close all files and release the lock; if ``clean``, first flush whatever is not flushed."""
    try:
        if clean and not store.is_flushed:
            store.flush()
    except BaseException:
        clean = False
        raise
    finally:
        store.close(clean=clean)


def commit_job(
    store: StoreFiles,
    job: StagedJob,
    directory: str,
    *,
    steps: CrashPoints,
) -> Commit:
    """Append a job.

    Parameters
    ----------
    store
        It must not be closed as clean while ``intent_is_open(directory)``: then the job is in the
        log, but not completely dispatched.
    job
        It has at least one message, and was not committed before.

    Returns
    -------
    commit
        The offsets of everything. After the eight bytes no error fails the job, as the caller would
        then write it a second time: failed steps are logged, and left to the next opening of the
        store.

    Raises
    ------
    CommitInDoubtError
        The disk failed at the eight bytes: the store's next opening shows whether they are there.
    StoreError, OSError
        Nothing was appended.
    """
    commit = _plan(store, job, store.next_queue_offsets())
    made = job_rows(job, commit, store.segments.file_size)
    with (
        FileDeleter() as deleter,
        LogTail(store.segments, steps) as tail,
        Prefetch(made, _ROWS_AHEAD) as rows,
    ):
        committing = _Committing(
            store=store,
            job=job,
            directory=directory,
            commit=commit,
            steps=steps,
            tail=tail,
            rows=rows,
            deleter=deleter,
        )
        committing.append()
        try:
            committing.complete()
        except Exception:  # whatever it is: the job is in the log, and must not look failed
            logger.warning(
                "job %s is in the log of %s and counts as committed: do not write it again. A "
                "later step failed; the store completes the job when it is next opened",
                commit.job,
                store.root,
                exc_info=True,
            )
            committing.note()
    logger.info(
        "committed %d messages (%d bytes) at offset %d of %s",
        commit.messages,
        commit.record_bytes,
        commit.start_offset,
        store.root,
    )
    return commit


def _plan(store: StoreFiles, job: StagedJob, offsets: Mapping[tuple[str, int], int]) -> Commit:
    log, store_timestamp = store.segments, store.clock()
    start = log.max_wrote_offset
    end = job.end_offset(start, log.file_size)
    first = next(patched_runs(job, start, log.file_size, offsets, store_timestamp))
    proof_bytes, proof_crc = first_record_proof(first)
    held = bytes(first.data[:HELD_BYTES])
    if first.commit_log_offset != start:
        held = encode_blank(log.file_size - start % log.file_size)
    return Commit(
        job=job.name,
        application=job.application,
        version=job.version,
        start_offset=start,
        end_offset=end,
        first_bytes=held.hex(),
        proof_offset=first.commit_log_offset,
        proof_bytes=proof_bytes,
        proof_crc=proof_crc,
        store_timestamp=store_timestamp,
        messages=job.messages,
        record_bytes=job.record_bytes,
        queues=job.queue_ranges(offsets),
        dropped=job.dropped,
    )


@dataclass(frozen=True)
class _Committing:
    """A planned commit, with its store, job and files."""

    store: StoreFiles
    job: StagedJob
    directory: str
    commit: Commit
    steps: CrashPoints
    tail: LogTail
    rows: Prefetch[JobRows]
    deleter: FileDeleter

    def append(self) -> None:
        """Write the journal, the job, and its eight bytes; undo it all if that fails."""
        try:
            write_intent(self.directory, self.commit, self.steps)
            with Prefetch(self._runs()) as runs:
                for run in runs:
                    self.tail.write(run.commit_log_offset, run.data)
            if not self.job.is_multi_dispatch:
                self.rows.begin()  # now the disk takes the time
            self.tail.flush()
            self.tail.commit()
        except CommitInDoubtError:
            raise
        except (StoreError, OSError):
            self._undo()
            raise

    def complete(self) -> None:
        """Take all steps after the eight bytes."""
        self.tail.adopt(self.commit.store_timestamp)
        self.steps.run("dispatch", self._dispatch)
        self.steps.run("flush", self.store.flush)
        self.deleter.close()  # a file that vanishes would end the deletion of its directory
        finish(self.store.root, self.directory, self.commit, self.steps)

    def note(self) -> None:
        """Record at least that the job is in the log, for queries of committed jobs."""
        try:
            Ledger(self.store.root).record(self.commit, self.steps)
        except (StoreError, OSError) as err:
            logger.warning("%s: cannot record job %s as committed; the store does this when it is "
                           "next opened: %s", self.store.root,
                           self.commit.job, err)  # fmt: skip

    def _dispatch(self) -> None:
        """Make the job's queue units and index entries."""
        self.store.is_flushed = False
        if self.job.is_multi_dispatch:
            self._decode_and_dispatch()
            return
        store = self.store
        with ThreadPoolExecutor(1, "index") as pool:
            indexed: Future[None] | None = None
            for some in self.rows:
                if indexed is not None:
                    indexed.result()
                indexed = pool.submit(store.index.dispatch_entries, some.entries, some.end_offset)
                store.queues.put(some.requests)
                store.last_dispatched = (some.last_start, self.commit.store_timestamp)
            store.queues.flush()  # the index takes longer
            if indexed is not None:
                indexed.result()

    def _decode_and_dispatch(self) -> None:
        store, log = self.store, self.store.segments
        decoder = DispatchDecoder(store.config.delay_levels_ms, store.queues.filter_bitmaps)

        def put_units(frames: RecordFrames) -> None:
            store.queues.put(decoder.decode(frames).queued())
            start = int(frames.column("commit_log_offset")[-1])
            store.last_dispatched = (start, self.commit.store_timestamp)

        reput = ReputMessageService(log, [put_units, store.index.dispatch], lambda: log.max_offset)
        reput.reput_from_offset = self.commit.start_offset
        reput.finish()

    def _runs(self) -> Generator[PatchedRun, None, None]:
        offsets = self.store.next_queue_offsets()
        commit, segment_bytes = self.commit, self.store.segments.file_size
        return patched_runs(
            self.job,
            commit.start_offset,
            segment_bytes,
            offsets,
            commit.store_timestamp,
            deleter=self.deleter,  # a commit that fails is the end of the job
        )

    def _undo(self) -> None:
        """Erase what was written; if that fails, it is not part of the log, and the journal stays.

        From the journal, the store's next opening knows what to erase.
        """
        try:
            self.tail.undo()
            if intent_is_open(self.directory):
                self.steps.remove_file("undo intent", str(Path(self.directory) / INTENT_FILE))
        except (StoreError, OSError) as err:
            logger.warning(
                "%s: cannot erase what the job wrote; the store does this when it is next opened: "
                "%s",
                self.directory,
                err,
            )


class Prefetch(Closing, Generic[T]):
    """Items that a thread makes before they are needed.

    Parameters
    ----------
    items
        No item is None. Closed by `close`.
    """

    def __init__(self, items: Generator[T, None, None], most: int = 1) -> None:
        self._items, self._most = items, most
        self._pool = ThreadPoolExecutor(1, "ahead")
        self._coming: deque[Future[T | None]] = deque()

    def begin(self) -> None:
        """Let the thread begin now, instead of when the first item is needed."""
        while len(self._coming) < self._most:
            self._submit()

    def __iter__(self) -> Iterator[T]:
        """Yield the items, once."""
        self.begin()
        while (item := self._coming.popleft().result()) is not None:
            self._submit()
            yield item

    def close(self) -> None:
        """Wait for the thread, and close the items."""
        self._pool.shutdown(cancel_futures=True)
        self._items.close()

    def _submit(self) -> None:
        self._coming.append(self._pool.submit(next, self._items, None))


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
    """Requests that are grouped by queue already, in the order of the log within each."""

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
    """Return the log offset of each record of a block, and that of the next block."""
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
