# SPDX-License-Identifier: Apache-2.0
"""The driver's side of a write: commit all parts to the store, or none."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rmqsource.sink.errors import SinkCommitError
from rmqsource.sink.local_host import now_ms
from rmqsource.sink.prepared_write import sink_config
from store_core.commit_job import close_committed, commit_job, open_for_commit
from store_core.config.config_writing import merge_delay_offsets, merge_topics
from store_core.errors import StoreError, StoreLockedError
from store_core.files.byte_source import open_to_write
from store_core.files.file_writing import write_error
from store_core.files.store_directory import StoreDirectory
from store_core.layout import SCHEDULE_TOPIC
from store_core.staged_commit.job import Ledger, StagedJob
from store_core.staged_commit.resolve_open_jobs import (
    clear_away,
    intent_is_open,
    remove_staging,
)
from store_core.staged_commit.staged_part import check_staged_files
from store_core.staged_commit.staging import (
    STAGING_DIRECTORY,
    CrashPoints,
    make_staging,
    no_hook,
)
from store_core.state.store_lock import StoreLock
from store_core.state.store_state import StoreState, store_state
from store_core.topics import topic_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rmqsource.sink.write_plan import SinkPlan
    from store_core.recovery.store_files import StoreFiles
    from store_core.staged_commit.staged_part import StagedPart
    from store_core.staged_commit.staging import Commit, Hook

logger = logging.getLogger(__name__)
ABANDONED_MS = 24 * 3600 * 1000
"""A job is considered dead if nothing was written to it for this long."""
_TURN_FILE = "turn.lock"
_WAIT_SECONDS = 3600
_POLL_SECONDS = 0.05
_NOTED_KINDS = frozenset({"normal", "retry", "dlq"})  # a broker creates the others itself


def commit_parts(
    plan: SinkPlan,
    parts: Sequence[StagedPart],
    *,
    application: str | None = None,
    version: int | None = None,
    hook: Hook = no_hook,
) -> Commit | None:
    """Commit what the tasks staged.

    Parameters
    ----------
    application, version
        Identity under which the job is committed only once; no such identity if None.

    Returns
    -------
    commit
        None if there was nothing to do: no rows, or committed before.

    Raises
    ------
    SinkCommitError, StoreError
        Nothing was appended, unless it is `CommitInDoubtError`. Failures after the commit are only
        logged, so the caller may write the job again after an error.
    """
    steps = CrashPoints(hook, sync=plan.options.flush == "sync")
    directory = next((part.directory for part in parts if part.messages), plan.job_directory)
    ordered = tuple(sorted((p for p in parts if p.messages), key=lambda part: part.partition_id))
    job = StagedJob(Path(directory).name, ordered, application, version)
    if not ordered:
        clear_away(directory)
        return None
    for part in ordered:
        check_staged_files(part)
    committed = _commit_in_turn(plan, job, directory, steps)
    if committed is not None:
        _clean_up(plan.options.path)
    return committed


def _commit_in_turn(
    plan: SinkPlan, job: StagedJob, directory: str, steps: CrashPoints
) -> Commit | None:
    """Commit a job after waiting for other jobs' commits; None if it was committed before."""
    root = plan.options.path
    committed: Commit | None = None
    try:
        with _turn(root), _opened(plan, steps, directory) as store:
            if Ledger(root).is_committed(job.application, job.version):
                logger.info(
                    "version %s of %s is already committed: skipped", job.version, job.application
                )
                clear_away(directory)
                return None
            note_topics(plan, job, steps)
            note_delays(plan, job, store.next_queue_offsets(), steps)
            committed = commit_job(store, job, directory, steps=steps)
    except Exception as err:  # any: a job that is in the log must not look failed
        if committed is None:
            if isinstance(err, OSError):
                raise SinkCommitError(root, f"{err}; nothing was written") from err
            raise
        logger.warning(
            "%s: job %s is committed, do not write it again. The store could not be closed "
            "properly, but the program that opens it next completes that",
            root,
            job.name,
            exc_info=True,
        )
    return committed


