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
    sync_data,
    write_all,
    write_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

OS_PAGE_BYTES = 4096
_MOST_IN_MEMORY_BYTES = 16 << 10  # larger ones are worth the system call
_WINDOW_BYTES = 4 << 20
_ZEROS = memoryview(bytes(256 << 10))  # so much more than is needed is forced to the disk
HEAD_BYTES = 8
"""What is written last: zeros until all that follows is there."""
_NOT_SUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV}
_NOT_NOW = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}  # a map takes a descriptor


class RefCountedMap:
    """Counts who uses a file, from any thread.

    Parameters
    ----------
    fd
        Its open descriptor; closed with the map, which is made at the first use.
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
        """Not closed."""
        return self._available

    @property
    def is_held(self) -> bool:
        """Whether a reader holds the map."""
        return self._holds > 0

    def hold(self) -> bool:
        """Keep the map until `release`; False when the file was closed."""
        with self._lock:
            if self._available:
                self._holds += 1
            return self._available

    def release(self) -> None:
        """Give a hold back; the last one of a closed file unmaps it."""
        with self._lock:
            self._holds -= 1
            if not self._available and self._holds == 0:
                self._unmap()

    def close(self) -> None:
        """Close for new holds; unmapped at once or with the last release. Flushes nothing."""
        with self._lock:
            if self._available:
                self._available = False
                if self._holds == 0:
                    self._unmap()

    def descriptor(self) -> int:
        """Return the open descriptor; writers do not race with `close`, others hold."""
        if self._fd < 0:
            raise StoreWriteError("was closed", self.path)
        return self._fd

    def mapped(self) -> npt.NDArray[np.uint8]:
        """Return the whole file as a read-only array; only while held."""
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
            # BufferError: a view outlived its hold; the map lives as long, then it is collected.
            with suppress(BufferError):
                self._map.close()
            self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class WritableMap(RefCountedMap):
    """Writes large blocks through the descriptor, small ones in memory.

    The latter where blocks of the disk are reserved (`ReservedWindow`); all is read through a map.
    RocketMQ writes sparse files through a map: there a full disk ends the process (SIGBUS).

    Parameters
    ----------
    file_size
        Its length in bytes.

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


class MappedFile(WritableMap):
    """A segment of a queue of files, named by the offset of its first byte.

    One thread at a time appends; any number read what lies before ``readable_position``.

    Parameters
    ----------
    path
        The file; its name is the offset of its first byte.
    file_size
        Its length in bytes.
    write_buffer
        Writable memory of ``file_size`` bytes: appended bytes wait there for `commit`.
    give_back
        Gets the write buffer when all of the file is committed, or when it was closed.

    Attributes
    ----------
    store_timestamp
        Store time (ms) of the last appended message; 0 until the appender says it.

    Raises
    ------
    StoreWriteError
        The file cannot be made or opened.
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
        self._directory_is_flushed = False  # nor may it have been, before a crash
        super().__init__(path, file_size, create=create)
        position = 0 if create else file_size
        self.wrote_position = self.committed_position = self.flushed_position = position
        self._data_end = position  # after it nothing was written, up to the wrote position
        self.closed_at = file_size

    @property
    def end_offset(self) -> int:
        """Offset after the last byte of the file."""
        return self.file_from_offset + self.file_size

    @property
    def is_full(self) -> bool:
        """Nothing more can be appended."""
        return self.wrote_position == self.file_size

    @property
    def readable_position(self) -> int:
        """End of what readers may see."""
        return self.committed_position

    @property
    def flushable_timestamp(self) -> int:
        """Store time (ms) of the last message that `flush` would force to the disk; maybe less.

        RocketMQ takes that of the last appended one, which may wait in the write buffer still.
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
            Nothing was appended.
        """
        at = self.wrote_position
        stop = at + len(data)
        if stop > self.file_size:
            raise ValueError(f"{len(data)} bytes do not fit at {at} of {self.file_size}")
        buffer = self._buffer
        if buffer is None:
            self._write(at, data)
        else:
            buffer[at:stop] = data
        self._data_end = stop  # before the wrote position: another thread commits up to that
        self.wrote_position = stop
        if buffer is None:
            self.committed_position = stop
        return at

    def append_last(self, data: Any) -> int:
        """Append bytes and declare the file full; what lies after them stays as it is."""
        self.closed_at = at = self.wrote_position  # before anybody can see that it is full
        self.append(data)
        self.wrote_position = self.file_size
        if self._buffer is None:
            self.committed_position = self.file_size
        return at

    def commit(self, least_pages: int = 0) -> int:
        """Write what waits in the write buffer; return the committed position.

        Parameters
        ----------
        least_pages
            Do nothing for fewer pages, unless the file is full.
        """
        stamp = self.store_timestamp  # before the position: it is set after that
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

    def flush(self, least_pages: int = 0) -> int:
        """Force what is committed to the disk; return the flushed position.

        The first time the directory is forced too: else a power failure could take the file.

        Raises
        ------
        StoreWriteError
            It failed, now or before: Linux takes pages that it failed to write for clean, so a
            second try could succeed and mean nothing. Only opening the file anew helps.
        """
        stop = self.committed_position
        if not self._is_worth(self.flushed_position, stop, least_pages) or not self.hold():
            return self.flushed_position
        try:
            if self._flush_failure is not None:
                raise StoreWriteError(self._flush_failure.reason, self.path)
            sync_data(self.descriptor())
            if not self._is_destroyed and os.fstat(self.descriptor()).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, "somebody deleted it while it was in use")
            if not self._directory_is_flushed:
                flush_directory(os.path.dirname(self.path))
                self._directory_is_flushed = True
            self.flushed_position = stop
        except OSError as err:
            failure = write_error(err, self.path)
            if not is_nothing_lost(err):  # the directory could not be opened
                self._flush_failure = failure
            raise failure from err
        finally:
            self.release()
        return stop

    def warm_up(self, sync_bytes: int | None) -> None:
        """Write zeros all over a new file, so that appends find its blocks in place.

        Then a disk that is too small shows now, and forcing data changes no metadata.
        RocketMQ also locks its map into memory; nothing is written through a map here.

        Parameters
        ----------
        sync_bytes
            Force them to the disk every so many bytes; None: not.
        """
        if self.wrote_position:
            raise ValueError(f"{self.path}: {self.wrote_position} bytes were appended")
        self._fill_with_zeros(sync_bytes)

    def truncate(self, position: int) -> None:
        """Cut the data at ``position`` and erase what lies after it, on the disk too.

        RocketMQ only moves the positions; the old records after them come back to life when an
        append ends where one of them begins. Holes stay holes.
        """
        if not 0 <= position <= self.file_size:
            raise ValueError(f"position {position} of {self.file_size}")
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

        The caller copies what must outlive the ``with`` block. None when the file was closed or
        the bytes are not all readable.
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
        """Close and delete the file; holders go on reading what they hold.

        The directory is forced to the disk: a segment that came back would make a hole in the log.
        """
        self._is_destroyed = True  # at first: a flush may be going on
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
