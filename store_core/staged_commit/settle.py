"""What became of jobs whose commit did not end: compare their journals with the log."""

from __future__ import annotations

import logging
import os
import shutil
import zlib
from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import StoreWriteError
from store_core.files.store_directory import StoreDirectory
from store_core.layout.message import BLANK_MAGIC_CODE, RECORD_PREFIX
from store_core.staged_commit.commit import finish
from store_core.staged_commit.intent import (
    INTENT_FILE,
    job_directories,
    open_intents,
    read_intent,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.log.readable_log import ReadableLog
    from store_core.staged_commit.intent import Commit
    from store_core.staged_commit.steps import Steps

logger = logging.getLogger(__name__)


def uncommitted_offset(store: StoreDirectory, log: ReadableLog) -> int | None:
    """Return where the log ends because a job got no further than its eight bytes; None: nowhere.

    Readable records may lie behind, of that job: they are no part of the log. Whoever opens the
    store to write erases them before recovery, which would take them for records behind damage.

    Parameters
    ----------
    store
        The store root.
    log
        All that the files hold.
    """
    offsets = [c.start_offset for c in open_intents(store).values() if is_unfinished(log, c)]
    return min(offsets, default=None)


def is_unfinished(log: ReadableLog, commit: Commit) -> bool:
    """Tell whether the job's eight bytes are missing, or torn, and nothing else came in its place.

    Another record there, or one that was damaged since, is none of ours.
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


def settle(root: str, log: MappedFileQueue, steps: Steps) -> list[Commit]:
    """Finish or forget the jobs whose commit did not end; return those that are in the log.

    To be called by whoever has the store's lock and `abort` in place, when recovery has found the
    end of the log, has erased what lay behind it, and given the queues what lies before: the log
    needs no change then, only the ledger.

    Parameters
    ----------
    root
        Of the store.
    log
        Recovered.
    steps
        Does the file operations.
    """
    committed = []
    for directory, commit in open_intents(StoreDirectory(root)).items():
        if is_in_log(log, commit):
            logger.info("job %s is in the log of %s: finished", commit.job, root)
            finish(root, directory, commit, steps)
            committed.append(commit)
        else:
            logger.warning("job %s did not get into the log of %s: forgotten", commit.job, root)
            steps.remove_file("intent forgotten", os.path.join(directory, INTENT_FILE))
            steps.run("staging removal", shutil.rmtree, directory, True)
    return committed


def is_in_log(log: MappedFileQueue, commit: Commit) -> bool:
    """Tell whether the records of a job are in the log.

    Where retention has deleted its first record since, nothing tells it any more; then the job
    counts as committed if the log has gone beyond it: rather lost than written twice.
    """
    if commit.end_offset > log.max_wrote_offset:
        return False
    file = log.find(commit.proof_offset)
    if file is None:
        logger.warning("the first record of job %s is gone; it counts as committed", commit.job)
        return True
    with file.select(commit.proof_offset - file.file_from_offset, commit.proof_bytes) as data:
        return data is not None and zlib.crc32(data) == commit.proof_crc


def clean_staging(
    root: str, older_than_ms: int, clock: Callable[[], int]
) -> tuple[tuple[str, int], ...]:
    """Delete what jobs staged and never committed; return the directories and their bytes.

    A job whose commit began is left alone: `settle` decides about it.

    Parameters
    ----------
    root
        Of the store.
    older_than_ms
        Only jobs to which nothing was written for so long.
    clock
        Returns ms since the epoch.

    Raises
    ------
    StoreWriteError
        A directory cannot be deleted.
    """
    removed = []
    for directory in job_directories(StoreDirectory(root)):
        newest, total = _newest_and_bytes(directory)
        if clock() - newest < older_than_ms or read_intent(directory) is not None:
            continue
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:  # its own job was faster
            continue
        except OSError as err:
            raise StoreWriteError(err.strerror or str(err), directory) from err
        removed.append((directory, total))
        logger.info("deleted the abandoned job %s", directory)
    return tuple(removed)


def _newest_and_bytes(directory: str) -> tuple[int, int]:
    newest = total = 0
    for path, _, names in os.walk(directory):
        for name in [".", *names]:
            try:
                found = os.stat(os.path.join(path, name))
            except FileNotFoundError:
                continue
            newest = max(newest, found.st_mtime_ns // 1_000_000)
            total += found.st_size if name != "." else 0
    return newest, total