def _clean_up(root: str) -> None:
    """Delete the files of dead jobs; a failure to do so does not fail the committed job."""
    try:
        remove_staging(root, ABANDONED_MS, now_ms)
    except (StoreError, OSError) as err:
        logger.warning("staged files of an earlier job remain: %s", err)


def refuse_open_store(root: str) -> None:
    """Raise if a broker or program has the store open, as the commit would fail after all the work.

    A job that is committing also has the store open, but only briefly, so it is waited for.

    Raises
    ------
    SinkCommitError
        The text says what to do.
    """
    directory = StoreDirectory(root)
    if store_state(directory) is not StoreState.LIVE:
        return
    has_job = Path(root, STAGING_DIRECTORY, _TURN_FILE).exists()
    with _turn(root) if has_job else nullcontext():  # no file is created in a store of others
        if store_state(directory) is StoreState.LIVE:
            raise _is_open(root, StoreLock(root).holder())


def _is_open(root: str, reason: str) -> SinkCommitError:
    return SinkCommitError(
        root,
        f"{reason}. Nothing was written. Stop the broker or the program that has the store open, "
        "then run the write again",
    )


def discard(directories: Sequence[str]) -> None:
    """Delete a job's staged files; if its commit began, leave it to the store's next opening."""
    for directory in set(directories):
        if not intent_is_open(directory):
            clear_away(directory)


@contextmanager
def _opened(plan: SinkPlan, steps: CrashPoints, directory: str) -> Iterator[StoreFiles]:
    """Open the store; close it cleanly, or for recovery if the commit's intent is still open."""
    store = _open(plan, steps)
    try:
        yield store
    except BaseException:
        try:  # the first error describes the outcome of the job
            close_committed(store, clean=not intent_is_open(directory))
        except (StoreError, OSError) as err:
            logger.warning("%s: not closed properly: %s", plan.options.path, err)
        raise
    close_committed(store, clean=not intent_is_open(directory))


def _open(plan: SinkPlan, steps: CrashPoints) -> StoreFiles:
    root = plan.options.path
    try:
        return open_for_commit(root, sink_config(plan.options), now_ms, steps)
    except StoreLockedError as err:
        raise _is_open(root, err.reason) from err


@contextmanager
def _turn(root: str) -> Iterator[None]:
    """Wait until no other job commits; does not wait for a broker."""
    path = str(Path(make_staging(root), _TURN_FILE))
    try:
        fd = open_to_write(path, os.O_CREAT)
    except OSError as err:
        raise write_error(err, path) from err
    try:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not _try_lock(fd):
            if time.monotonic() > deadline:
                raise SinkCommitError(
                    root,
                    f"another job has been committing for {_WAIT_SECONDS} s; nothing was written",
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone would not release it while a fork has it
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def note_topics(plan: SinkPlan, job: StagedJob, steps: CrashPoints) -> None:
    """Add the topics of a job to the store's, each with as many queues as the job uses."""
    queues: dict[str, int] = {}
    for part in job.parts:
        for topic, count in part.topics:
            if topic_kind(topic) in _NOTED_KINDS:
                queues[topic] = max(queues.get(topic, 0), count)

    def replace(path: str, data: bytes) -> None:
        steps.replace_file("topics", path, data)

    merge_topics(plan.options.path, queues, now_ms(), replace)


def note_delays(
    plan: SinkPlan, job: StagedJob, next_offsets: Mapping[tuple[str, int], int], steps: CrashPoints
) -> None:
    """Record that messages the job delays wait, and that copied delayed messages no longer do.

    This happens before the messages are in the log: a level's offset may be past the end of its
    queue, but a message that was delivered long ago must not be delivered again.
    """
    waiting = {level for part in job.parts for level in part.delay_levels}
    offsets: dict[int, tuple[int, int]] = {}
    for queue in job.queue_ranges(next_offsets):
        if queue.topic == SCHEDULE_TOPIC:
            level, end = queue.queue_id + 1, queue.first_queue_offset
            offsets[level] = (end, end if level in waiting else end + queue.messages)

    def replace(path: str, data: bytes) -> None:
        steps.replace_file("delay offsets", path, data)

    merge_delay_offsets(plan.options.path, offsets, now_ms(), replace)
