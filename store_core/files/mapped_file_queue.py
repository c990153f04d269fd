# SPDX-License-Identifier: Apache-2.0
"""A queue of writable segments: one endless sequence of bytes in files of equal length.

Source: RocketMQ ``MappedFileQueue``, ``MultiPathMappedFileQueue`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from bisect import bisect_right
from contextlib import ExitStack
from typing import TYPE_CHECKING, Callable

from store_core.errors import StoreFormatError
from store_core.files.file_writing import make_directory, write_error
from store_core.files.mapped_file import MappedFile
from store_core.files.segment_list import load_segments
from store_core.files.store_directory import FileEntry, StoreDirectory

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

logger = logging.getLogger(__name__)

_DELETE_FILE_BATCH_MAX = 10
_SEGMENT_NAME = re.compile(r"[0-9]{20}")


class MappedFileQueue:
    """Segments in offset order.

    One thread at a time appends and rolls; another may delete expired files meanwhile, others may
    commit and flush, and any number `find`: the list of files is replaced, never changed. No
    thread does any of this while the queue is loaded or cut.

    Attributes
    ----------
    store_timestamp
        Store time (ms) of the last message of the file that was last flushed completely.
    allocate
        Creates the file of the first path, and may create that of the second ahead of need.
    """

    def __init__(
        self,
        directories: Sequence[str],
        file_size: int,
        *,
        option: str,
        read_only_directories: Collection[str] = (),
    ) -> None:
        if file_size <= 0:
            raise ValueError(f"invalid file size: {file_size} bytes")
        self.directories = tuple(directories)
        self.file_size = file_size
        self.mapped_files: tuple[MappedFile, ...] = ()
        self.flushed_where = self.committed_where = self.store_timestamp = 0
        self.full_directories: frozenset[str] = frozenset()
        self._read_only = frozenset(read_only_directories)
        self._option = option
        self.allocate: Callable[[str, str], MappedFile] | None = None
        self._hung: tuple[MappedFile, int] | None = None  # with the time its wait began, ms
        self._list_lock = threading.Lock()
        self._flush_lock, self._commit_lock = threading.Lock(), threading.Lock()

    def load(self) -> None:
        """Open the existing files; all positions are at their ends.

        An empty last file is deleted: a crash during its creation left it.

        Raises
        ------
        StoreFormatError
            A file has another length, or a name that is not a multiple of it. A broker would not
            start either.
        """
        entries = [
            entry
            for directory in sorted({*self.directories, *self._read_only})
            for entry in StoreDirectory(directory).list(os.path.abspath(directory))
        ]
        segments = load_segments(entries, file_size=self.file_size, option=self._option)
        for segment in segments:
            if segment.size != self.file_size:
                text = f"the file has {segment.size} bytes, but {self._option} is {self.file_size}"
                raise StoreFormatError(text, segment.path)
        _delete_empty_last(entries)
        with ExitStack() as undo:  # if one cannot be opened, none stays open
            files = []
            for segment in segments:
                files.append(MappedFile(segment.path, self.file_size))
                undo.callback(files[-1].close)
            undo.pop_all()
        self.mapped_files = tuple(files)
        self.flushed_where = self.committed_where = self.max_wrote_offset

    @property
    def first(self) -> MappedFile | None:
        """The oldest file."""
        return self.mapped_files[0] if self.mapped_files else None

    @property
    def last(self) -> MappedFile | None:
        """The newest file."""
        return self.mapped_files[-1] if self.mapped_files else None

    @property
    def min_offset(self) -> int:
        """Offset of the first byte; -1 without files."""
        return self.mapped_files[0].file_from_offset if self.mapped_files else -1

    @property
    def max_offset(self) -> int:
        """End of the readable bytes; 0 without files.

        A full file that is not yet committed ends them, even if newer files follow.
        """
        files = self.mapped_files
        at = len(files) - 1
        while at > 0 and files[at - 1].readable_position < self.file_size:
            at -= 1
        return files[at].file_from_offset + files[at].readable_position if files else 0

    @property
    def max_wrote_offset(self) -> int:
        """End of the appended bytes; 0 without files."""
        last = self.last
        return last.file_from_offset + last.wrote_position if last else 0

    def find(self, offset: int) -> MappedFile | None:
        """Return the file whose range contains ``offset``."""
        files = self.mapped_files
        at = (offset - files[0].file_from_offset) // self.file_size if files else -1
        if 0 <= at < len(files) and files[at].file_from_offset <= offset < files[at].end_offset:
            return files[at]  # always, unless files are missing in between
        at = bisect_right([file.file_from_offset for file in files], offset) - 1
        if at < 0 or offset >= files[at].end_offset:
            return None
        return files[at]

    def writable_file(self, start_offset: int = 0) -> MappedFile:
        """Return the file for the next append; rolls if the last one is full.

        The very first file is the one that contains ``start_offset``.

        Raises
        ------
        StoreWriteError
            A new file cannot be created.
        """
        last = self.last
        if last is not None and not last.is_full:
            return last
        offset = start_offset - start_offset % self.file_size if last is None else last.end_offset
        created = self._make_file(offset)
        if last is None:
            self.flushed_where = self.committed_where = offset
        with self._list_lock:
            self.mapped_files = (*self.mapped_files, created)
        logger.info("new segment %s", created.path)
        return created

    def directory_of(self, offset: int) -> str:
        """Return the directory for a new file that begins at ``offset``."""
        writable = sorted(set(self.directories) - self._read_only)
        candidates = [d for d in writable if d not in self.full_directories] or writable
        return candidates[offset // self.file_size % len(candidates)]

    def flush(self, least_pages: int = 0) -> bool:
        """Force the file at ``flushed_where`` to the disk; True if the position did not move."""
        with self._flush_lock:  # two threads could move the position back
            file = self._file_to_do(self.flushed_where)
            if file is None:
                return True
            stamp = file.flushable_timestamp
            where = file.file_from_offset + file.flush(least_pages)
            moved_nothing = where == self.flushed_where
            self.flushed_where = where
            if least_pages == 0:
                self.store_timestamp = stamp
            return moved_nothing

    def commit(self, least_pages: int = 0) -> bool:
        """Commit the file at ``committed_where``; True if the position did not move."""
        with self._commit_lock:
            file = self._file_to_do(self.committed_where)
            if file is None:
                return True
            where = file.file_from_offset + file.commit(least_pages)
            moved_nothing = where == self.committed_where
            self.committed_where = where
            return moved_nothing

    def truncate_dirty_files(self, offset: int) -> None:
        """Cut the queue at ``offset``: erase the rest of its file, delete the files after it."""
        while self.mapped_files and self.mapped_files[-1].file_from_offset > offset:
            self._destroy(self.mapped_files[-1])
        last = self.last
        if last is not None and offset < last.end_offset:
            last.truncate(offset - last.file_from_offset)
        self.flushed_where = min(self.flushed_where, offset)
        self.committed_where = min(self.committed_where, offset)

    def delete_expired_files(
        self,
        now_ms: int,
        reserved_ms: int,
        *,
        immediately: bool = False,
        batch_max: int = _DELETE_FILE_BATCH_MAX,
        below: int = sys.maxsize,
        patience_ms: int = 0,
    ) -> int:
        """Delete the oldest files by their modification times; return how many.

        It never deletes the last file, or one that ends after ``below``. It stops at the first file
        that has not expired, or is being read: that one leaves the queue, and later calls delete it
        (`delete_hung_file`).
        """

        def is_expired(file: MappedFile) -> bool:
            is_old = immediately or now_ms >= file.modified_ms() + reserved_ms
            return is_old and file.end_offset <= below

        def delete(file: MappedFile) -> bool:
            file.retire()
            self._take_off(file)
            self._hung = (file, now_ms)
            return self.delete_hung_file(now_ms, patience_ms)

        if not self.delete_hung_file(now_ms, patience_ms):
            return 0
        return self._delete_while(is_expired, batch_max, delete)

    def delete_hung_file(self, now_ms: int, patience_ms: int) -> bool:
        """Delete the expired file that waits for its readers, if it may go; True if none waits."""
        if self._hung is None:
            return True
        file, since_ms = self._hung
        # abs: a clock that was set back must not keep the file.
        if file.is_held and abs(now_ms - since_ms) < patience_ms:
            return False
        file.destroy()
        self._hung = None
        return True

    def delete_files_before(self, offset: int) -> int:
        """Delete the files that end at or before ``offset``, except the last; return how many."""
        return self._delete_while(
            lambda file: file.end_offset <= offset, len(self.mapped_files), self._destroy
        )

    def close(self) -> None:
        """Close all files; delete the one that has left the queue. Flushes nothing."""
        files, self.mapped_files = self.mapped_files, ()
        for file in files:
            file.close()
        self.delete_hung_file(0, 0)

    def destroy(self) -> None:
        """Delete all files."""
        while self.mapped_files:
            self._destroy(self.mapped_files[-1])
        self.flushed_where = self.committed_where = 0

    def _make_file(self, offset: int) -> MappedFile:
        path = self._new_path(offset)
        if self.allocate is None:
            return MappedFile(path, self.file_size, create=True)
        return self.allocate(path, self._new_path(offset + self.file_size))

    def _new_path(self, offset: int) -> str:
        directory = self.directory_of(offset)
        try:
            make_directory(os.path.abspath(directory))
        except OSError as err:
            raise write_error(err, directory) from err
        return os.path.join(directory, f"{offset:020d}")

    def _delete_while(
        self,
        expired: Callable[[MappedFile], bool],
        batch_max: int,
        delete: Callable[[MappedFile], bool],
    ) -> int:
        count = 0
        while count < batch_max and len(self.mapped_files) > 1 and expired(self.mapped_files[0]):
            if not delete(self.mapped_files[0]):
                break
            count += 1
        return count

    def _destroy(self, file: MappedFile) -> bool:
        file.destroy()
        self._take_off(file)
        return True

    def _take_off(self, file: MappedFile) -> None:
        with self._list_lock:
            self.mapped_files = tuple(other for other in self.mapped_files if other is not file)
        logger.info("deleted segment %s", file.path)

    def _file_to_do(self, offset: int) -> MappedFile | None:
        """Return the file at ``offset``, or the first if that one was deleted meanwhile."""
        first = self.first
        return first if first is not None and offset < first.file_from_offset else self.find(offset)


def _delete_empty_last(entries: list[FileEntry]) -> None:
    files = [e for e in entries if not e.is_dir and not e.not_a_file]
    named = [e for e in files if _SEGMENT_NAME.fullmatch(e.name)]
    newest = max(named, key=lambda entry: entry.name, default=None)
    if newest is not None and newest.size == 0:
        try:
            os.unlink(newest.path)
        except OSError as err:
            raise write_error(err, newest.path) from err
