# SPDX-License-Identifier: Apache-2.0
"""Create, write and erase files of fixed length by descriptor, and force them to the disk."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import threading
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store_core.errors import StoreFormatError, StoreReadError, StoreWriteError
from store_core.files.byte_source import missing_directory, open_to_read, open_to_write

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_AT_ONCE = 1 << 20
_ZEROS = bytes(1 << 20)
_WRITEBACK_BYTES = 1 << 16
_OPEN_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
_NOT_OPENED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_FREE_SPACE = "free space on this disk, then try again"
_MORE_FILES = "allow more open files (ulimit -n), or use larger segments, then try again"
_ADVICE = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EMFILE: _MORE_FILES,
    errno.ENFILE: _MORE_FILES,
    errno.EACCES: "let the user of this process write there",
    errno.EPERM: "let the user of this process write there",
    errno.EROFS: "mount this disk writable",
    errno.ENOENT: "restore the directory (is its disk mounted?)",
    errno.EIO: "this disk has a fault; check the system log",
}
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_ABLE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)


def write_error(err: OSError, path: str) -> StoreWriteError:
    """Return the store's error for an error of the operating system about ``path``."""
    reason = err.strerror or str(err) or type(err).__name__
    advice = _ADVICE.get(err.errno or 0)
    gone = missing_directory(path) if err.errno == errno.ENOENT else ""
    if gone:
        advice = f"restore the directory: {gone} no longer exists (is its disk mounted?)"
    return StoreWriteError(f"{reason}: {advice}" if advice else reason, path)


def is_nothing_lost(err: OSError) -> bool:
    """Return whether forcing a file failed before it began, because it could not be opened.

    After any other failure a second try proves nothing: Linux marks the pages as clean.
    """
    return err.errno in _NOT_OPENED


@contextmanager
def write_errors(path: str) -> Iterator[None]:
    """Turn an OSError raised in the block into the store's error."""
    try:
        yield
    except OSError as err:
        raise write_error(err, os.fsdecode(err.filename or path)) from err


def sync_data(fd: int) -> None:
    """Force the written data and the file's length to the disk, but no other metadata."""
    getattr(os, "fdatasync", os.fsync)(fd)  # macOS has no fdatasync


def start_writeback(fd: int, at: int, length: int) -> None:
    """Let the system begin to write a range to the disk, so that forcing it later takes less time.

    Linux does so when a range is declared not needed; unwritten pages stay in memory. Elsewhere
    nothing happens, nor for a short range, as there would be many of them.
    """
    if length >= _WRITEBACK_BYTES and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, at, length, os.POSIX_FADV_DONTNEED)


def sync_file(path: str) -> None:
    """Force everything that any process wrote to a file to the disk."""
    fd = open_to_read(path)
    try:
        sync_data(fd)
    except OSError as err:
        err.filename = path  # a descriptor has no name
        raise
    finally:
        os.close(fd)


