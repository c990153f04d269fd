# SPDX-License-Identifier: Apache-2.0
"""Write after the end of the log, and the first eight bytes last: they are the commit point."""

from __future__ import annotations

import os
import struct
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from store_core.codec.message_codec import encode_blank
from store_core.errors import CommitInDoubtError
from store_core.files.file_writing import (
    create_file,
    erase,
    make_directory,
    open_file,
    start_writeback,
    sync_data,
    write_error,
    write_errors,
)
from store_core.files.mapped_file import MappedFile
from store_core.layout import BLANK_MAGIC_CODE, RECORD_PREFIX
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.staged_commit.staging import CrashPoints

HELD_BYTES = RECORD_PREFIX.size
_LENGTH_BYTES = 4
_MAGIC = struct.Struct(">i")
_EARLY_BYTES = 32 << 20


class LogTail(Closing):
    """Writes a job after the end of the log; every reader sees the log end there until `commit`.

    `adopt` updates the file queue, which does not change before. The caller holds the store's lock,
    and nothing else may append meanwhile.

    Attributes
    ----------
    position
        Log offset of the next byte to write.
    """

    def __init__(self, log: MappedFileQueue, steps: CrashPoints) -> None:
        self._log, self._steps = log, steps
        self.start_offset = self.position = log.max_wrote_offset
        self._segment_bytes = log.file_size
        self._held = b""
        self._first_fd = self._fd = -1
        self._created: list[str] = []
        self._early = EarlySync()

    def write(self, commit_log_offset: int, data: memoryview) -> None:
        """Write a run of records; a blank record closes the previous segment if space is left.

        Raises
        ------
        StoreWriteError
            The disk is full, or another failure; call `undo`.
        """
        try:
            if commit_log_offset != self.position:
                left = self._segment_bytes - self.position % self._segment_bytes
                self._put("blank", memoryview(encode_blank(left)))
                self.position = commit_log_offset
            self._put("records", data)
        except OSError as err:
            raise write_error(err, self._path(self.position)) from err

    def flush(self) -> None:
        """Force everything except the eight bytes to the disk.

        Raises
        ------
        StoreWriteError
            That failed; call `undo`.
        """
        self._finish_segment()
        if self._first_fd >= 0:
            with write_errors(self._path(self.start_offset)):
                self._steps.sync("first segment sync", self._first_fd)

    def commit(self) -> None:
        """Write the eight bytes and force them to the disk: the commit point.

        Raises
        ------
        StoreWriteError
            That failed, and the bytes are zeros again, on the disk too.
        CommitInDoubtError
            That failed, and so did writing zeros over the bytes.
        """
        at = self.start_offset % self._segment_bytes
        try:
            self._steps.write("eight bytes", self._first_fd, at, memoryview(self._held))
            self._steps.sync("eight bytes sync", self._first_fd)
        except OSError as err:
            self._take_back(err)
            raise write_error(err, self._path(self.start_offset)) from err

    def _take_back(self, err: OSError) -> None:
        """Put zeros over the eight bytes; the write marks the page dirty, so a sync forces it."""
        at = self.start_offset % self._segment_bytes
        try:
            self._steps.write("eight bytes undo", self._first_fd, at, memoryview(bytes(HELD_BYTES)))
            self._steps.sync("eight bytes undo sync", self._first_fd)
        except OSError:
            raise CommitInDoubtError(
                f"{err.strerror or err}, while the job was becoming part of the log, and this "
                "could not be undone: the job may be in the log. Do not write it again until the "
                "store has been reopened (by another write, or by recover) and "
                "rmqsource.last_commit shows whether it is there",
                self._path(self.start_offset),
            ) from err

    def adopt(self, store_timestamp: int) -> None:
        """Add the written bytes to the file queue."""
        last = self._log.last
        files = list(self._log.mapped_files)
        if last is not None and last.wrote_position < last.file_size:
            _set_position(last, min(self.position - last.file_from_offset, last.file_size))
            last.store_timestamp = store_timestamp
        for path in self._created:
            file = MappedFile(path, self._segment_bytes)
            stop = min(self.position - file.file_from_offset, self._segment_bytes)
            _set_position(file, stop)
            file.store_timestamp = store_timestamp
            files.append(file)
        self._log.mapped_files = tuple(files)
        self._log.flushed_where = self._log.committed_where = self.position
        self._log.store_timestamp = store_timestamp

    def undo(self) -> None:
        """Erase everything written, so that the log is as before; do not call after `commit`."""
        with suppress(OSError):  # an error of bytes that are erased, not of the erasure
            self._early.wait()
        for path in reversed(self._created):
            self._steps.remove_file("undo segment", path)
        if self._first_fd >= 0 and self._path(self.start_offset) not in self._created:
            at = self.start_offset % self._segment_bytes
            self._steps.run("undo erase", erase, self._first_fd, at, self._segment_bytes)
            self._steps.sync("undo sync", self._first_fd)

    def close(self) -> None:
        """Close the files without forcing them; `flush` and `commit` do that."""
        self._early.close()
        for fd in {self._fd, self._first_fd} - {-1}:
            with suppress(OSError):
                os.close(fd)
        self._fd = self._first_fd = -1

    def _put(self, name: str, data: memoryview) -> None:
        at = self.position % self._segment_bytes
        if self._fd < 0 or at == 0:
            self._open_segment()
        if self.position == self.start_offset:
            self._held = bytes(data[:HELD_BYTES])
            self._hold(name, at, data)
        else:
            self._steps.write(name, self._fd, at, data)
        start_writeback(self._fd, at, len(data))
        if self._steps.is_sync:
            self._early.wrote(self._fd, len(data))
        self.position += len(data)

    def _hold(self, name: str, at: int, data: memoryview) -> None:
        """Write the data without the eight bytes.

        A blank record becomes valid by its magic code alone; its length is written now, so that
        eight bytes torn in any way leave no blank record of another length.
        """
        if _MAGIC.unpack_from(self._held, _LENGTH_BYTES)[0] == BLANK_MAGIC_CODE:
            self._steps.write(name, self._fd, at, data[:_LENGTH_BYTES])
        else:
            self._steps.write(name, self._fd, at + HELD_BYTES, data[HELD_BYTES:])

    def _open_segment(self) -> None:
        self._finish_segment()
        known = self._log.find(self.position)
        if known is not None:
            self._fd = open_file(known.path, self._segment_bytes)
            self._clear_tail()
        else:
            path = self._path(self.position)
            self._steps.run("segment directory", make_directory, os.path.dirname(path))
            self._fd = self._steps.run("segment", create_file, path, self._segment_bytes)
            self._created.append(path)
            self._steps.sync_directory("segment name sync", os.path.dirname(path))
        if self._first_fd < 0:
            self._first_fd = self._fd

    def _clear_tail(self) -> None:
        """Zero the bytes that a broker's cut left after the end: they would become valid again."""
        at = self.position % self._segment_bytes
        if self._steps.run("clear tail", erase, self._fd, at, self._segment_bytes):
            self._steps.sync("clear tail sync", self._fd)

    def _finish_segment(self) -> None:
        if self._fd < 0:
            return
        with write_errors(self._path(self.position - 1)):
            self._early.wait()
            if self._fd != self._first_fd:
                self._steps.sync("segment sync", self._fd)
                os.close(self._fd)
        self._fd = -1

    def _path(self, offset: int) -> str:
        start = offset - offset % self._segment_bytes
        file = self._log.find(offset)
        if file is not None and file.file_from_offset == start:
            return file.path
        name = f"{start:020d}"
        return os.path.abspath(os.path.join(self._log.directory_of(start), name))


