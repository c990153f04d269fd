"""Keeps what recovery cuts off a log: nothing readable is destroyed without a copy."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from store_core.files.file_writing import flush_directory, make_directory, sync_data, write_error
from store_core.files.regular_file import open_to_read
from store_core.layout.store_paths import CHECKPOINT_FILE
from store_core.recovery.recovery_plan import end_of_data
from store_core.state.checkpoint import CheckpointFile

if TYPE_CHECKING:
    from store_core.log.readable_log import ReadableLog

CUT_DIRECTORY = "_cut"
_CHUNK_BYTES = 8 << 20


def keep_cut_bytes(log: ReadableLog, root: str, end_offset: int, now_ms: int) -> str:
    """Copy what lies after the end of the log, and return the directory: one for each cut.

    A file there has the offset of its first byte as its name, as a segment has; zeros at the end
    are left out. Neither brokers nor readers look below ``_cut``; it can be deleted.

    Raises
    ------
    StoreWriteError
        It cannot be written; the log is as it was.
    """
    directory = Path(root).absolute() / CUT_DIRECTORY / f"{end_offset:020d}-{now_ms}"
    size = log.segments.file_size
    try:
        make_directory(str(directory))
        for segment in log.segments:
            begin = max(end_offset - segment.from_offset, 0)
            stop = end_of_data(log, segment.from_offset, begin) if begin < size else begin
            if stop > begin:
                target = directory / f"{segment.from_offset + begin:020d}"
                _copy(Path(segment.path), begin, stop, target)
        flush_directory(str(directory))
    except OSError as err:
        raise write_error(err, str(err.filename or directory)) from err
    return str(directory)


def lower_dispatched(log: ReadableLog, root: str, end_offset: int) -> None:
    """Let the checkpoint name no record as dispatched that is about to be cut off the log.

    With ``enableAcceleratedRecovery`` a broker of 5.5 begins there after a crash, and takes for the
    end of the log what is no record.

    Raises
    ------
    StoreWriteError
        The checkpoint cannot be written.
    """
    with closing(CheckpointFile(str(Path(root) / CHECKPOINT_FILE))) as checkpoint:
        checkpoint.load()
        if 0 < checkpoint.logics_physical_offset >= end_offset:
            checkpoint.logics_physical_offset = dispatched_before(log, end_offset)
            checkpoint.flush()


def dispatched_before(log: ReadableLog, end_offset: int) -> int:
    """Return the start of a record before an offset: the first of the last segment; 0 if none."""
    for segment in reversed([s for s in log.segments if s.from_offset < end_offset]):
        stop = min(end_offset, segment.from_offset + log.segments.file_size)
        begin = log.next_record(segment.from_offset, stop)
        if begin >= 0:
            return begin
    return 0


def _copy(path: Path, begin: int, stop: int, target: Path) -> None:
    with os.fdopen(open_to_read(str(path)), "rb") as source, target.open("wb") as copy:
        source.seek(begin)
        left = stop - begin
        while left > 0:
            data = source.read(min(left, _CHUNK_BYTES))
            if not data:
                break
            copy.write(data)
            left -= len(data)
        copy.flush()
        sync_data(copy.fileno())
    shutil.copystat(path, target)
