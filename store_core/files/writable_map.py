"""A held file of fixed length that is written in place.

Source: RocketMQ ``DefaultMappedFile`` (release 5.3.3).
"""

from __future__ import annotations

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
from store_core.files.reserved_window import HEAD_BYTES, ReservedWindow

OS_PAGE_BYTES = 4096
_MOST_IN_MEMORY_BYTES = 16 << 10  # larger ones are worth the system call


class WritableMap(RefCountedMap):
    """Writes large blocks through the descriptor, small ones in memory.

    The latter where blocks of the disk are reserved (`ReservedWindow`); all is read through a map.
    RocketMQ writes sparse files through a map: there a full disk ends the process (SIGBUS).

    Parameters
    ----------
    path
        The file.
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
