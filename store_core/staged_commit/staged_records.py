# SPDX-License-Identifier: Apache-2.0
"""A part's files of records: a task writes them, the commit reads and deletes them.

Files are of bounded length, so a commit can delete them one by one while it reads, and needs no
more space, on the disk and in memory, than the job already takes.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.errors import StoreFormatError, StoreReadError
from store_core.files.byte_source import open_to_read
from store_core.files.file_writing import sync_data, write_all, write_error
from store_core.layout import BLANK_RECORD_BYTES
from store_core.staged_commit.staged_part import OTHER_BYTES, StagedChunk, checksum, records_path
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.staged_commit.staged_part import StagedPart

    Bytes = npt.NDArray[np.uint8]

CHUNK_BYTES = 4 << 20  # bytes patched and written in one piece stay in a cache
FILE_BYTES = 32 << 20


class StagedRecordsWriter:
    """Writes the records of a part, one file after the other."""

    def __init__(self, directory: str, name: str, *, is_forced: bool) -> None:
        self._directory, self._name = directory, name
        self._is_forced = is_forced
        self._file: Any = None
        self._file_bytes = 0
        self._number = -1
        self._chunks: list[StagedChunk] = []
        self._pool = ThreadPoolExecutor(1, "staged-files")
        self._forced: Future[None] | None = None

    def write(self, block: Bytes, sizes: npt.NDArray[np.int64]) -> None:
        """Write records.

        Parameters
        ----------
        block, sizes
            Records back to back, and the length of each in bytes.

        Raises
        ------
        StoreWriteError
            The disk is full, or another failure.
        """
        try:
            for first, stop, begin, end in _cuts(sizes):
                self._write_chunk(block[begin:end], stop - first)
        except OSError as err:
            raise self._error(err) from err

    def finish(self) -> tuple[StagedChunk, ...]:
        """Close the files, and return their chunks.

        Raises
        ------
        StoreWriteError
            The files cannot be forced to the disk.
        """
        try:
            self._end_file()
            self._wait()
        except OSError as err:
            raise self._error(err) from err
        return tuple(self._chunks)

    def close(self) -> None:
        """Close the open file; written records are valid only after `finish`."""
        with suppress(OSError):
            self._wait()
        self._pool.shutdown()
        if self._file is not None:
            self._file.close()

    def _write_chunk(self, data: Bytes, messages: int) -> None:
        if self._file is None or self._file_bytes >= FILE_BYTES:
            self._end_file()
            self._number += 1
            path = records_path(self._directory, self._name, self._number)
            self._file = open(path, "xb", buffering=0)  # noqa: SIM115 (`_end_file` closes it)
            self._file_bytes = 0
        write_all(self._file.fileno(), self._file_bytes, memoryview(data))
        self._file_bytes += len(data)
        self._chunks.append(StagedChunk(self._number, messages, len(data), checksum(data)))

    def _end_file(self) -> None:
        """Close the file; if it has to be forced, that happens while the next one is written."""
        if self._file is None:
            return
        if self._is_forced:
            self._wait()
            self._forced = self._pool.submit(_force_and_close, self._file)
        else:
            self._file.close()
        self._file = None

    def _wait(self) -> None:
        forced, self._forced = self._forced, None
        if forced is not None:
            forced.result()

    def _error(self, err: OSError) -> Exception:
        number = max(self._number, 0)
        return write_error(err, records_path(self._directory, self._name, number))


def _force_and_close(file: Any) -> None:
    with file:
        sync_data(file.fileno())


def _cuts(sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``(first, stop, begin, end)``, rows and bytes, of chunks of bounded length."""
    ends = np.cumsum(sizes, dtype=np.int64)
    first = begin = 0
    while first < len(ends):
        stop = max(int(np.searchsorted(ends, begin + CHUNK_BYTES, "right")), first + 1)
        end = int(ends[stop - 1])
        yield first, stop, begin, end
        first, begin = stop, end


