"""Commit a staged job: all of it becomes visible by one write of eight bytes, or nothing does."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from store_core.codec.message_codec import encode_blank
from store_core.errors import CommitInDoubtError, StoreError
from store_core.queue.dispatch_request import DispatchDecoder
from store_core.recovery.store_files import OpenOptions, open_store_files
from store_core.services.reput_message import ReputMessageService
from store_core.staged_commit.dispatch import job_rows
from store_core.staged_commit.intent import Commit, write_intent
from store_core.staged_commit.job import Ledger, first_record_proof, patched_runs
from store_core.staged_commit.log_tail import HELD_BYTES, LogTail
from store_core.staged_commit.resolve_open_jobs import finish, intent_is_open
from store_core.staged_commit.staging import INTENT_FILE
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.recovery.store_files import StoreFiles
    from store_core.staged_commit.crash_points import CrashPoints
    from store_core.staged_commit.dispatch import JobRows
    from store_core.staged_commit.job import PatchedRun, StagedJob

logger = logging.getLogger(__name__)
_ROWS_AHEAD = 3  # of 14 MB each
T = TypeVar("T")


def open_for_commit(
    root: str, config: MessageStoreConfig, clock: Callable[[], int], steps: CrashPoints
) -> StoreFiles:
    """Lock and recover a store to which a job is to be committed; an empty directory is one, too.

    From now to a clean `close_committed` ``abort`` is in place.

    Raises
    ------
    StoreLockedError
        Another process has the store open.
    LogDamageError
        A damaged record lies before readable ones: nothing is cut that was a message.
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
    """Close all files and give the lock back; what was opened without a commit is flushed first."""
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
        It must not be closed as if all were well when ``intent_is_open(directory)``: then the job
        is in the log, and not all dispatched.
    job
        At least one message, and not committed before.

    Returns
    -------
    commit
        Where everything went. From the eight bytes on nothing fails a job, which somebody would
        write a second time then: what cannot be done is logged, and left to whoever opens the
        store next.

    Raises
    ------
    CommitInDoubtError
        The disk failed at the eight bytes: the store's next opening tells whether they are there.
    StoreError, OSError
        Nothing was appended.
    """
    commit = _plan(store, job, store.next_queue_offsets())
    made = job_rows(job, commit, store.segments.file_size)
    with LogTail(store.segments, steps) as tail, Prefetch(made, _ROWS_AHEAD) as rows:
        committing = _Committing(
            store=store,
            job=job,
            directory=directory,
            commit=commit,
            steps=steps,
            tail=tail,
            rows=rows,
        )
        committing.append()
        try:
            committing.complete()
        except Exception:  # whatever it is: the job is in the log, and must not look failed
            logger.warning(
                "job %s is in the log of %s and counts as committed, do not write it again; but "
                "not all that follows could be done, and the store's next opening makes up for it",
                commit.job,
                store.root,
                exc_info=True,
            )
            committing.note()
    logger.info(
        "committed %d messages of %d bytes at %d of %s",
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
    """A planned commit, and what it works on."""

    store: StoreFiles
    job: StagedJob
    directory: str
    commit: Commit
    steps: CrashPoints
    tail: LogTail
    rows: Prefetch[JobRows]

    def append(self) -> None:
        """Write the journal, the job, and its eight bytes; where that fails, nothing stays."""
        try:
            write_intent(self.directory, self.commit, self.steps)
            with Prefetch(self._runs()) as runs:
                for run in runs:
                    self.tail.write(run.commit_log_offset, run.data)
            if not self.job.is_multi_dispatch:
                self.rows.begin()  # the disk is what takes time now
            self.tail.flush()
            self.tail.commit()
        except CommitInDoubtError:
            raise
        except (StoreError, OSError):
            self._undo()
            raise

    def complete(self) -> None:
        """Do all that follows the eight bytes."""
        self.tail.adopt(self.commit.store_timestamp)
        self.steps.run("dispatch", self._dispatch)
        self.steps.run("flush", self.store.flush)
        finish(self.store.root, self.directory, self.commit, self.steps)

    def note(self) -> None:
        """Note at least that the job is in the log, for those who ask what was committed."""
        try:
            Ledger(self.store.root).record(self.commit, self.steps)
        except (StoreError, OSError) as err:
            logger.warning("%s: the next opening notes job %s: %s", self.store.root,
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
            keep=False,  # a commit that fails is the end of the job
        )

    def _undo(self) -> None:
        """Erase what was written; what cannot be erased is no part of the log, the journal stays.

        With it whoever opens the store next knows what to erase.
        """
        try:
            self.tail.undo()
            if intent_is_open(self.directory):
                self.steps.remove_file("undo intent", str(Path(self.directory) / INTENT_FILE))
        except (StoreError, OSError) as err:
            logger.warning(
                "%s: the store's next opening erases what the job wrote: %s", self.directory, err
            )


class Prefetch(Closing, Generic[T]):
    """Items that a thread makes before they are asked for.

    Parameters
    ----------
    items
        None is no item. Closed by `close`.
    """

    def __init__(self, items: Generator[T, None, None], most: int = 1) -> None:
        self._items, self._most = items, most
        self._pool = ThreadPoolExecutor(1, "ahead")
        self._coming: deque[Future[T | None]] = deque()

    def begin(self) -> None:
        """Let the thread begin now, instead of when the first item is asked for."""
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