def _set_position(file: MappedFile, position: int) -> None:
    file.wrote_position = file.committed_position = file.flushed_position = position


class EarlySync:
    """Forces written bytes to the disk in a thread of its own, about every 32 MiB.

    A disk takes writes into its own memory and begins to store them only when a sync demands it.
    Without this class it would be idle while a file is written, and the sync at the end would wait
    for the whole file. The writer still has to force the last bytes.

    Handles one file after the other; call `wait` between two files, and before closing one.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "early-sync")
        self._under_way: Future[None] | None = None
        self._written = 0

    def wrote(self, fd: int, length: int) -> None:
        """Note that bytes were written to a file.

        Raises
        ------
        OSError
            Earlier bytes could not be forced.
        """
        self._written += length
        is_busy = self._under_way is not None and not self._under_way.done()
        if self._written < _EARLY_BYTES or is_busy:
            return
        self.wait()
        self._under_way = self._pool.submit(sync_data, fd)

    def wait(self) -> None:
        """Wait until no sync is running.

        Raises
        ------
        OSError
            The sync failed. The system reports that once: another sync of the file may succeed
            although bytes are lost.
        """
        self._written = 0
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def close(self) -> None:
        """End the thread, ignoring a failed sync."""
        with suppress(OSError):
            self.wait()
        self._pool.shutdown()