class FileDeleter(Closing):
    """Deletes files in a thread of its own, at most one at a time.

    Freeing the blocks of a file takes the file system as long as copying its bytes. A file that
    cannot be deleted stays: it is deleted with the job's directory.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "deleted-files")
        self._under_way: Future[None] | None = None

    def delete(self, path: str) -> None:
        """Begin to delete a file, after the previous one is deleted."""
        if self._under_way is not None:
            self._under_way.result()
        self._under_way = self._pool.submit(_delete, path)

    def close(self) -> None:
        """Wait until the last file is deleted."""
        self._pool.shutdown()


def _delete(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


class StagedRecordsReader(Closing):
    """Reads the records of a part once, chunk by chunk, alternating between two buffers.

    Parameters
    ----------
    deleter
        Deletes each file that was read to its end; if None, files are kept.
    """

    def __init__(self, part: StagedPart, deleter: FileDeleter | None) -> None:
        self._part, self._deleter = part, deleter
        self._buffers = [np.empty(0, np.uint8)] * 2
        self._fd, self._number, self._at = -1, -1, 0

    def close(self) -> None:
        """Close the open file."""
        if self._fd >= 0:
            os.close(self._fd)

    def read(self, chunk: StagedChunk) -> Bytes:
        """Return the bytes of the next chunk; they are valid until the one after next is read.

        Raises
        ------
        StoreReadError, StoreFormatError
            The bytes cannot be read, or are not those the task wrote.
        """
        self._buffers.reverse()
        if len(self._buffers[0]) < chunk.bytes:
            self._buffers[0] = np.empty(max(chunk.bytes, CHUNK_BYTES), np.uint8)
        data = self._buffers[0][: chunk.bytes]
        try:
            if chunk.file != self._number:
                self._open(chunk.file)
            done = _read(self._fd, self._at, memoryview(data))
        except OSError as err:
            path = self._part.records_path(chunk.file)
            raise StoreReadError(err.strerror or str(err), path) from err
        if done != chunk.bytes or checksum(data) != chunk.checksum:
            raise StoreFormatError(
                f"not what a task staged, in bytes {self._at} to {self._at + chunk.bytes}: "
                f"{OTHER_BYTES}",
                self._part.records_path(chunk.file),
            )
        self._at += chunk.bytes
        return data

    def end(self) -> None:
        """Close a file that was read to its end, and begin to delete it if there is a deleter."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        os.close(fd)
        if self._deleter is not None:
            self._deleter.delete(self._part.records_path(self._number))

    def _open(self, number: int) -> None:
        self.end()
        self._fd = open_to_read(self._part.records_path(number))
        self._number, self._at = number, 0


def _read(fd: int, at: int, view: memoryview) -> int:
    """Fill a view from a position of a file on; return how many bytes were read.

    Network and user-space file systems may return fewer bytes than requested at a time.
    """
    done = 0
    while done < len(view) and (piece := os.preadv(fd, [view[done:]], at + done)):
        done += piece
    return done


# Source: RocketMQ ``DefaultAppendMessageCallback.doAppend`` (release 5.3.3): a record never spans
# segments, and at least eight bytes are left after it.
class Run(NamedTuple):
    """Rows ``[first, stop)``, back to back from ``commit_log_offset`` on, in one segment."""

    first: int
    stop: int
    commit_log_offset: int


def place(
    sizes: npt.NDArray[np.integer], position: int, segment_bytes: int
) -> tuple[list[Run], int]:
    """Return the runs of records appended at a position, and the position after them.

    If a run does not begin at the end of the previous one, a blank record closes the segment.

    Raises
    ------
    ValueError
        A record is too large for a segment.
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    runs: list[Run] = []
    first, begin = 0, 0
    while first < len(ends):
        left = segment_bytes - position % segment_bytes
        stop = int(np.searchsorted(ends, begin + left - BLANK_RECORD_BYTES, "right"))
        if stop == first:
            if left == segment_bytes:
                raise ValueError(f"{sizes[first]} bytes do not fit in a segment of {segment_bytes}")
            position += left
            continue
        runs.append(Run(first, stop, position))
        position += int(ends[stop - 1]) - begin
        first, begin = stop, int(ends[stop - 1])
    return runs, position
