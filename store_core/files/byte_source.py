# SPDX-License-Identifier: Apache-2.0
"""Files opened for reading; local ones are mapped and must be regular."""

from __future__ import annotations

import errno
import mmap
import os
import stat as stat_mode
from abc import ABC, abstractmethod
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from store_core.errors import (
    FileVanishedError,
    OffsetOutOfRangeError,
    StorePermissionError,
    StoreReadError,
)
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

_FIRST_BYTES = 1 << 12  # usually enough, and read without a map
_CHUNK_BYTES = 4 << 20
_KINDS = {
    stat_mode.S_IFDIR: "a directory",
    stat_mode.S_IFIFO: "a FIFO",
    stat_mode.S_IFSOCK: "a socket",
    stat_mode.S_IFCHR: "a device",
    stat_mode.S_IFBLK: "a device",
}
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NOT_REGULAR = errno.EINVAL
SMALL_FILE_BYTES = 512 << 20
"""Most bytes of a file that is read whole, such as ``topics.json``; brokers write far fewer."""


def read_error(err: OSError, path: str) -> StoreReadError:
    """Return the store's error for an error of the operating system about ``path``."""
    kind: type[StoreReadError] = StoreReadError
    reason = err.strerror or str(err) or type(err).__name__
    if isinstance(err, PermissionError):
        kind = StorePermissionError
    elif isinstance(err, FileNotFoundError):
        kind = FileVanishedError
        gone = missing_directory(path)
        reason += f": {gone} no longer exists" if gone else ""
    return kind(reason, path)


