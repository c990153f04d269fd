# SPDX-License-Identifier: Apache-2.0
"""One writable segment: a file of fixed length that is filled from its beginning.

Source: RocketMQ ``DefaultMappedFile``, ``ReferenceResource`` (release 5.3.3).
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from store_core.errors import StoreReadError, StoreWriteError
from store_core.files.file_writing import (
    create_file,
    erase,
    fill_with_zeros,
    flush_directory,
    is_nothing_lost,
    open_file,
    start_writeback,
    sync_data,
    write_all,
    write_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

OS_PAGE_BYTES = 4096
_MOST_IN_MEMORY_BYTES = 16 << 10  # larger writes are worth the system call
_WINDOW_BYTES = 4 << 20
_ZEROS = memoryview(bytes(256 << 10))  # at most so many extra bytes are forced to the disk
HEAD_BYTES = 8
"""First bytes of a record, written last: they are zeros until the rest is there."""
_NOT_SUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV}
_NOT_NOW = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}  # a map needs a descriptor


class RefCountedMap:
    """The map of a file, with a count of its users in any thread.

    Parameters
    ----------
    fd
        The file's open descriptor; closed with the map, which is made on first use.
    """

    def __init__(self, path: str, file_size: int, fd: int) -> None:
        self.path, self.file_size = path, file_size
        self._fd = fd
        self._map: mmap.mmap | None = None
        self._bytes: npt.NDArray[np.uint8] | None = None
        self._holds, self._available = 0, True
        self._lock = threading.Lock()

    @property
    def is_available(self) -> bool:
        """Whether the file is not closed."""
        return self._available

    @property
    def is_held(self) -> bool:
        """Whether a reader holds the map."""
        return self._holds > 0

    def hold(self) -> bool:
        """Keep the map until `release`; False if the file was closed."""
        with self._lock:
            if self._available:
                self._holds += 1
            return self._available

    def release(self) -> None:
        """End a hold; the last one of a closed file unmaps it."""
        with self._lock:
            self._holds -= 1
            if not self._available and self._holds == 0:
                self._unmap()

    def close(self) -> None:
        """Refuse new holds, and unmap now or on the last release. Flushes nothing."""
        with self._lock:
            if self._available:
                self._available = False
                if self._holds == 0:
                    self._unmap()

    def descriptor(self) -> int:
        """Return the open descriptor; callers that may race with `close` need a hold."""
        if self._fd < 0:
            raise StoreWriteError("was closed", self.path)
        return self._fd

    def mapped(self) -> npt.NDArray[np.uint8]:
        """Return the whole file as a read-only array; the caller needs a hold."""
        with self._lock:
            if self._bytes is None:
                try:
                    self._map = mmap.mmap(self._fd, self.file_size, access=mmap.ACCESS_READ)
                except (OSError, ValueError) as err:  # ValueError: the file became shorter
                    raise StoreReadError(f"cannot be mapped: {err}", self.path) from err
                self._bytes = np.frombuffer(self._map, np.uint8)
            return self._bytes

    def _unmap(self) -> None:
        self._bytes = None
        if self._map is not None:
            # BufferError: a view outlived its hold; the map lives as long as the view.
            with suppress(BufferError):
                self._map.close()
            self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class WritableMap(RefCountedMap):
    """Writes large blocks through the descriptor, small ones in memory.

    Writes in memory need reserved disk blocks (`ReservedWindow`); all reads go through a map.
    RocketMQ writes sparse files through a map: there a full disk ends the process (SIGBUS).

    Parameters
    ----------
    file_size
        Its length in bytes.

    Raises
    ------
    StoreWriteError
        The file cannot be created or opened.
    StoreFormatError
        It has another length.
    """

    def __init__(self, path: str, file_size: int, *, create: bool) -> None:
        fd = create_file(path, file_size) if create else open_file(path, file_size)
        super().__init__(path, file_size, fd)
        self._window = ReservedWindow(fd, file_size)

    def _write(self, at: int, data: Any) -> None:
        """Write any buffer of single bytes, its first eight last if it spans several pages.

        The kernel notices a kill only between pages. So no half record with a good beginning
        remains, whose cut properties recovery could not detect.
        """
        try:
            if len(data) > _MOST_IN_MEMORY_BYTES or not self._window.write(at, data):
                _write_through(self.descriptor(), at, memoryview(data))
        except OSError as err:
            with suppress(OSError):  # the first error is raised; recovery erases the rest
                erase(self.descriptor(), at, self.file_size)
            raise write_error(err, self.path) from err

    def _fill_with_zeros(self, sync_bytes: int | None) -> None:
        """Fill the file with zeros; force them every ``sync_bytes``, not at all if None."""
        try:
            fill_with_zeros(self.descriptor(), self.file_size, sync_bytes)
        except OSError as err:
            raise write_error(err, self.path) from err

    def _erase(self, position: int) -> None:
        """Zero everything from a position on, on the disk too. Holes stay holes."""
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

    A ``pwrite`` lets other Python threads run, and waits for them: with a busy reader thread, a put
    took 70 µs instead of 10. RocketMQ maps its files too, but a mapped sparse file ends the process
    when the disk is full (SIGBUS). So blocks are reserved before they are written to, and a full
    disk stays an ordinary error. The first touch of a page through the map costs the file system
    2 to 10 µs; if a system call has filled it with zeros, among many others, it costs 1.
    """

    def __init__(self, fd: int, file_size: int) -> None:
        self._fd, self._file_size = fd, file_size
        self._map: Any = None
        self._start = self._stop = self._ready = 0
        self._is_supported = hasattr(os, "posix_fallocate")

    def write(self, at: int, data: Any) -> bool:
        """Write data, its first eight bytes last; False if no blocks can be reserved and mapped.

        Parameters
        ----------
        data
            Any short buffer of single bytes: slicing may copy it (faster than a view).

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
        """Unmap for good; written bytes stay written."""
        self._is_supported = False
        self._unmap()

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
        self._start = self._stop = self._ready = 0

    def _prepare(self, at: int, stop: int) -> bool:
        """Map the range, and fill it and some bytes after it with zeros; it has no data yet."""
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


class MappedFile(WritableMap):
    """A segment of a queue of files, named after the offset of its first byte.

    One thread at a time appends; any number read the bytes before ``readable_position``.

    Parameters
    ----------
    path
        The file; its name is the offset of its first byte.
    file_size
        Its length in bytes.
    write_buffer
        Writable memory of ``file_size`` bytes: appended bytes wait there for `commit`.
    give_back
        Called with the write buffer when the whole file is committed, or was closed.

    Attributes
    ----------
    store_timestamp
        Store time (ms) of the last appended message; 0 until the appender sets it.

    Raises
    ------
    StoreWriteError
        The file cannot be created or opened.
    StoreFormatError
        It has another length.
    """

    def __init__(
        self,
        path: str,
        file_size: int,
        *,
        create: bool = False,
        write_buffer: memoryview | None = None,
        give_back: Callable[[memoryview], None] | None = None,
    ) -> None:
        self.file_from_offset = int(os.path.basename(path))
        self.store_timestamp = self._committed_timestamp = 0
        self._buffer, self._give_back = write_buffer, give_back
        self._flush_failure: StoreWriteError | None = None
        self._is_destroyed = False
        self._directory_is_flushed = False  # it may not have been before a crash, either
        super().__init__(path, file_size, create=create)
        position = 0 if create else file_size
        self.wrote_position = self.committed_position = self.flushed_position = position
        self._data_end = position  # from here to the wrote position nothing was written
        self.closed_at = file_size

    @property
    def end_offset(self) -> int:
        """Offset after the last byte of the file."""
        return self.file_from_offset + self.file_size

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be appended."""
        return self.wrote_position == self.file_size

    @property
    def readable_position(self) -> int:
        """End of the bytes that readers may see."""
        return self.committed_position

    @property
    def flushable_timestamp(self) -> int:
        """Store time (ms) of the last message that `flush` would force to the disk, or earlier.

        RocketMQ uses that of the last appended message, which may still be in the write buffer.
        """
        return self.store_timestamp if self._buffer is None else self._committed_timestamp

    def append(self, data: Any) -> int:
        """Append bytes (any buffer of single bytes) and return their position in the file.

        A process that is killed meanwhile leaves either all of them or zeros in the first eight.

        Raises
        ------
        ValueError
            They do not fit.
        StoreWriteError
            They cannot be written; nothing was appended.
        """
        at = self.wrote_position
        stop = at + len(data)
        if stop > self.file_size:
            raise ValueError(
                f"{len(data)} bytes do not fit at position {at} of a file of {self.file_size} bytes"
            )
        buffer = self._buffer
        if buffer is None:
            self._write(at, data)
        else:
            buffer[at:stop] = data
        self._data_end = stop  # before the wrote position, up to which another thread commits
        self.wrote_position = stop
        if buffer is None:
            self.committed_position = stop
        return at

    def append_last(self, data: Any) -> int:
        """Append bytes and declare the file full; the bytes after them stay unchanged."""
        self.closed_at = at = self.wrote_position  # before other threads see that it is full
        self.append(data)
        self.wrote_position = self.file_size
        if self._buffer is None:
            self.committed_position = self.file_size
        return at

    def commit(self, least_pages: int = 0) -> int:
        """Write the pending bytes of the write buffer; return the committed position.

        Parameters
        ----------
        least_pages
            Do nothing for fewer pages, unless the file is full.
        """
        stamp = self.store_timestamp  # read before the position, as it is set after it
        done, stop = self.committed_position, self.wrote_position
        if self._buffer is None or not self._is_worth(done, stop, least_pages) or not self.hold():
            return done
        try:
            if done < self._data_end:
                self._write(done, self._buffer[done : self._data_end])
            self._committed_timestamp = stamp
            self.committed_position = stop
            if stop == self.file_size:
                self._drop_buffer()
        finally:
            self.release()
        return stop

    def start_writeback(self, at: int) -> None:
        """Let the system begin to write the bytes from a position on to the disk; `flush` waits."""
        start_writeback(self.descriptor(), at, self.committed_position - at)

    def flush(self, least_pages: int = 0) -> int:
        """Force committed bytes to the disk; return the flushed position.

        The first call also forces the directory: otherwise a power failure could lose the file.

        Raises
        ------
        StoreWriteError
            It failed, now or before: Linux marks pages that it failed to write as clean, so a
            second try could succeed and mean nothing. Only opening the file again helps.
        """
        stop = self.committed_position
        if not self._is_worth(self.flushed_position, stop, least_pages) or not self.hold():
            return self.flushed_position
        try:
            if self._flush_failure is not None:
                raise StoreWriteError(self._flush_failure.reason, self.path)
            sync_data(self.descriptor())
            # In this order: `destroy` marks the file before it deletes it.
            if os.fstat(self.descriptor()).st_nlink == 0 and not self._is_destroyed:
                raise FileNotFoundError(errno.ENOENT, "it was deleted while it was in use")
            if not self._directory_is_flushed:
                flush_directory(os.path.dirname(self.path))
                self._directory_is_flushed = True
            self.flushed_position = stop
        except OSError as err:
            failure = write_error(err, self.path)
            if not is_nothing_lost(err):  # nothing is, if only the directory could not be opened
                self._flush_failure = failure
            raise failure from err
        finally:
            self.release()
        return stop

    def warm_up(self, sync_bytes: int | None) -> None:
        """Fill a new file with zeros, so that its blocks exist before the appends.

        A disk that is too small then shows now, and forcing data changes no metadata. RocketMQ
        also locks its map into memory, which this does not.

        Parameters
        ----------
        sync_bytes
            Force them to the disk every so many bytes; not at all if None.
        """
        if self.wrote_position:
            raise ValueError(f"{self.path}: {self.wrote_position} bytes were already appended")
        self._fill_with_zeros(sync_bytes)

    def truncate(self, position: int) -> None:
        """Cut the data at ``position`` and erase the bytes after it, on the disk too.

        RocketMQ only moves the positions; old records after them reappear when an append ends where
        one of them begins. Holes stay holes.
        """
        if not 0 <= position <= self.file_size:
            raise ValueError(f"position {position} is outside the file of {self.file_size} bytes")
        self._erase(position)
        if self._buffer is not None:
            self._buffer[position:] = bytes(self.file_size - position)
        self.wrote_position = self.committed_position = self.flushed_position = position
        self._data_end, self.closed_at = position, self.file_size

    @contextmanager
    def select(
        self, position: int, length: int | None = None
    ) -> Iterator[npt.NDArray[np.uint8] | None]:
        """Lend a read-only view of ``[position, position + length)``; default: all readable.

        The caller copies data that must outlive the ``with`` block. None if the file was closed or
        not all of the bytes are readable.
        """
        stop = self.readable_position if length is None else position + length
        if not 0 <= position <= stop <= self.readable_position or not self.hold():
            yield None
            return
        try:
            yield self.mapped()[position:stop]
        finally:
            self.release()

    def modified_ms(self) -> int:
        """Return the time of the last modification, ms since the epoch."""
        try:
            return os.stat(self.path).st_mtime_ns // 1_000_000
        except OSError as err:
            raise StoreReadError(err.strerror or str(err), self.path) from err

    def retire(self) -> None:
        """Close a file that will be destroyed."""
        self._is_destroyed = True
        self.close()

    def destroy(self) -> None:
        """Close and delete the file; readers with a hold go on reading.

        The directory is forced to the disk: a segment that came back would make a hole in the log.
        """
        self._is_destroyed = True  # first, as a flush may be running
        try:
            os.unlink(self.path)
            flush_directory(os.path.dirname(self.path))
        except FileNotFoundError:
            pass
        except OSError as err:
            raise write_error(err, self.path) from err
        self.close()

    def _unmap(self) -> None:
        super()._unmap()
        self._drop_buffer()

    def _drop_buffer(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None and self._give_back is not None:
            self._give_back(buffer)

    def _is_worth(self, done: int, stop: int, least_pages: int) -> bool:
        if self.is_full or least_pages == 0:
            return stop > done
        return stop // OS_PAGE_BYTES - done // OS_PAGE_BYTES >= least_pages
