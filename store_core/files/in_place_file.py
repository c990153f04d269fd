"""A small file that is written again and again, in place."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from store_core.errors import StoreReadError
from store_core.files.file_writing import (
    flush_directory,
    make_directory,
    sync_data,
    write_all,
    write_error,
)
from store_core.files.regular_file import open_to_read, open_to_write


class RewrittenFile:
    """Bytes at the beginning of a file; what counts of them lies in one sector of the disk.

    So no power failure mixes old ones with new ones.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._written: bytes | None = None
        self._lock = threading.Lock()

    def read(self, most: int) -> bytes:
        """Return so many bytes of the file, or what it has; empty where there is none.

        Raises
        ------
        StoreReadError
            It cannot be read.
        """
        try:
            fd = open_to_read(self.path)
            try:
                return os.pread(fd, most, 0)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return b""
        except OSError as err:
            raise StoreReadError(err.strerror or str(err), self.path) from err

    def write(self, data: bytes) -> None:
        """Write all bytes and force them to the disk; nothing is done where they are there.

        Raises
        ------
        StoreWriteError
            The file cannot be made or written.
        """
        with self._lock:
            if data == self._written:
                return
            try:
                self._write(data)
            except OSError as err:
                self._close()
                raise write_error(err, self.path) from err
            self._written = data

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):  # what counts was forced to the disk before
                os.close(self._fd)
        self._fd, self._written = -1, None

    def _write(self, data: bytes) -> None:
        directory, is_open = str(Path(self.path).absolute().parent), self._fd >= 0
        if not is_open:
            make_directory(directory)
            self._fd = open_to_write(self.path, os.O_CREAT)
        write_all(self._fd, 0, memoryview(data))
        sync_data(self._fd)
        if not is_open:
            flush_directory(directory)