class ByteSource(Closing, ABC):
    """One read-only file of fixed size; a context manager."""

    path: str
    size: int
    is_local: ClassVar[bool] = False

    @abstractmethod
    def read_at(self, start: int, length: int) -> bytes:
        """Return the bytes ``[start, start + length)``; fewer only where the file ends.

        Raises
        ------
        StoreReadError
            The operating system could not read.
        OffsetOutOfRangeError
            ``start`` or ``length`` is negative.
        """

    def view(self, start: int, length: int) -> npt.NDArray[np.uint8]:
        """Return a read-only array of those bytes of ``[start, start + length)`` that exist.

        For a local file it is a view of a map, not a copy: drop it before ``close``.
        """
        return np.frombuffer(self.read_at(start, length), np.uint8)

    def gather(self, starts: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
        """Copy ``width`` bytes from each of ``starts``: an array of shape ``(len(starts), width)``.

        Raises
        ------
        OffsetOutOfRangeError
            A piece is not inside the file.
        """
        if len(starts) == 0:
            return np.empty((0, width), np.uint8)
        if int(starts.min()) < 0 or int(starts.max()) > self.size - width:
            text = (
                f"{self.path}: pieces of {width} bytes reach outside the file of {self.size} bytes"
            )
            raise OffsetOutOfRangeError(text)
        return self._gather(starts, width)

    @abstractmethod
    def _gather(self, starts: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
        """Do as `gather`; there is at least one piece, and all are inside the file."""

    def views(self, ranges: Sequence[tuple[int, int]]) -> list[npt.NDArray[np.uint8]]:
        """Return the `view` of each range, given as ``(start, length)``."""
        return [self.view(start, length) for start, length in ranges]

    def read_ahead(self, start: int, stop: int) -> None:  # a hint, not a duty
        """Prepare for views of ``[start, stop)`` from front to back."""

    def check_unchanged(self) -> None:  # an open file stays the same one
        """Raise `StoreReadError` if the file is not the one that was listed."""

    def forget(self, start: int, length: int) -> None:  # a hint, not a duty
        """Release this process's memory of a range that was scanned."""

    def next_data(self, start: int) -> int:
        """Return the first position at or after ``start`` that may be nonzero, else ``size``.

        A filesystem knows the holes of a sparse file without reading them.
        """
        return min(start, self.size)

    def next_hole(self, start: int) -> int:
        """Return the first position at or after ``start`` without a disk block, else ``size``.

        Only a hint where to look: filesystems may not report holes, or report them late.
        """
        return max(start, self.size)

    def note_zeros(self, start: int) -> None:  # a hint, not a duty
        """Remember that there are only zeros from ``start`` on, if finding out was costly."""

    @abstractmethod
    def close(self) -> None:
        """Release the file; views that are still alive stay valid."""

    def _clip(self, start: int, length: int) -> tuple[int, int]:
        """Return ``start, stop``, clipped to the file."""
        if start < 0 or length < 0:
            text = f"{self.path}: invalid range of bytes: [{start}, {start} + {length})"
            raise OffsetOutOfRangeError(text)
        return min(start, self.size), min(start + length, self.size)


class LocalByteSource(ByteSource):
    """A file of this machine: ``pread`` for small reads, one lazily made map for views.

    If another process truncates the file while it is mapped, this process ends (SIGBUS), as a
    broker does; brokers never truncate segments, they delete them whole.
    """

    is_local = True

    def __init__(self, path: str) -> None:
        self.path = path
        self._map: mmap.mmap | None = None
        self._bytes: npt.NDArray[np.uint8] | None = None
        try:
            # A file object closes itself if the caller forgets to.
            self._file = FileIO(open_to_read(path))
        except OSError as err:
            raise read_error(err, path) from err
        try:
            self.size = os.fstat(self._fd).st_size
        except OSError as err:
            self.close()
            raise read_error(err, path) from err

    @property
    def _fd(self) -> int:
        if self._file.closed:
            raise StoreReadError("was closed", self.path)
        return self._file.fileno()

    def read_at(self, start: int, length: int) -> bytes:
        """Return bytes of the file; see ``ByteSource``."""
        start, stop = self._clip(start, length)
        pieces = []
        while start < stop:  # one pread returns at most 2 GiB - 4 KiB on Linux
            try:
                piece = os.pread(self._fd, stop - start, start)
            except OSError as err:
                raise read_error(err, self.path) from err
            if not piece:
                break
            pieces.append(piece)
            start += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def view(self, start: int, length: int) -> npt.NDArray[np.uint8]:
        """Return a view of the map; see ``ByteSource``."""
        start, stop = self._clip(start, length)
        return self._mapped()[start:stop]

    def _mapped(self) -> npt.NDArray[np.uint8]:
        if self._bytes is None:
            if self.size == 0:  # an empty file cannot be mapped
                return np.empty(0, np.uint8)
            try:
                self._map = mmap.mmap(self._fd, self.size, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as err:  # ValueError: the file became shorter
                raise StoreReadError(f"cannot be mapped: {err}", self.path) from err
            self._bytes = np.frombuffer(self._map, np.uint8)
        return self._bytes

    def _gather(self, starts: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
        return sliding_window_view(self._mapped(), width)[starts]

    def next_data(self, start: int) -> int:
        """Ask the filesystem for the next byte that is not in a hole."""
        if start >= self.size:
            return self.size
        try:
            return os.lseek(self._fd, start, os.SEEK_DATA)
        except OSError as err:
            return self.size if err.errno == errno.ENXIO else start  # ENXIO: only a hole follows

    def next_hole(self, start: int) -> int:
        """Ask the filesystem for the next byte that is in a hole."""
        try:
            return os.lseek(self._fd, start, os.SEEK_HOLE)
        except OSError:
            return max(start, self.size)

    def forget(self, start: int, length: int) -> None:
        """Drop whole pages from the process; they stay in the system's cache."""
        start, stop = self._clip(start, length)
        if self._map is None or not hasattr(mmap, "MADV_DONTNEED"):
            return
        page = mmap.PAGESIZE
        start = -(-start // page) * page
        stop = stop if stop == self.size else stop // page * page
        if start < stop:
            self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def close(self) -> None:
        """Close the descriptor and, unless views are alive, the map."""
        self._file.close()
        self._bytes = None
        if self._map is not None:
            # BufferError: a view is alive; the map lives as long as the view.
            with suppress(BufferError):
                self._map.close()
            self._map = None


# Holes of a sparse file are not read.
def first_nonzero(source: ByteSource, start: int = 0, stop: int | None = None) -> int:
    """Return the position of the first nonzero byte in ``[start, stop)``; -1 if there is none.

    ``stop`` is clipped to the file's size.
    """
    stop = source.size if stop is None else min(stop, source.size)
    found = _first_nonzero(source, start, stop)
    if found < 0 and stop == source.size:
        source.note_zeros(start)
    return found


def _first_nonzero(source: ByteSource, start: int, stop: int) -> int:
    at = source.next_data(start)
    if at < stop:
        head = np.frombuffer(source.read_at(at, min(_FIRST_BYTES, stop - at)), np.uint8)
        if head.any():
            return at + int(np.argmax(head != 0))
        at = source.next_data(at + _FIRST_BYTES)
        if stop - at > _CHUNK_BYTES:
            source.read_ahead(at, stop)
    while at < stop:
        chunk = source.view(at, min(_CHUNK_BYTES, stop - at))
        found = int(np.argmax(chunk != 0)) if _is_any_set(chunk) else -1
        source.forget(at, len(chunk))
        if found >= 0:
            return at + found
        at = source.next_data(at + _CHUNK_BYTES)
    source.read_ahead(stop, stop)  # ends reading ahead
    return -1


def last_nonzero(source: ByteSource, start: int = 0, stop: int | None = None) -> int:
    """Return the position of the last nonzero byte in ``[start, stop)``; -1 if there is none.

    ``stop`` is clipped to the file's size.
    """
    stop = source.size if stop is None else min(stop, source.size)
    while stop > start:
        low = max(start, stop - _CHUNK_BYTES)
        at = source.next_data(low)
        if at < stop:
            # "!= 0" copies: numpy counts first, and fails if a broker has written more since.
            filled = np.flatnonzero(source.view(at, stop - at) != 0)
            source.forget(at, stop - at)
            if len(filled):
                return at + int(filled[-1])
        stop = low
    return -1


def _is_any_set(data: npt.NDArray[np.uint8]) -> bool:
    words = len(data) // 8 * 8  # eight bytes per step take a tenth of the time
    return bool(data[:words].view(np.uint64).any() or data[words:].any())


# Opening a FIFO waits for a process at its other end, and reading a terminal or a device may never
# end; a store that came from elsewhere can contain one in place of any file.
def missing_directory(path: str) -> str:
    """Return the topmost missing directory above a path; empty if none is missing."""
    return next((str(above) for above in reversed(Path(path).parents) if not above.is_dir()), "")


def open_to_read(path: str) -> int:
    """Open a regular file, following links, and return its descriptor.

    Raises
    ------
    OSError
        It cannot be opened, or is not a regular file; the text says what it is.
    """
    return _open_regular(path, os.O_RDONLY, 0, _allow)


def open_to_write(path: str, flags: int = 0) -> int:
    """Open a regular file to read and write, never through a link; return its descriptor.

    A file with several names is refused: a copy made with ``cp -al`` or ``rsync --link-dest``
    shares it, and would change with it.

    Raises
    ------
    OSError
        It cannot be opened, is a link, has other names, or is not a regular file; the text says
        what it is.
    """
    try:
        return _open_regular(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o644, refuse_other_names)
    except OSError:
        refuse_link(path)
        raise


def read_file(path: str) -> bytes:
    """Return the content of a small regular file; OSError as in `open_to_read`, or if too large."""
    with os.fdopen(open_to_read(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > SMALL_FILE_BYTES:
            raise OSError(errno.EFBIG, too_large(size), path)
        return file.read(SMALL_FILE_BYTES)


def too_large(size: int) -> str:
    """Return the error text for a file that should be small and is not."""
    return (
        f"{size} bytes long; such a file has at most {SMALL_FILE_BYTES}. It is damaged: restore "
        "it, or move it out of the store"
    )


def check_regular(path: str) -> None:
    """Raise OSError if ``path`` is not a regular file, for libraries that open files themselves."""
    os.close(open_to_read(path))


def refuse_link(path: str) -> None:
    """Raise OSError if ``path`` is a link, whatever it leads to."""
    if Path(path).is_symlink():
        text = (
            f"is a link to {Path(path).readlink()}; the store does not write through links to "
            "files: put the file itself there"
        )
        raise OSError(errno.ELOOP, text, path)


def refuse_other_names(path: str, found: os.stat_result) -> None:
    """Raise OSError if a file has other names (hard links), which a write would change too."""
    if stat_mode.S_ISREG(found.st_mode) and found.st_nlink > 1:
        text = (
            f"has {found.st_nlink} names (hard links): a write here would also change a file "
            "elsewhere, such as a backup. Copy the store (cp -a) and use the copy"
        )
        raise OSError(errno.EMLINK, text, path)


def kind_of_file(mode: int) -> str:
    """Return what a ``stat`` mode stands for; '' for a regular file."""
    return "" if stat_mode.S_ISREG(mode) else _KINDS.get(stat_mode.S_IFMT(mode), "a special file")


def _open_regular(
    path: str, flags: int, permissions: int, refuse: Callable[[str, os.stat_result], None]
) -> int:
    # Checked first, as merely opening affects a few devices (a tape is rewound), and may truncate
    # the file.
    found = _stat(path)
    if found is not None:
        _refuse_kind(path, found.st_mode)
        refuse(path, found)
    fd = os.open(path, flags | _FLAGS, permissions)
    try:
        found = os.fstat(fd)
        _refuse_kind(path, found.st_mode)
        refuse(path, found)
    except OSError as err:
        os.close(fd)
        err.filename = path  # a descriptor has no name
        raise
    return fd


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:  # opening it reports why, or creates it
        return None
    except ValueError as err:
        raise OSError(_NOT_REGULAR, "is not a path: it contains a NUL", path) from err


def _allow(path: str, found: os.stat_result) -> None:
    """Allow reading a file whatever its names."""


def _refuse_kind(path: str, mode: int) -> None:
    kind = kind_of_file(mode)
    if kind:
        raise OSError(_NOT_REGULAR, f"is {kind}, where a regular file was expected", path)
