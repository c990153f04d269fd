"""A held file of fixed length that is written in place.

Source: RocketMQ ``DefaultMappedFile`` (release 5.3.3).
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from typing import Any

from store_core.files.file_writing import (
    create_file,
    erase,
    fill_with_zeros,
    open_file,
    sync_data,
    write_all,
    write_error,
)
from store_core.files.ref_counted_map import RefCountedMap

OS_PAGE_BYTES = 4096
_MOST_IN_MEMORY_BYTES = 16 << 10  # larger ones are worth the system call
_WINDOW_BYTES = 4 << 20
_ZEROS = memoryview(bytes(256 << 10))  # so much more than is needed is forced to the disk
HEAD_BYTES = 8
"""What is written last: zeros until all that follows is there."""
_NOT_SUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV}
_NOT_NOW = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}  # a map takes a descriptor


class WritableMap(RefCountedMap):
    """Writes large blocks through the descriptor, small ones in memory.

    The latter where blocks of the disk are reserved (`ReservedWindow`); all is read through a map.
    RocketMQ writes sparse files through a map: there a full disk ends the process (SIGBUS).

    Parameters
    ----------
    file_size
        Its length in bytes.
    create
        Make it (sparse, at full length; it must not exist) instead of opening it.

    Raises
    ------
    StoreWriteError
        The file cannot be made or opened.
    StoreFormatError
        It has another length.
    """

    def __init__(self, path: str, file_size: int, *, create: bool) -> None:
        fd = create_file(path, file_size) if create else open_file(path, file_size)
        super().__init__(path, file_size, fd)
        self._window = ReservedWindow(fd, file_size)

    def _write(self, at: int, data: Any) -> None:
        """Write any buffer of single bytes, the first ones last where several pages are touched.

        The kernel looks for a kill between pages only. So no half of a record is left behind with
        a good beginning: recovery could not tell that its properties are cut.
        """
        try:
            if len(data) > _MOST_IN_MEMORY_BYTES or not self._window.write(at, data):
                _write_through(self.descriptor(), at, memoryview(data))
        except OSError as err:
            with suppress(OSError):  # the first error tells; recovery erases what this leaves
                erase(self.descriptor(), at, self.file_size)
            raise write_error(err, self.path) from err

    def _fill_with_zeros(self, sync_bytes: int | None) -> None:
        """Write zeros all over; force them to the disk every so many bytes (None: not)."""
        try:
            fill_with_zeros(self.descriptor(), self.file_size, sync_bytes)
        except OSError as err:
            raise write_error(err, self.path) from err

    def _erase(self, position: int) -> None:
        """Put zeros after a position, on the disk too. Holes stay holes."""
        try:
            if erase(self.descriptor(), position, self.file_size):
                sync_data(self.descriptor())
        except OSError as err:
            raise write_error(err, self.path) from err

    def _unmap(self) -> None:
        self._window.close()
        super()._unmap()


def _write_through(fd: int, at: int, view: memoryview) -> None:
    if at // OS_PAGE_BYTES == (at + len(view) - 1) // OS_PAGE_BYTES:
        write_all(fd, at, view)
    else:
        write_all(fd, at + HEAD_BYTES, view[HEAD_BYTES:])
        write_all(fd, at, view[:HEAD_BYTES])


class ReservedWindow:
    """Takes small writes at a growing position, without a system call for each.

    A ``pwrite`` lets other threads of Python run, and waits for them: with a busy reader beside it,
    a put took 70 µs instead of 10. RocketMQ maps its files too; but a sparse file in a map ends the
    process when the disk is full (SIGBUS). So blocks are reserved before they are written to, and
    a full disk is an error as ever. A page that is touched first through the map costs the file
    system 2 to 10 µs; filled with zeros by a system call before, among many others, it costs 1.
    """

    def __init__(self, fd: int, file_size: int) -> None:
        self._fd, self._file_size = fd, file_size
        self._map: Any = None
        self._start = self._stop = self._ready = 0
        self._is_supported = hasattr(os, "posix_fallocate")

    def write(self, at: int, data: Any) -> bool:
        """Write, the first eight bytes last; False where nothing can be reserved and mapped.

        Parameters
        ----------
        data
            Any buffer of single bytes; few, as slicing may copy them (faster than a view).

        Raises
        ------
        OSError
            The disk is full; nothing was written.
        """
        stop = at + len(data)
        if not self._start <= at < stop <= self._ready and not self._prepare(at, stop):
            return False
        window, at, stop = self._map, at - self._start, stop - self._start
        if stop - at > HEAD_BYTES:
            window[at + HEAD_BYTES : stop] = data[HEAD_BYTES:]
            stop = at + HEAD_BYTES
        window[at:stop] = data[:HEAD_BYTES]
        return True

    def close(self) -> None:
        """Unmap, for good; what was written stays written."""
        self._is_supported = False
        self._unmap()

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
        self._start = self._stop = self._ready = 0

    def _prepare(self, at: int, stop: int) -> bool:
        """Map the place and fill it, and what comes next, with zeros; nothing lies there yet."""
        if not self._start <= at < stop <= self._stop and not self._move(at, stop - at):
            return False
        self._ready = max(stop, at + os.pwrite(self._fd, _ZEROS[: self._stop - at], at))
        return True

    def _move(self, at: int, length: int) -> bool:
        self._unmap()
        if not self._is_supported:
            return False
        start = at - at % mmap.ALLOCATIONGRANULARITY
        size = min(max(_WINDOW_BYTES, at - start + length), self._file_size - start)
        try:
            os.posix_fallocate(self._fd, start, size)
            self._map = mmap.mmap(self._fd, size, offset=start)
        except OSError as err:
            if err.errno not in _NOT_SUPPORTED | _NOT_NOW:
                raise
            self._is_supported = err.errno in _NOT_NOW
            return False
        self._start, self._stop = start, start + size
        return True
