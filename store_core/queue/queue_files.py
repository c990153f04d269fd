# SPDX-License-Identifier: Apache-2.0
"""Write the files of a queue; each is created at its full length."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from store_core.files.byte_source import first_nonzero, open_to_write
from store_core.files.file_writing import (
    erase,
    flush_directory,
    is_nothing_lost,
    make_unforced_directory,
    new_file,
    start_writeback,
    sync_data,
    sync_file,
    write_all,
)
from store_core.files.mapped_file import OS_PAGE_BYTES
from store_core.files.segment_list import Segment, SegmentList

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store_core.files.store_directory import StoreDirectory


class QueueFiles:
    """Files of one queue, named by 20 digits; bytes not yet written are zeros.

    Files are open only during a call, so any number of queues may be written.

    Parameters
    ----------
    names
        New names that `flush` forces to the disk; the queues of a store share them. Optional, by
        default the object's own.
    """

    def __init__(self, directory: Path, file_size: int, names: NewNames | None = None) -> None:
        self.directory = directory
        self.file_size = file_size
        self._dirty: dict[Path, tuple[int, int]] = {}  # file -> begin and end of unflushed bytes
        self._last = (-1, directory)
        self._names = NewNames() if names is None else names
        self._failure: tuple[Any, ...] | None = None

    def write(self, position: int, data: Any, *, continues: bool = False) -> None:
        """Write bytes at a byte position of the queue, across as many files as needed.

        With ``continues``, the bytes follow others: if those are in a file that is missing, that is
        an error, as a new file would have zeros in their place.

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
        """Make everything written so far survive a power loss.

        Does nothing if fewer than ``least_pages`` pages wait and no file is full. Another thread
        may write meanwhile; its bytes are forced by this call or the next.

        Raises
        ------
        OSError
            A file cannot be forced, now or in an earlier call: Linux marks pages that it failed to
            write as clean, so a second try could succeed without writing them. The store has to be
            reopened.
        """
        if self._failure is not None:
            raise OSError(*self._failure)
        if not self.is_worth_flush(least_pages):
            return
        for path in sorted(self._dirty):
            # Before the sync, as a write meanwhile makes the file dirty again.
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
        """Return whether that many pages wait, a file is full, or a flush failed for good."""
        if least_pages == 0 or self._failure is not None:
            return True
        spans = list(self._dirty.values())  # of several files, every one except the last is full
        pages = [high // OS_PAGE_BYTES - low // OS_PAGE_BYTES for low, high in spans]
        is_full = any(high == self.file_size for _, high in spans)
        return is_full or len(spans) > 1 or sum(pages) >= least_pages

    def erase(self, position: int) -> bool:
        """Put zeros from a byte position to the end of its file; return whether any byte changed.

        The zeros are forced to the disk, so that no unit cut off counts again. Holes stay holes.
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
        """Delete the file that begins at a byte position, if it exists, on the disk too."""
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
            # After the write, or `flush` could remove the entry too early.
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


class QueueWriter(ABC):
    """A queue that grows: one thread appends to it, any may read, and another expires files.

    Attributes
    ----------
    max_physic_offset
        End of the last record that is in the queue; -1 if none is.
    last_found
        Start and size of the record of the last unit that `recover` saw, even after a hole;
        (-1, 0) if it saw none.
    lost_from
        Log offset after which units of records are lost or were cut off; None if no loss is known.
    """

    unit_bytes: ClassVar[int]

    def __init__(
        self,
        directory: StoreDirectory,
        key: tuple[str, int],
        listed: SegmentList,
        files: QueueFiles,
        span: tuple[int, int],
    ) -> None:
        self.topic, self.queue_id = key
        self.file_size = files.file_size
        self.max_physic_offset = -1
        self.last_found = (-1, 0)
        self.lost_from: int | None = None
        self._directory, self._listed, self._files, self._span = directory, listed, files, span
        self._lock = threading.Lock()

    @property
    def min_offset(self) -> int:
        """First queue offset whose record is in the log, when it was last corrected."""
        return self._span[0]

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message."""
        return self._span[1]

    def is_worth_flush(self, least_pages: int) -> bool:
        """Return whether that many pages wait for the disk."""
        return self._files.is_worth_flush(least_pages)

    def flush(self, least_pages: int = 0) -> None:
        """Make appended units survive a power loss, if at least ``least_pages`` pages wait."""
        self._files.flush(least_pages)

    @abstractmethod
    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Move the first queue offset to the first record that is still in the log."""

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files without a record left, oldest first; return how many.

        Never deletes the last file. The first queue offset is corrected before, so that no reader
        uses a deleted file (``ConsumeQueue.deleteExpiredFile``).
        """
        expired = []
        for segment in self._segments[:-1]:
            if self._last_record(segment) >= min_phy_offset:
                break
            expired.append(segment)
        self.correct_min_offset(min_phy_offset)
        for segment in expired:
            with self._lock:
                self._set_segments(self._segments[1:])
                self._files.delete(segment.from_offset)
        return len(expired)

    @abstractmethod
    def _last_record(self, segment: Segment) -> int:
        """Return the log offset of the record of a full file's last unit."""

    @property
    def _segments(self) -> tuple[Segment, ...]:
        return self._listed.segments

    def _set_segments(self, segments: Sequence[Segment]) -> None:
        self._listed = SegmentList(segments, self.file_size)

    def _add_files(self, known: Sequence[Segment], begin: int, stop: int) -> None:
        """Make files created after the known ones visible to readers, up to a byte position.

        If no file is known, the first begins at ``begin``.
        """
        size = self.file_size
        begin = known[-1].from_offset + size if known else begin
        added = [Segment(at, str(self._files.path(at)), size) for at in range(begin, stop, size)]
        if added:
            self._set_segments((*known, *added))

    def _delete_last(self) -> None:
        self._files.delete(self._segments[-1].from_offset)
        self._set_segments(self._segments[:-1])

    def _note_loss(self) -> None:
        """Note that units after the end are lost."""
        self.lost_from = max(self.max_physic_offset, 0)

    def _look_for_loss(self, end: int, *, trusted: bool) -> None:
        """Note whether units were lost after the byte position where they now end.

        After a clean stop, bytes past the end are units that were damaged since. So is a last file
        without units, as a file is only created for one; after a crash, its unit may be unwritten.
        """
        self.lost_from = None
        if (trusted and self._is_emptied(end)) or self._has_data_after(end):
            self._note_loss()

    def _is_emptied(self, end: int) -> bool:
        """Return whether the last file has no units and was not left for its name."""
        files = self._segments
        is_named = len(files) == 1 and files[0].from_offset > 0
        return len(files) > 0 and end <= files[-1].from_offset and not is_named

    def _has_data_after(self, position: int) -> bool:
        """Return whether any byte from a byte position of the queue on is not zero."""
        for segment in self._segments:
            if position < segment.from_offset + segment.size:
                with self._directory.open(segment.path) as source:
                    if first_nonzero(source, max(position - segment.from_offset, 0)) >= 0:
                        return True
        return False


class NewNames:
    """Collects directories with new names in them until they are forced to the disk.

    The file system then writes the names of a thousand new queues in one go; forced one by one,
    each takes a write of its own.
    """

    def __init__(self) -> None:
        self._directories: set[str] = set()

    def add(self, directory: str) -> None:
        """Note a directory in which a file was created."""
        self._directories.add(directory)

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents if they are missing."""
        self._directories.update(make_unforced_directory(path))

    def flush(self) -> None:
        """Force all names; those that other threads add meanwhile, by this call or the next.

        Raises
        ------
        OSError
            A directory cannot be forced; the next call tries again.
        """
        for directory in sorted(self._directories):
            self._directories.discard(directory)  # first, as threads may add it again meanwhile
            try:
                flush_directory(directory)
            except FileNotFoundError:  # deleted meanwhile
                continue
            except OSError:
                self._directories.add(directory)
                raise
