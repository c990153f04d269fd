# SPDX-License-Identifier: Apache-2.0
"""The index of a store that is written: it follows the log, and is rebuilt where it was lost.

Source: RocketMQ ``IndexService`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.codec.message_batch_codec import MessageColumns
from store_core.errors import CorruptRecordError, StoreReadError
from store_core.files.byte_source import LocalByteSource
from store_core.files.file_writing import flush_directory, sync_file, write_error
from store_core.files.store_directory import StoreDirectory
from store_core.index.index_entries import index_entries
from store_core.index.index_file import read_index_header
from store_core.index.index_file_set import IndexFileSet, RecoveredLog, index_file_set
from store_core.index.index_writer import IndexWriter, index_file_names
from store_core.layout import INDEX_DIR
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import skip_gap

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.index.index_entries import IndexEntries
    from store_core.log.commit_log import ReadableLog

logger = logging.getLogger(__name__)


class IndexDispatcher:
    """Adds the keys of dispatched records to the index; has its own position in the log.

    If the index was lost, that position lags: `catch_up` reads the log from there, a stretch at a
    time, and records dispatched meanwhile wait for it. So entries always come in the order of the
    log, and every record's come once.

    `append`, `publish` and `catch_up` may be called by different threads.

    Parameters
    ----------
    config
        ``message_index_enable``; ``tag_index_enable`` (see ``with_tag_index``);
        ``max_hash_slot_num`` and ``max_index_num`` (if None, as the files show, else RocketMQ's
        defaults).
    clock
        Returns ms since the epoch, for the names of new files.
    """

    def __init__(self, root: str, config: MessageStoreConfig, clock: Callable[[], int]) -> None:
        self.from_offset = 0
        self.is_behind = False
        self._directory = StoreDirectory(root)
        self._files = IndexDirectory(Path(self._directory.resolve(INDEX_DIR)))
        self._config, self._clock = config, clock
        self._writer: IndexWriter | None = None
        self._sizes = (0, 0)
        self._flushed_end_timestamp = 0
        self._dispatched_to = 0
        self._appended_to = 0
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        """The directory of the index files."""
        return self._files.path

    @property
    def flushed_end_timestamp(self) -> int:
        """Store time (ms) up to which full files are on the disk (``indexMsgTimestamp``).

        If files were dropped it is less than the checkpoint's: write it there before `catch_up`,
        or a crash would leave files that look as if they had been flushed.
        """
        flushed = self._writer.flushed_end_timestamp if self._writer is not None else 0
        return max(self._flushed_end_timestamp, flushed)

    def plan(self, recovered: RecoveredLog) -> IndexFileSet | None:
        """Return the decision of `load`, changing nothing; None without an index."""
        if not self._config.message_index_enable:
            return None
        return index_file_set(self._directory, self._config, recovered)

    def load(self, recovered: RecoveredLog) -> IndexFileSet | None:
        """Open the index of a recovered log; delete the files that cannot be trusted.

        RocketMQ deletes the newest file after a crash and rebuilds it from where its recovery
        happens to start; entries of records before that are lost. Here the file stays if it is
        proved, otherwise `catch_up` indexes all its records again, as it does with records that
        lack entries after a clean stop. Does nothing if ``message_index_enable`` is false.

        Raises
        ------
        StoreConfigError
            Slots and entries of the files are not those of the configuration.
        StoreWriteError
            A file cannot be deleted, or forced to the disk.
        """
        self._flushed_end_timestamp = recovered.index_msg_timestamp
        self.from_offset = self._dispatched_to = recovered.end_offset
        self._appended_to = 0
        found = self.plan(recovered)
        if found is None:
            return None
        if found.dropped:
            logger.warning(
                "rebuilding %d index files from offset %d on: %s",
                len(found.dropped), found.from_offset, found.reason,
            )  # fmt: skip
            self._files.delete(found.dropped)
        # Before a later file is full, as its time in the checkpoint calls these flushed, too.
        self._files.sync([name for name in found.kept[:-1] if name in recovered.proved])
        self._sizes = found.sizes
        self._flushed_end_timestamp = found.flushed_end_timestamp
        self._writer = IndexWriter(self.path, *found.sizes, self._clock)
        self.from_offset, self.is_behind = found.from_offset, found.is_behind
        return found

    def begin_anew(self, from_offset: int) -> None:
        """Delete all files; `catch_up` then indexes the log from an offset on.

        `flushed_end_timestamp` becomes 0, see there.

        Raises
        ------
        StoreWriteError
            A file cannot be deleted.
        """
        if self._writer is None:
            return
        with self._lock:
            with self._files.errors():
                self._writer.close()
            self._files.delete_all()
            self._writer = IndexWriter(self.path, *self._sizes, self._clock)
            self._flushed_end_timestamp = 0
            self.from_offset, self.is_behind, self._appended_to = from_offset, True, 0

    def dispatch(self, frames: RecordFrames) -> None:
        """Add the keys of records that follow those dispatched before, and let readers find them.

        Raises
        ------
        StoreWriteError
            The index cannot be written; the same records may be given again.
        """
        self.append(frames)
        self.publish()

    def append(self, frames: RecordFrames) -> None:
        """Add the keys of records that follow those before; `publish` lets readers find them.

        Raises
        ------
        StoreWriteError
            The index cannot be written; the same records may be given again.
        """
        if self._writer is None or len(frames) == 0:
            return
        with self._lock:
            end = _end(frames)
            if not self.is_behind:
                self._append(frames)
                self._appended_to = max(self._appended_to, end)
            self._dispatched_to = max(self._dispatched_to, end)

    def dispatch_entries(self, entries: IndexEntries, end_offset: int) -> None:
        """Add entries of records after those dispatched before; `flush` lets readers find them.

        Raises
        ------
        StoreWriteError
            The index cannot be written; the same entries may be given again.
        """
        if self._writer is None:
            return
        with self._lock:
            if not self.is_behind:
                with self._files.errors():
                    self._writer.append(entries)
                self.from_offset = max(self.from_offset, end_offset)
            self._dispatched_to = max(self._dispatched_to, end_offset)

    def take_up(self, parts: Iterable[tuple[IndexEntries, int]]) -> None:
        """Add entries that the index lacks, from `from_offset` or from before it on.

        Raises
        ------
        StoreWriteError
            The index cannot be written; `catch_up` goes on where this stopped.
        """
        if self._writer is None:
            return
        with self._lock:
            for entries, end_offset in parts:
                if end_offset > self.from_offset:
                    with self._files.errors():
                        self._writer.append(entries)
                    self.from_offset = end_offset
            self._publish()
            self.is_behind = self.from_offset < self._dispatched_to

    def catch_up(self, log: ReadableLog, end_offset: int, limit_bytes: int) -> bool:
        """Index some of the missing records; True if there is more to do.

        Parameters
        ----------
        log
            The log; used by this thread only.

        Raises
        ------
        StoreReadError
            The log cannot be read.
        StoreWriteError
            The index cannot be written.
        """
        if self._writer is None or not self.is_behind:
            return False
        stop = min(self.from_offset + max(limit_bytes, 1), end_offset)
        reached = self.from_offset
        for frames in scan_frames(log, self.from_offset, end_offset, on_gap=skip_gap):
            with self._lock:
                self._append(frames)
            self.flush_full()
            reached = _end(frames)
            if reached >= stop:
                break
        else:
            reached = end_offset
        with self._lock:
            self._publish()
            self.from_offset = reached
            if reached >= max(end_offset, self._dispatched_to):
                self.is_behind = False
                logger.info("the index has caught up with the log, at offset %d", reached)
            return self.is_behind

    def flush_full(self) -> None:
        """Force files that became full to the disk, so that `flushed_end_timestamp` moves.

        Cheap if none did; for a thread that may wait.
        """
        if self._writer is not None:
            with self._files.errors():
                self._writer.flush_full()

    def publish(self) -> None:
        """Let readers find the appended entries; cheap if there are none.

        Raises
        ------
        StoreWriteError
            The index cannot be written; call it again, or give the records again.
        """
        with self._lock:
            if not self.is_behind:  # else `catch_up` does it
                self._publish()
                self.from_offset = max(self.from_offset, self._appended_to)

    def flush(self) -> None:
        """Force everything to the disk."""
        if self._writer is None:
            return
        with self._lock, self._files.errors():
            self._writer.flush()

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files whose records are gone (`IndexDirectory.delete_expired`)."""
        return self._files.delete_expired(min_phy_offset)

    def close(self) -> None:
        """Flush and close the files."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._files.errors():
                writer.close()

    def destroy(self) -> None:
        """Close and delete all files."""
        self.close()
        self._files.delete_all()

    def _append(self, frames: RecordFrames) -> None:
        held = max(self.from_offset, self._appended_to)
        first = int(np.searchsorted(frames.column("commit_log_offset"), held))
        if not self.is_behind and first:  # given before
            frames = frames.take(np.arange(first, len(frames)))
        if self._writer is None or len(frames) == 0:
            return
        with self._files.errors():
            columns, with_tags = MessageColumns.shared(frames), bool(self._config.tag_index_enable)
            self._writer.append(index_entries(columns, with_tags=with_tags))

    def _publish(self) -> None:
        if self._writer is not None:
            with self._files.errors():
                self._writer.publish()


def _end(frames: RecordFrames) -> int:
    last = frames.column("commit_log_offset")[-1] + frames.column("total_size")[-1]
    return int(last)


class IndexDirectory:
    """Deletes whole index files, or forces them to the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def delete(self, names: Collection[str]) -> None:
        """Delete files.

        Raises
        ------
        StoreWriteError
            One cannot be deleted.
        """
        with self.errors():
            for name in names:
                (self.path / name).unlink()
            if names:
                flush_directory(str(self.path))

    def delete_all(self) -> None:
        """Delete every index file."""
        self.delete(index_file_names(self.path))

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files, oldest first, whose records are gone; return how many. Never the last.

        Source: ``IndexService.deleteExpiredFile``.
        """
        expired = []
        for name in index_file_names(self.path)[:-1]:
            try:
                with LocalByteSource(str(self.path / name)) as source:
                    header = read_index_header(source)
            except (CorruptRecordError, StoreReadError):
                break
            if header.end_phy_offset >= min_phy_offset:
                break
            expired.append(name)
        self.delete(expired)
        return len(expired)

    def sync(self, names: Collection[str]) -> None:
        """Force some files to the disk, whichever process wrote them.

        Raises
        ------
        StoreWriteError
            One cannot be forced.
        """
        with self.errors():
            for name in names:
                sync_file(str(self.path / name))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn an ``OSError`` into one that names the file (`StoreWriteError`)."""
        try:
            yield
        except OSError as err:
            raise write_error(err, str(err.filename or self.path)) from err
