# SPDX-License-Identifier: Apache-2.0
"""Resolves jobs whose commit did not end, by comparing their journals with the log."""

from __future__ import annotations

import logging
import os
import zlib
from typing import TYPE_CHECKING

from store_core.errors import StoreError
from store_core.files.byte_source import open_to_write
from store_core.files.file_writing import write_error
from store_core.files.store_directory import StoreDirectory, local_path
from store_core.staged_commit.job import Ledger
from store_core.staged_commit.staging import (
    INTENT_FILE,
    check_staging,
    job_directories,
    open_intents,
    read_intent,
    remove_job,
    staged_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.staged_commit.staging import Commit, CrashPoints

logger = logging.getLogger(__name__)


def resolve_open_jobs(root: str, log: MappedFileQueue, steps: CrashPoints) -> list[Commit]:
    """Finish or discard the jobs whose commit did not end; return those that are in the log.

    The caller holds the store's lock, has created ``abort``, and has completed recovery: it has
    found the end of the log, erased the bytes after it, and dispatched the records before it. Then
    only the ledger has to change, not the log.
    """
    committed = []
    for directory, commit in open_intents(StoreDirectory(root)).items():
        if is_in_log(log, commit):
            logger.info("job %s is in the log of %s: finishing it", commit.job, root)
            _force_again(log, commit, steps)
            finish(root, directory, commit, steps)
            committed.append(commit)
        else:
            logger.warning("job %s is not in the log of %s: discarding it", commit.job, root)
            steps.remove_file("intent forgotten", os.path.join(directory, INTENT_FILE))
            clear_away(directory, steps)
    return committed


def finish(root: str, directory: str, commit: Commit, steps: CrashPoints) -> None:
    """Record a job whose records are in the log and dispatched, and delete its staging files."""
    Ledger(root).record(commit, steps)
    steps.remove_file("intent done", os.path.join(directory, INTENT_FILE))
    clear_away(directory, steps)


def clear_away(directory: str, steps: CrashPoints | None = None) -> None:
    """Delete the staging files of a job that needs them no more; only log a failure."""
    try:
        if steps is None:
            remove_job(directory)
        else:
            steps.run("staging removal", remove_job, directory)
    except (StoreError, OSError) as err:
        logger.warning(
            "cannot delete the staging files of a job; clean-staging deletes them later: %s", err
        )


def intent_is_open(directory: str) -> bool:
    """Return whether a commit of this job began but did not end."""
    return os.path.lexists(os.path.join(directory, INTENT_FILE))


def is_in_log(log: MappedFileQueue, commit: Commit) -> bool:
    """Return whether the records of a job are in the log.

    If retention has deleted the job's first record since, there is no proof; then the job counts as
    committed if the log reaches its end, as losing it is better than writing it twice.
    """
    if commit.end_offset > log.max_wrote_offset:
        return False
    file = log.find(commit.proof_offset)
    if file is None:
        logger.warning(
            "the first record of job %s is gone; the job counts as committed", commit.job
        )
        return True
    with file.select(commit.proof_offset - file.file_from_offset, commit.proof_bytes) as data:
        return data is not None and zlib.crc32(data) == commit.proof_crc


def _force_again(log: MappedFileQueue, commit: Commit, steps: CrashPoints) -> None:
    """Write a job's eight bytes again and force them to the disk.

    The sync may have failed before. Linux then marks the page as clean: reads return the new bytes,
    a second sync forces nothing, and the job is lost when the page is dropped from memory.
    """
    file = log.find(commit.start_offset)
    if file is None:
        return  # expired
    at, data = commit.start_offset - file.file_from_offset, bytes.fromhex(commit.first_bytes)
    fd = open_to_write(file.path)
    try:
        if os.pread(fd, len(data), at) == data:  # else retention or a cut has removed them
            steps.write("eight bytes again", fd, at, memoryview(data))
            steps.sync("eight bytes again sync", fd)
    finally:
        os.close(fd)


def remove_staging(
    root: str, older_than_ms: int, clock: Callable[[], int]
) -> tuple[tuple[str, int], ...]:
    """Delete staging files of jobs that were never committed; return directories and their bytes.

    Skips jobs whose commit began, which `resolve_open_jobs` handles, and anything that no write
    created; never deletes through a link.

    Parameters
    ----------
    root
        The store root.
    older_than_ms
        Only deletes jobs to which nothing was written for this long.
    clock
        Returns ms since the epoch.

    Raises
    ------
    StoreError
        The staging directory is a link, or a directory cannot be deleted; the others are deleted.
    """
    root = local_path(root)
    check_staging(root)
    removed, failures = [], []
    for directory in job_directories(StoreDirectory(root)):
        try:
            total = _remove_abandoned(directory, clock() - older_than_ms)
        except StoreError as err:
            failures.append(err)
            continue
        if total is not None:
            removed.append((directory, total))
            logger.info("deleted the abandoned job %s", directory)
    if failures:
        raise failures[0]
    return tuple(removed)


def _remove_abandoned(directory: str, written_before_ms: int) -> int | None:
    """Delete a job and return its bytes; None if it is too young or its commit began."""
    try:
        newest, total = _newest_and_bytes(directory)
        if newest > written_before_ms or read_intent(directory) is not None:
            return None
        remove_job(directory)
    except FileNotFoundError:  # the job itself was faster
        return None
    except OSError as err:
        raise write_error(err, directory) from err
    return total


def _newest_and_bytes(directory: str) -> tuple[int, int]:
    files = staged_files(directory).values()
    times = [os.stat(directory).st_mtime_ns, *(found.st_mtime_ns for found in files)]
    return max(times) // 1_000_000, sum(found.st_size for found in files)
