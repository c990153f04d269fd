"""Commit a staged job: all of it becomes visible by one write of eight bytes, or nothing does."""

from __future__ import annotations

import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from store_core.codec.message_codec import encode_blank
from store_core.errors import StoreError
from store_core.files.ahead import ahead
from store_core.staged_commit.intent import INTENT_FILE, Commit, write_intent
from store_core.staged_commit.job import first_record_proof, patched_runs
from store_core.staged_commit.ledger import Ledger
from store_core.staged_commit.log_tail import HELD_BYTES, LogTail
from store_core.staged_commit.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.staged_commit.job import StagedJob

logger = logging.getLogger(__name__)


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

    def dispatch(self, job: StagedJob, commit: Commit) -> None:
        """Make queue units and index entries of a job whose records are in the log."""
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
    steps: Steps,
) -> Commit:
    """Append a job.

    Parameters
    ----------
    target
        The store. After an error it must not be closed as if all were well when
        ``intent_is_open(directory)``: then the job is in the log, and not all dispatched.
    job
        At least one message, and not committed before.
    directory
        Of the job, where its journal goes.
    clock
        Returns ms since the epoch.
    steps
        Does the file operations.

    Returns
    -------
    commit
        Where everything went.

    Raises
    ------
    StoreError
        Nothing was appended, unless the journal is still there.
    """
    commit = _plan(target, job, dict(target.next_queue_offsets()), clock())
    _append(target, job, directory, commit, steps)
    with ThreadPoolExecutor(1, "staging") as pool:
        pool.submit(job.remove_records)  # in the log: nobody will ask for them any more
        steps.run("dispatch", target.dispatch, job, commit)
        steps.run("flush", target.flush_all)
    finish(target.root, directory, commit, steps)
    logger.info(
        "committed %d messages of %d bytes at %d of %s",
        commit.messages,
        commit.record_bytes,
        commit.start_offset,
        target.root,
    )
    return commit


def finish(root: str, directory: str, commit: Commit, steps: Steps) -> None:
    """Note a job whose records are in the log and dispatched, and clear its staging away."""
    Ledger(root).record(commit, steps)
    steps.remove_file("intent done", os.path.join(directory, INTENT_FILE))
    steps.run("staging removal", shutil.rmtree, directory, True)


def intent_is_open(directory: str) -> bool:
    """Tell whether a commit of this job began and did not end."""
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
        job.name,
        job.application,
        job.version,
        start,
        end,
        held.hex(),
        first.commit_log_offset,
        proof_bytes,
        proof_crc,
        store_timestamp,
        job.messages,
        job.record_bytes,
        job.queue_ranges(offsets),
        job.dropped,
    )


def _append(
    target: CommitTarget, job: StagedJob, directory: str, commit: Commit, steps: Steps
) -> None:
    """Write the journal, the job, and its eight bytes."""
    log = target.commit_log
    tail = LogTail(log, steps)
    offsets = dict(target.next_queue_offsets())
    runs = patched_runs(job, commit.start_offset, log.file_size, offsets, commit.store_timestamp)
    try:
        write_intent(directory, commit, steps)
        try:
            for run in ahead(runs):
                tail.write(run.commit_log_offset, run.data)
            tail.flush()
        except (StoreError, OSError):
            tail.undo()
            steps.remove_file("undo intent", os.path.join(directory, INTENT_FILE))
            raise
        tail.commit()
        tail.adopt(commit.store_timestamp)
    finally:
        tail.close()
