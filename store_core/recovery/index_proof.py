"""Index files that nobody knows to be flushed: kept if their entries are those of the log."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.message_batch_codec import MessageColumns
from store_core.errors import CorruptRecordError, StoreReadError
from store_core.index.index_entries import index_entries
from store_core.index.index_file import IndexFile
from store_core.index.index_file_set import flushed_files, names_and_sizes
from store_core.index.index_sizes import is_whole
from store_core.index.index_writer import seconds_since
from store_core.layout.store_paths import INDEX_DIR

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory
    from store_core.index.index_dispatcher import IndexDispatcher
    from store_core.index.index_entries import IndexEntries
    from store_core.state.checkpoint import StoreCheckpoint

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_CHUNK_ENTRIES = 1 << 15
_MAX_ENTRIES = 1 << 22  # 84 MB


class IndexProof:
    """Compares the entries of whole files (`is_whole`) with the records that recovery validates.

    Proved are files if each entry belongs to a record, and has its time, and no record up to the
    last entry lacks entries. That takes a tenth of the time of making them anew, as RocketMQ does
    with the newest file after each crash. Entries of records before the walk are not looked at.

    Parameters
    ----------
    files
        Oldest first; at least one. Their sources may be closed afterwards.
    """

    def __init__(self, files: Sequence[IndexFile], *, with_tags: bool) -> None:
        self._with_tags = with_tags
        self._files = [_Entries(file) for file in files]
        self._names = frozenset(Path(file.path).name for file in files)
        self._begin = files[0].header.begin_phy_offset
        self._end = files[-1].header.end_phy_offset
        self._agrees = True

    @property
    def proved(self) -> frozenset[str]:
        """Names of the files, if all records so far agree with them; none if one does not."""
        return self._names if self._agrees else frozenset()

    def add(self, frames: RecordFrames) -> None:
        """Add records; each call's follow those of the call before."""
        if not self._agrees or len(frames) == 0:
            return
        starts, times = frames.column("commit_log_offset"), frames.column("store_timestamp")
        is_indexed = np.zeros(len(frames), bool)
        self._agrees = all(file.agree(starts, times, is_indexed) for file in self._files)
        bare = np.flatnonzero(~is_indexed & (starts >= self._begin) & (starts <= self._end))
        if len(bare) and self._agrees:
            columns = MessageColumns(frames.take(bare))
            self._agrees = not len(index_entries(columns, with_tags=self._with_tags).key_hash)

    def give(self, index: IndexDispatcher) -> None:
        """Give nothing: what the index lacks is left to ``IndexDispatcher.catch_up``."""


class _Entries:
    """The entries of one file, in the order of the log."""

    def __init__(self, file: IndexFile) -> None:
        self._rows = file.table()
        self._begin_timestamp = file.header.begin_timestamp
        self._next = -1

    def agree(self, starts: Int64s, times: Int64s, is_indexed: Bools) -> bool:
        """Return whether the next entries belong to these records; mark the records that have some.

        ``times`` are store times in ms. The time of a file's first entry is counted from the file
        before it, and not looked at.
        """
        if self._next < 0:
            self._next = self._behind(int(starts[0]) - 1, 0)
        begin, self._next = self._next, self._behind(int(starts[-1]), self._next)
        if begin == self._next:
            return True
        rows = self._rows[begin : self._next]
        offsets = rows["commit_log_offset"].astype(np.int64)
        is_first = np.concatenate(([True], offsets[1:] != offsets[:-1]))
        own = offsets[is_first]
        at = np.searchsorted(starts, own) if len(own) != len(starts) else np.arange(len(own))
        if int(at[-1]) == len(starts) or (starts[at] != own).any():
            return False
        is_indexed[at] = True
        seconds = seconds_since(self._begin_timestamp, times[at])[np.cumsum(is_first) - 1]
        differs = rows["time_diff_seconds"] != seconds
        return not differs[1 if begin == 0 else 0 :].any()

    def _behind(self, commit_log_offset: int, at: int) -> int:
        """Return the first entry from ``at`` on that belongs to a record after an offset."""
        while at < len(self._rows):
            chunk = self._rows[at : at + _CHUNK_ENTRIES]["commit_log_offset"].astype(np.int64)
            count = int(np.searchsorted(chunk, commit_log_offset, "right"))
            at += count
            if count < len(chunk):
                break
        return at


def index_proof(
    directory: StoreDirectory, config: MessageStoreConfig, checkpoint: StoreCheckpoint
) -> IndexProof | None:
    """Return a proof for the files that a crash may have torn, up to the first that it did.

    Returns
    -------
    proof
        None where there is no such file, or the first of them is torn.

    Raises
    ------
    StoreConfigError
        The sizes of the files contradict the configuration.
    """
    names, sizes = names_and_sizes(directory, config, last_exit_ok=False)
    if sizes is None:
        return None
    flushed = flushed_files(directory, names, sizes, checkpoint.index_msg_timestamp or 0)
    with ExitStack() as opened:
        found = []
        for name in names[len(flushed) :]:
            try:
                source = opened.enter_context(directory.open(directory.resolve(INDEX_DIR, name)))
                file = IndexFile(source, *sizes)
                if not is_whole(file):
                    break
                found.append(file)
            except (CorruptRecordError, StoreReadError):
                break
        if not found:
            return None
        return IndexProof(found, with_tags=bool(config.tag_index_enable))


def index_keys(
    directory: StoreDirectory,
    config: MessageStoreConfig,
    checkpoint: StoreCheckpoint,
    *,
    last_exit_ok: bool,
) -> IndexProof | PendingIndexEntries | None:
    """Return what is to see the records of the walk for the index; None: it needs none of them.

    Parameters and errors are those of `index_proof`; after a clean stop the sizes have to be known.
    """
    if not config.message_index_enable:
        return None
    pending = PendingIndexEntries(with_tags=bool(config.tag_index_enable))
    if last_exit_ok:
        # Before the first change: a refusal leaves the store as it was, stopped cleanly.
        names, _ = names_and_sizes(directory, config, last_exit_ok=True)
        return None if names else pending
    return index_proof(directory, config, checkpoint) or pending


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
