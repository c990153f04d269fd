"""Commit a staged job: all of it becomes visible by one write of eight bytes, or nothing does."""

from __future__ import annotations

import logging
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from store_core.codec.message_codec import encode_blank
from store_core.errors import CommitInDoubtError, StoreError
from store_core.staged_commit.crash_points import CrashPoints
from store_core.staged_commit.dispatch import job_rows
from store_core.staged_commit.intent import Commit, write_intent
from store_core.staged_commit.job import Ledger, first_record_proof, patched_runs
from store_core.staged_commit.log_tail import HELD_BYTES, LogTail
from store_core.staged_commit.staging import INTENT_FILE, remove_job
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.staged_commit.dispatch import JobRows
    from store_core.staged_commit.job import PatchedRun, StagedJob

logger = logging.getLogger(__name__)
_ROWS_AHEAD = 3  # of 14 MB each
T = TypeVar("T")


class CommitTarget(Protocol):
    """An opened store: its lock is held, it is recovered, ``abort`` is in place, nobody appends."""

    @property
    def root(self) -> str:
        """Of the store."""
        ...

    @property
    def commit_log(self) -> MappedFileQueue:
        """The segments; their end is the end of the log."""
        ...

    def next_queue_offsets(self) -> Mapping[tuple[str, int], int]:
        """Return the next queue offset by (topic, queue id)."""
        ...

    def dispatch(self, job: StagedJob, commit: Commit, rows: Iterable[JobRows]) -> None:
        """Make queue units and index entries of a job whose records are in the log.

        ``rows`` are those of the job, unless it `is_multi_dispatch`.
        """
        ...

    def flush_all(self) -> None:
        """Force queues, index and checkpoint to the disk."""
        ...


def commit_job(
    target: CommitTarget,
    job: StagedJob,
    directory: str,
    *,
    clock: Callable[[], int],
    steps: CrashPoints,
) -> Commit:
    """Append a job.

    Parameters
    ----------
    target
        The store. It must not be closed as if all were well when ``intent_is_open(directory)``:
        then the job is in the log, and not all dispatched.
    job
        At least one message, and not committed before.
    clock
        Returns ms since the epoch.

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
    commit = _plan(target, job, dict(target.next_queue_offsets()), clock())
    made = job_rows(job, commit, target.commit_log.file_size)
    with LogTail(target.commit_log, steps) as tail, Prefetch(made, _ROWS_AHEAD) as rows:
        committing = _Committing(
            target=target,
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
                target.root,
                exc_info=True,
            )
            committing.note()
    logger.info(
        "committed %d messages of %d bytes at %d of %s",
        commit.messages,
        commit.record_bytes,
        commit.start_offset,
        target.root,
    )
    return commit


def finish(root: str, directory: str, commit: Commit, steps: CrashPoints) -> None:
    """Note a job whose records are in the log and dispatched, and clear its staging away."""
    Ledger(root).record(commit, steps)
    steps.remove_file("intent done", os.path.join(directory, INTENT_FILE))
    clear_away(directory, steps)


def clear_away(directory: str, steps: CrashPoints | None = None) -> None:
    """Delete what a job staged that needs it no more; where that fails, say so and leave it."""
    try:
        if steps is None:
            remove_job(directory)
        else:
            steps.run("staging removal", remove_job, directory)
    except (StoreError, OSError) as err:
        logger.warning("what a job staged stays; clean-staging deletes it later: %s", err)


def intent_is_open(directory: str) -> bool:
    """Return whether a commit of this job began and did not end."""
    return os.path.lexists(os.path.join(directory, INTENT_FILE))


def _plan(
    target: CommitTarget,
    job: StagedJob,
    offsets: Mapping[tuple[str, int], int],
    store_timestamp: int,
) -> Commit:
    log = target.commit_log
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

    target: CommitTarget
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
        self.steps.run("dispatch", self.target.dispatch, self.job, self.commit, self.rows)
        self.steps.run("flush", self.target.flush_all)
        finish(self.target.root, self.directory, self.commit, self.steps)

    def note(self) -> None:
        """Note at least that the job is in the log, for those who ask what was committed."""
        try:
            Ledger(self.target.root).record(self.commit, self.steps)
        except (StoreError, OSError) as err:
            logger.warning("%s: the next opening notes job %s: %s", self.target.root,
                           self.commit.job, err)  # fmt: skip

    def _runs(self) -> Generator[PatchedRun, None, None]:
        offsets = dict(self.target.next_queue_offsets())
        commit, segment_bytes = self.commit, self.target.commit_log.file_size
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
            intent = os.path.join(self.directory, INTENT_FILE)
            if os.path.lexists(intent):
                self.steps.remove_file("undo intent", intent)
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