def flush_directory(path: str) -> None:
    """Force the names in a directory to the disk."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(fd)
    except OSError as err:
        err.filename = path
        raise
    finally:
        os.close(fd)


def put_file(path: str, data: bytes) -> None:
    """Overwrite a small file and force it, and its name, to the disk; never through a link.

    Raises
    ------
    OSError
        It cannot be written.
    """
    _write_anew(path, data)
    flush_directory(os.path.dirname(os.path.abspath(path)))


def replace_file(path: str, data: bytes) -> None:
    """Replace a small file, wholly or not at all; a link there is replaced, not followed.

    Raises
    ------
    OSError
        It cannot be written.
    """
    temporary = path + ".tmp"
    _write_anew(temporary, data)
    os.replace(temporary, path)
    flush_directory(os.path.dirname(os.path.abspath(path)))


def _write_anew(path: str, data: bytes) -> None:
    fd = open_to_write(path, os.O_CREAT | os.O_TRUNC)
    try:
        write_all(fd, 0, memoryview(data))
        os.fsync(fd)
    except OSError as err:
        err.filename = path  # a descriptor has no name
        raise
    finally:
        os.close(fd)


def make_directory(path: str) -> None:
    """Make a directory and its parents, and force each new name to the disk."""
    for parent in make_unforced_directory(path):
        flush_directory(parent)


def make_unforced_directory(path: str) -> list[str]:
    """Make a directory and its parents; return those that have a new name in them, topmost first.

    A caller that makes many forces all names at the end (`flush_directory`): forcing one in between
    takes as long as all of them.
    """
    missing = []
    while not _is_directory(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        os.makedirs(directory, exist_ok=True)
    return [os.path.dirname(directory) for directory in reversed(missing)]


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):  # other errors do not answer the question
        return False


def create_file(path: str, file_size: int) -> int:
    """Create a new sparse file of this length; return its descriptor.

    Raises
    ------
    StoreWriteError
        It cannot be created; see `new_file`.
    """
    try:
        return new_file(path, file_size)
    except OSError as err:
        raise write_error(err, path) from err


def new_file(path: str, file_size: int) -> int:
    """Create a new sparse file of this length; return its descriptor.

    Where the system supports it, the file gets its name only once it has its length: a broker of
    4.x does not start on a store with a shorter file, which a kill could leave.

    Raises
    ------
    OSError
        It exists already, or cannot be created; a failed attempt leaves no file.
    """
    fd = _nameless_file(os.path.dirname(path))
    if fd < 0:
        return _named_file(path, file_size)
    try:
        os.ftruncate(fd, file_size)
        # Given any src_dir_fd, Python calls linkat, which follows the link to the nameless file.
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
    except FileExistsError:
        os.close(fd)
        raise
    except OSError:
        os.close(fd)
        return _named_file(path, file_size)  # fails likewise, unless only the link failed
    return fd


def _nameless_file(directory: str) -> int:
    """Return the descriptor of a new file without a name; -1 where that is not supported."""
    try:
        return os.open(directory, _OPEN_FLAGS | os.O_TMPFILE, 0o644)
    except (AttributeError, OSError):  # not Linux; not on this file system; no such directory
        return -1


def _named_file(path: str, file_size: int) -> int:
    fd = os.open(path, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.ftruncate(fd, file_size)
    except OSError:
        os.close(fd)
        os.unlink(path)
        raise
    return fd


def open_file(path: str, file_size: int) -> int:
    """Open a file of exactly this length to read and write; return its descriptor."""
    try:
        fd = open_to_write(path)
        try:
            length = os.fstat(fd).st_size
            if length != file_size:
                raise StoreFormatError(f"the file has {length} bytes, not {file_size}", path)
        except BaseException:
            os.close(fd)
            raise
    except OSError as err:
        raise write_error(err, path) from err
    return fd


def write_all(fd: int, at: int, view: memoryview) -> None:
    """Write all bytes at a position of the file.

    It writes pieces: for 2 MiB in one call the kernel looks for one free block as large, which took
    up to four times as long as the copy, on a virtual machine whose host has to provide the memory.
    """
    while view:
        done = os.pwrite(fd, view[:_MOST_AT_ONCE], at)
        view, at = view[done:], at + done


def fill_with_zeros(fd: int, file_size: int, sync_bytes: int | None) -> None:
    """Fill the file with zeros; force them every ``sync_bytes``, not at all if None."""
    done = synced = 0
    while done < file_size:
        zeros = memoryview(_ZEROS)[: file_size - done]
        write_all(fd, done, zeros)
        done += len(zeros)
        if sync_bytes is not None and (done - synced >= sync_bytes or done == file_size):
            sync_data(fd)
            synced = done


def erase(fd: int, position: int, file_size: int) -> bool:
    """Overwrite nonzero bytes from a position on with zeros; return whether there were any.

    Holes stay holes, and a file with only zeros there is not changed.
    """
    erased = False
    for start, stop in data_extents(fd, file_size, position):
        position = start
        while position < stop:
            zeros = _ZEROS[: stop - position]
            if os.pread(fd, len(zeros), position) != zeros:
                write_all(fd, position, memoryview(zeros))
                erased = True
            position += len(zeros)
    return erased


def data_extents(fd: int, file_size: int, position: int = 0) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of each range of data from a position on; the rest are holes."""
    while position < file_size:
        start = _next_of(fd, position, "SEEK_DATA", file_size)
        position = _next_of(fd, start, "SEEK_HOLE", file_size)
        if start < position:
            yield start, position


