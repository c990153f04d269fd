"""Builds the index of a whole log anew: what RocketMQ drops after a crash and never gets back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Callable, NamedTuple

from store_core.codec.message_batch_codec import MessageColumns
from store_core.errors import StoreFormatError
from store_core.files.file_writing import flush_directory
from store_core.index.index_entries import index_entries
from store_core.index.index_writer import IndexWriter, index_file_names
from store_core.index.tag_entries import with_tag_index
from store_core.layout.store_paths import INDEX_DIR
from store_core.log.log_scan import Gap, scan_log

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.store_snapshot import StoreSnapshot

_UNFINISHED = "index.rebuilding"


class RebuiltIndex(NamedTuple):
    """What a rebuild wrote, and what it could not read."""

    files: tuple[str, ...]
    """Names of the index files, oldest first."""
    records: int
    entries: int
    gaps: tuple[Gap, ...]
    """Damage in the log: records in there are not indexed."""
    flushed_end_timestamp: int
    """End time of the newest full file, for the checkpoint (``indexMsgTimestamp``); 0: none."""


def rebuild_index(
    view: StoreSnapshot,
    target_root: Path,
    max_hash_slot_num: int,
    max_index_num: int,
    clock: Callable[[], int],
    progress: Callable[[int, int], None] | None = None,
) -> RebuiltIndex:
    """Write the whole index of a log below a store root; all of it, on disk, or nothing.

    The files are those of a RocketMQ that dispatched the log from its first record without a stop;
    their names come from the clock. The files appear together: RocketMQ and readers trust what
    they find in ``index``, so half of one must never stand there.

    Parameters
    ----------
    view
        The store whose log is read, up to the end that the view has.
    target_root
        A store root, the same or another; its ``index`` is missing or empty.
    max_hash_slot_num, max_index_num
        Slots, and entries plus one, of every file: as the broker that opens it is configured.
    clock
        Returns the time in ms.
    progress
        Called with the bytes of the log that are done, and all of them: now and then, and at the
        end.

    Raises
    ------
    StoreFormatError
        ``index`` is not empty.
    StoreConfigError
        The sizes are impossible.
    StoreReadError
        The log cannot be read.
    OSError
        A file cannot be written; there is no ``index`` then.
    """
    unfinished = _unfinished_directory(target_root)
    with IndexWriter(unfinished, max_hash_slot_num, max_index_num, clock) as writer:
        records, entries, gaps = _write_entries(view, writer, progress)
    names = tuple(index_file_names(_put_in_place(unfinished, target_root)))
    return RebuiltIndex(names, records, entries, gaps, writer.flushed_end_timestamp)


def _write_entries(
    view: StoreSnapshot, writer: IndexWriter, progress: Callable[[int, int], None] | None
) -> tuple[int, int, tuple[Gap, ...]]:
    """Write the entries of all records; return how many records and entries, and the damage."""
    config = with_tag_index(view.config, view.directory, view.log)
    records = entry_count = 0
    gaps = []
    start = max(view.min_phy_offset, 0)
    total = max(view.end_offset - start, 0)
    for part in scan_log(view.log, start, view.end_offset):
        if isinstance(part, Gap):
            gaps.append(part)
            continue
        entries = index_entries(MessageColumns(part), with_tags=bool(config.tag_index_enable))
        writer.append(entries)
        writer.flush_full()
        records += len(part)
        entry_count += len(entries.key_hash)
        if progress is not None:
            last = int(part.column("total_size")[-1])
            progress(entries.last_record_offset + last - start, total)
    if progress is not None:
        progress(total, total)
    return records, entry_count, tuple(gaps)


def _unfinished_directory(target_root: Path) -> Path:
    """Make the empty directory that the files are written to, if they may come at all."""
    target = target_root / INDEX_DIR
    if target.is_dir() and any(target.iterdir()):
        raise StoreFormatError("there are files already; move them away first", str(target))
    unfinished = target_root / _UNFINISHED
    for name in index_file_names(unfinished):  # of a rebuild that was interrupted
        (unfinished / name).unlink()
    unfinished.mkdir(parents=True, exist_ok=True)
    return unfinished


def _put_in_place(unfinished: Path, target_root: Path) -> Path:
    """Rename the finished directory to ``index``, on the disk too."""
    target = target_root / INDEX_DIR
    with suppress(FileNotFoundError):
        target.rmdir()
    unfinished.rename(target)
    flush_directory(str(target_root))
    return target
