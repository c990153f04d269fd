"""Index entries of the records that recovery walks over, kept until the index is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.codec.message_batch_codec import MessageColumns
from store_core.index.index_entries import index_entries

if TYPE_CHECKING:
    from store_core.codec.record_frames import RecordFrames
    from store_core.index.index_dispatcher import IndexDispatcher
    from store_core.index.index_entries import IndexEntries

_MAX_ENTRIES = 1 << 22  # 84 MB


class PendingIndexEntries:
    """What the index will be given, so that the log is not read and taken apart a second time.

    Holds a bounded number of entries; the rest is left to ``IndexDispatcher.catch_up``.
    """

    def __init__(self, *, with_tags: bool) -> None:
        self._with_tags = with_tags
        self._start = -1
        self._entries = 0
        self._held: list[tuple[IndexEntries, int]] = []

    @property
    def proved(self) -> frozenset[str]:
        """Names of index files that were found to be those of the log: none was looked at."""
        return frozenset()

    def add(self, frames: RecordFrames) -> None:
        """Add records; each call's follow those of the call before."""
        if len(frames) == 0 or self._entries >= _MAX_ENTRIES:
            return
        if self._start < 0:
            self._start = int(frames.column("commit_log_offset")[0])
        entries = index_entries(MessageColumns.shared(frames), with_tags=self._with_tags)
        end = int(frames.column("commit_log_offset")[-1] + frames.column("total_size")[-1])
        self._held.append((entries, end))
        self._entries += len(entries.key_hash)

    def give(self, index: IndexDispatcher) -> None:
        """Give an index what it lacks, if that begins with or after the first record.

        Raises
        ------
        StoreWriteError
            The index cannot be written.
        """
        held, self._held = self._held, []
        if held and index.is_behind and self._start <= index.from_offset:
            index.take_up(held)