def _next_of(fd: int, position: int, whence: str, file_size: int) -> int:
    """Return where the next data or hole begins; all is data if the system does not know."""
    if position >= file_size:
        return file_size
    try:
        return os.lseek(fd, position, getattr(os, whence))
    except AttributeError:
        return position if whence == "SEEK_DATA" else file_size
    except OSError as err:
        if err.errno == errno.ENXIO:  # only a hole follows
            return file_size
        if err.errno == errno.EINVAL:  # the filesystem does not know
            return position if whence == "SEEK_DATA" else file_size
        raise


def put_in_place(new: str, target: str, aside: str) -> None:
    """Rename ``new`` to ``target``, and an existing ``target`` to ``aside``.

    All three are on one filesystem; ``aside`` does not exist. On Linux the two directories change
    places in one step. Elsewhere there is a moment without ``target``: see `restore`.

    Raises
    ------
    OSError
        A rename failed; the old directory is at ``target`` or at ``aside``.
    """
    if not os.path.lexists(target):
        os.rename(new, target)
    elif exchange(new, target):
        os.rename(new, aside)
    else:
        os.rename(target, aside)
        os.rename(new, target)
    _flush_parents(new, target, aside)


def take_away(target: str, aside: str) -> None:
    """Rename ``target``, if it exists, to ``aside``."""
    if os.path.lexists(target):
        os.rename(target, aside)
        _flush_parents(target, aside)


def restore(target: str, aside: str) -> bool:
    """Undo a killed `put_in_place`: rename ``aside`` to ``target``, if only ``aside`` exists."""
    if os.path.lexists(target) or not os.path.lexists(aside):
        return False
    os.rename(aside, target)
    _flush_parents(target, aside)
    return True


def remove_tree(path: str) -> None:
    """Delete a directory and everything in it, if it exists."""
    if os.path.lexists(path):
        shutil.rmtree(path)


def exchange(first: str, second: str) -> bool:
    """Exchange the names of two directories in one step; False if the system cannot do that.

    Raises
    ------
    OSError
        The system can, but the call failed.
    """
    call = _renameat2()
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_ABLE:
        return False
    raise OSError(number, os.strerror(number), first)


@lru_cache(maxsize=1)
def _renameat2() -> Any:
    """Return the C library's ``renameat2`` (Linux, glibc 2.28), or None."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        path, number = ctypes.c_char_p, ctypes.c_int
        call.argtypes = (number, path, number, path, ctypes.c_uint)
        call.restype = number
    return call


def _flush_parents(*paths: str) -> None:
    for parent in sorted({os.path.dirname(path) for path in paths}):
        flush_directory(parent)


class RewrittenFile:
    """A file whose beginning is rewritten; the bytes that count are in one sector of the disk.

    So no power failure mixes old bytes with new ones.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._written: bytes | None = None
        self._lock = threading.Lock()

    def read(self, most: int) -> bytes:
        """Return the first ``most`` bytes, or all the file has; empty if there is no file.

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
        """Write all bytes and force them to the disk, unless the last `write` wrote the same.

        Raises
        ------
        StoreWriteError
            The file cannot be created or written.
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
            with suppress(OSError):  # the data was forced to the disk before
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
