"""Write the files of a queue, of which each is created at its full length."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from store_core.files.file_writing import (
    erase,
    flush_directory,
    is_nothing_lost,
    new_file,
    start_writeback,
    sync_data,
    sync_file,
    write_all,
)
from store_core.files.new_names import NewNames
from store_core.files.regular_file import open_to_write
from store_core.files.writable_map import OS_PAGE_BYTES

if TYPE_CHECKING:
    from pathlib import Path


class QueueFiles:
    """Files of one queue, named by 20 digits; a file is zeros where nothing was written.

    Files are opened for the length of a call only, so any number of queues may be written.

    Parameters
    ----------
    directory
        The queue's; it is created with the first file.
    file_size
        Bytes of each file.
    names
        Forced by `flush`; queues of one store share them. None: its own.
    """

    def __init__(self, directory: Path, file_size: int, names: NewNames | None = None) -> None:
        self.directory = directory
        self.file_size = file_size
        self._dirty: dict[Path, tuple[int, int]] = {}  # from where to where in the file
        self._last = (-1, directory)
        self._names = NewNames() if names is None else names
        self._failure: tuple[Any, ...] | None = None

    def write(self, position: int, data: Any, *, continues: bool = False) -> None:
        """Write bytes at a byte position of the queue, across as many files as it takes.

        With ``continues`` other bytes lie before them, so a file that has to be there and is not
        is an error: made anew it would have zeros in their places.

        Raises
        ------
        OSError
            A file cannot be created or written (disk full, permission, vanished, …).
        """
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            inside = (position + at) % self.file_size
            stop = min(len(view), at + self.file_size - inside)
            create = not (continues and inside)
            self._write_file(position + at - inside, inside, view[at:stop], create=create)
            at = stop

    def flush(self, least_pages: int = 0) -> None:
        """Make what was written survive a loss of power.

        Fewer pages than ``least_pages`` wait, unless a file is full. Another thread may write
        meanwhile: what it writes is forced by this call or the next.

        Raises
        ------
        OSError
            A file cannot be forced, now or before: Linux takes pages that it failed to write for
            clean, so a second try could succeed and mean nothing. Only opening the store anew
            helps.
        """
        if self._failure is not None:
            raise OSError(*self._failure)
        if not self.is_worth_flush(least_pages):
            return
        for path in sorted(self._dirty):
            # At first: what is written meanwhile makes it dirty again.
            dirty = self._dirty.pop(path, (0, 0))
            try:
                sync_file(str(path))
            except FileNotFoundError:  # expired meanwhile
                continue
            except OSError as err:
                self._note_dirty(path, *dirty)
                if not is_nothing_lost(err):
                    self._failure = (err.errno, err.strerror, str(path))
                raise
        self._names.flush()

    def is_worth_flush(self, least_pages: int) -> bool:
        """Return whether so many pages wait, a file is full, or a flush failed for good."""
        if least_pages == 0 or self._failure is not None:
            return True
        spans = list(self._dirty.values())  # of several files all but the last are full
        pages = [high // OS_PAGE_BYTES - low // OS_PAGE_BYTES for low, high in spans]
        is_full = any(high == self.file_size for _, high in spans)
        return is_full or len(spans) > 1 or sum(pages) >= least_pages

    def erase(self, position: int) -> bool:
        """Put zeros after a byte position, up to the end of its file; return whether it did.

        On the disk too, so that no unit that was cut off counts again. Holes stay holes.
        """
        path = self.path(position - position % self.file_size)
        try:
            file = open_to_write(str(path))
        except FileNotFoundError:
            return False
        try:
            erased = erase(file, position % self.file_size, os.fstat(file).st_size)
            if erased:
                sync_data(file)
        except OSError as err:
            err.filename = str(path)  # a descriptor has no name
            raise
        finally:
            os.close(file)
        return erased

    def delete(self, from_offset: int) -> None:
        """Delete the file that begins at a byte position, if it is there; on the disk too."""
        path = self.path(from_offset)
        try:
            path.unlink()
        except FileNotFoundError:
            return
        self._dirty.pop(path, None)
        flush_directory(str(self.directory))

    def path(self, from_offset: int) -> Path:
        """Return the file that begins at a byte position."""
        last = self._last
        if last[0] != from_offset:
            last = self._last = (from_offset, self.directory / f"{from_offset:020d}")
        return last[1]

    def _note_dirty(self, path: Path, low: int, high: int) -> None:
        before = self._dirty.get(path, (low, high))
        self._dirty[path] = (min(before[0], low), max(before[1], high))

    def _write_file(
        self, from_offset: int, position: int, data: memoryview, *, create: bool
    ) -> None:
        path = self.path(from_offset)
        file = self._open(path, create=create)
        try:
            if os.fstat(file).st_size < self.file_size:
                os.ftruncate(file, self.file_size)
            write_all(file, position, data)
            start_writeback(file, position, len(data))
        except OSError as err:
            err.filename = str(path)  # a descriptor has no name
            raise
        finally:
            # After the write: `flush` must not take it off in between.
            self._note_dirty(path, position, position + len(data))
            os.close(file)

    def _open(self, path: Path, *, create: bool) -> int:
        try:
            return open_to_write(str(path))
        except FileNotFoundError:
            if not create:
                raise
            directory = str(self.directory.absolute())
            self._names.make_directory(directory)
            self._names.add(directory)
            return new_file(str(path.absolute()), self.file_size)
