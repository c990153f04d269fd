# SPDX-License-Identifier: Apache-2.0
"""Read everything that is readable in a damaged store, and write it to a new store."""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.config.message_store_config import DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM
from store_core.errors import StoreConfigError, StoreError, StoreFormatError, StoreReadError
from store_core.files.file_writing import (
    flush_directory,
    make_directory,
    put_file,
    remove_tree,
    replace_file,
    write_error,
    write_errors,
)
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.store_directory import StoreDirectory, local_path
from store_core.index.index_entries import with_tag_index
from store_core.layout import (
    BATCH_CONSUME_QUEUE_DIR,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIR,
    CONSUME_QUEUE_DIR,
    CONSUME_QUEUE_EXT_DIR,
    LOCK_FILE,
    TIMER_WHEEL_FILE,
    wheel_snapshot,
)
from store_core.log.commit_log import (
    DEFAULT_SEGMENT_BYTES,
    SEGMENT_SIZE_OPTION,
    commit_log_directories,
    scan_log,
)
from store_core.log.commit_log_appender import CommitLogAppender
from store_core.log.log_scan import BatchSizer, Gap
from store_core.queue.compaction_log import CompactionLog, compacted_queues
from store_core.queue.queue_directories import configured_kinds, queue_file_sizes
from store_core.recovery.recovery_plan import records_behind
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.state.checkpoint import CheckpointFile
from store_core.state.store_lock import LOCK_TEXT
from store_core.state.store_state import StoreState
from store_core.tools.repair.keep_queues import keep_queues_without_records, set_queue_file_times
from store_core.tools.salvage.copied_config import ConfigFiles
from store_core.tools.salvage.derived_files import DerivedFiles
from store_core.tools.salvage.log_copy import LogCopy
from store_core.tools.salvage.salvage_report import SalvageReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.progress import StageProgress
    from store_core.tools.salvage.moved_offsets import MovedOffsets

    Int64s = npt.NDArray[np.int64]

_NONE = np.empty(0, np.int64)
_BATCH_ROWS, _BATCH_BYTES = 1 << 15, 16 << 20  # stay in a cache from one step to the next
_LOOK_AHEAD = 4
"""Number of following records whose store times show whether that of a record is odd."""
_REPORT_SUFFIX = ".salvage.json"
_UNFINISHED_SUFFIX = ".salvage-part"
_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
_NOT_TAKEN = {
    TIMER_WHEEL_FILE: (
        "timer messages (5.x timer wheel) are in the log; a broker delivers all that are still "
        "there, including those already delivered or cancelled"
    ),
    "compaction": (
        "compacted logs are not copied, and a broker does not rebuild them: consumers of such "
        "topics get the log's messages if the broker has enableCompaction=false"
    ),
    "epochFileCheckpoint": (
        "the epochs of a replicated broker are not copied: they do not apply to the new store"
    ),
}


@dataclass(frozen=True)
class SalvageOptions:
    """Options of a salvage.

    Attributes
    ----------
    clock
        Returns ms since the epoch.
    warn
        Called with a message about light queues that can have no directory.
    """

    clock: Callable[[], int]
    progress: StageProgress | None = None
    warn: Callable[[str], None] = logging.getLogger(__name__).warning


def salvage_store(
    source: str, target: str, config: MessageStoreConfig, options: SalvageOptions
) -> SalvageReport:
    """Copy every readable record of a store to a new one; the old one is only read.

    Records keep their order, and their bytes except for offsets and implausible store times: see
    `LogCopy`. Queues and index are built from them, ``config`` is copied (`ConfigFiles`). The new
    store has a temporary name until it is complete on disk; an error or an interrupt removes it.

    Parameters
    ----------
    target
        A local path that does not exist, or an empty directory. The report is written next to it:
        ``TARGET.salvage.json``.

    Raises
    ------
    StoreConfigError
        The target is not local or not empty, or one of the two stores is inside the other.
    StoreNotFoundError, StoreFormatError, StoreReadError
        The old store has no readable log.
    StoreWriteError
        A file cannot be written; nothing is left of the new store.
    """
    with StoreSnapshot(source, config) as snapshot:
        path = checked_target(snapshot, target)
        with _unfinished(path) as part:
            report = _Salvage(snapshot, part, options).run(str(path))
            _write_report(report)
            _put_in_place(part, path)
    return report


class _Salvage:
    def __init__(self, snapshot: StoreSnapshot, root: Path, options: SalvageOptions) -> None:
        self._snapshot, self._root, self._options = snapshot, root, options
        self._tell = options.progress or (lambda _what, _done, _all: None)
        self._notes: list[str] = []
        sizes = queue_file_sizes(snapshot.directory, snapshot.config)
        slots, entries = _index_sizes(snapshot)
        self._config = replace(
            with_tag_index(snapshot.config, snapshot.directory, snapshot.log),
            max_hash_slot_num=slots,
            max_index_num=entries,
            enable_multi_dispatch=snapshot.has_light_queues,
            enable_consume_queue_ext=snapshot.directory.stat(
                snapshot.directory.resolve(CONSUME_QUEUE_EXT_DIR)
            )
            is not None,
            store_path_root_dir=str(root),
            store_path_commit_log=None,
            read_only_commit_log_store_paths=None,
            store_path_d_ledger_commit_log=None,
            mapped_file_size_commit_log=snapshot.log.segments.file_size or DEFAULT_SEGMENT_BYTES,
            mapped_file_size_consume_queue=sizes.simple,
            mapped_file_size_consume_queue_ext=sizes.ext,
            mapper_file_size_batch_consume_queue=sizes.batch,
        )

    def run(self, target: str) -> SalvageReport:
        snapshot = self._snapshot
        copy, gaps = self._copy_log()
        kept = self._keep_empty_queues()
        files = ConfigFiles(snapshot.directory, self._root, copy.queues, kept)
        files.copy(self._options.clock(), copy.batch_topics)
        self._notes += files.notes
        self._note_what_is_not_taken(copy)
        return SalvageReport(
            source=snapshot.directory.uri,
            target=target,
            log_begin=max(snapshot.min_phy_offset, 0),
            log_end=snapshot.end_offset,
            log_ends_because=snapshot.end_reason,
            records=copy.records,
            record_bytes=copy.record_bytes,
            gaps=tuple(gaps),
            rejected=tuple(sorted(copy.rejected)),
            undecodable=tuple(copy.undecodable),
            corrected_times=tuple(copy.store_times.corrected),
            places=tuple(copy.places.runs),
            queues=copy.queues,
            kept_queues=len(kept),
            notes=tuple(self._notes),
            lost_end=snapshot.lost_end,
        )

    def _copy_log(self) -> tuple[LogCopy, list[Gap]]:
        """Write the new log, with queues, index and checkpoint."""
        size = self._config.mapped_file_size_commit_log or DEFAULT_SEGMENT_BYTES
        directory, clock = str(self._root / COMMIT_LOG_DIR), self._options.clock
        make_directory(directory)
        with ExitStack() as stack:
            log = MappedFileQueue([directory], size, option=SEGMENT_SIZE_OPTION)
            stack.callback(log.close)

            def has_batch_queues(topic: str) -> bool:
                return copy.has_batch_queues(topic)

            derived = DerivedFiles(self._config, has_batch_queues, clock, self._options.warn)
            stack.callback(derived.close)
            appender = CommitLogAppender(log, clock)
            has_light = self._config.enable_multi_dispatch
            copy = LogCopy(
                appender,
                self._kinds().get,
                derived.dispatch,
                derived.new_block,
                has_light=has_light,
            )
            gaps = self._copy_records(copy, log, appender)
            derived.finish()
            while not log.flush():
                pass
            end_offset = log.max_offset
        with StoreSnapshot(self._root, self._config, end_offset) as snapshot:
            set_queue_file_times(snapshot, self._root)
        self._write_checkpoint(copy, derived.flushed_end_timestamp)
        return copy, gaps

    def _copy_records(
        self, copy: LogCopy, log: MappedFileQueue, appender: CommitLogAppender
    ) -> list[Gap]:
        """Copy all records.

        The new log begins where the old one does, and its segments end where those of the old log
        do. So after damage, offsets differ only up to the end of the segment, unless a whole
        segment is lost.
        """
        snapshot, gaps, segment = self._snapshot, [], -1
        begin = max(snapshot.min_phy_offset, 0)
        total = max(snapshot.end_offset - begin, 0)
        sizer = BatchSizer(_BATCH_ROWS, _BATCH_BYTES)
        parts = scan_log(snapshot.log, begin, snapshot.end_offset, sizer=sizer)
        for part, next_times in _with_next_times(_accepted(parts, copy)):
            if isinstance(part, Gap):
                gaps.append(part)
                continue
            if log.last is None:
                copy.queues.from_zero = log.writable_file(part.first).file_from_offset == 0
            elif part.first // log.file_size != segment:
                appender.close_segment()
            segment = part.first // log.file_size
            if part.frames is not None:
                before = log.max_offset
                copy.append(part.frames, part.topic_codes, next_times)
                file = log.last
                if file is not None:  # to write while the next records are read
                    file.start_writeback(max(before - file.file_from_offset, 0))
            self._tell("log", part.last - begin, total)
        if log.last is None and snapshot.log.segments:  # kept queues need a segment
            log.writable_file(begin)
        self._tell("log", total, total)
        return gaps

    def _write_checkpoint(self, copy: LogCopy, index_msg_timestamp: int) -> None:
        """Write checkpoint and lock as a broker does, so that an empty log does not look lost."""
        put_file(str(self._root / LOCK_FILE), LOCK_TEXT)
        checkpoint = CheckpointFile(str(self._root / CHECKPOINT_FILE))
        with closing(checkpoint):
            checkpoint.for_5_5 = bool(self._config.tag_index_enable)
            checkpoint.physic_msg_timestamp = copy.last_store_timestamp
            checkpoint.set_dispatched(copy.last_record_offset, copy.last_store_timestamp)
            checkpoint.index_msg_timestamp = index_msg_timestamp
            checkpoint.confirm_phy_offset = max(copy.last_record_offset, 0)
            checkpoint.flush()

    def _keep_empty_queues(self) -> set[tuple[str, int]]:
        made = _queue_keys(self._root)
        keep_queues_without_records(self._snapshot, self._root)
        return _queue_keys(self._root) - made

    def _kinds(self) -> dict[str, bool]:
        """Return for each topic whether its queues are batch queues."""
        try:
            kinds = configured_kinds(self._snapshot.directory)
        except StoreFormatError:  # the list of topics is damaged
            kinds = {}
        return {**kinds, **{topic: True for topic, _ in self._snapshot.batch_queue_paths}}

    def _note_what_is_not_taken(self, copy: LogCopy) -> None:
        if copy.light_names:
            self._notes.append(
                f"{copy.light_names} times, records name light queues, but nothing shows that the "
                "broker had them enabled: none was created. If it had, give its configuration "
                "(enableLmq)"
            )
        behind = records_behind(self._snapshot.log, self._snapshot.end_offset).records
        if behind:
            self._notes.append(
                f"{behind} readable records after offset {self._snapshot.end_offset} are not "
                f"copied, because the log ends there ({self._snapshot.end_reason}): keep the old "
                "store if you need them"
            )
        directory = self._snapshot.directory
        names = {
            entry.name if wheel_snapshot(entry.name) is None else TIMER_WHEEL_FILE
            for entry in directory.list(directory.resolve())
        }
        self._notes += [text for name, text in _NOT_TAKEN.items() if name in names]
        self._notes += compacted_messages_notes(self._snapshot, copy.queues)
        self._notes += self._snapshot.kind.unread()
        if any(t == _HALF_TOPIC and q.has_moved for (t, _), q in copy.queues.items()):
            self._notes.append(
                "half messages have queue offsets other than those in their op messages: the "
                "broker may ask producers again about transactions that have ended"
            )


def _index_sizes(snapshot: StoreSnapshot) -> tuple[int, int]:
    config = snapshot.config
    try:
        sizes = snapshot.index.sizes
    except (StoreConfigError, StoreReadError):  # a damaged file contradicts the configuration
        sizes = None
    return sizes or (
        config.max_hash_slot_num or DEFAULT_MAX_HASH_SLOT_NUM,
        config.max_index_num or DEFAULT_MAX_INDEX_NUM,
    )


class _Accepted(NamedTuple):
    """The first and last offset of consecutive records, and the good ones among them."""

    first: int
    last: int
    frames: RecordFrames | None
    """None if none is good."""
    topic_codes: Int64s


def _accepted(parts: Iterable[RecordFrames | Gap], copy: LogCopy) -> Iterator[_Accepted | Gap]:
    for part in parts:
        if isinstance(part, Gap):
            yield part
            continue
        frames, codes = copy.accepted(part)
        first, last = part.column("commit_log_offset")[[0, -1]].tolist()
        yield _Accepted(first, last, frames if len(frames) else None, codes)


def _with_next_times(
    parts: Iterable[_Accepted | Gap],
) -> Iterator[tuple[_Accepted | Gap, Int64s]]:
    """Yield each part of a log with the store times of the first good records after it.

    Times of rejected records are not used: they may be damaged.
    """
    waiting: deque[_Accepted | Gap] = deque()
    known: deque[Int64s] = deque()  # first times of waiting parts with good records
    for part in parts:
        waiting.append(part)
        if len(times := _first_times(part)):
            known.append(times)
            yield from _with_known_times(waiting, known, _LOOK_AHEAD)
    yield from _with_known_times(waiting, known, 0)


def _with_known_times(
    waiting: deque[_Accepted | Gap], known: deque[Int64s], least: int
) -> Iterator[tuple[_Accepted | Gap, Int64s]]:
    """Yield the waiting parts that are followed by at least ``least`` known times."""
    while waiting:
        own = int(len(_first_times(waiting[0])) > 0)
        behind = np.concatenate([_NONE, *list(known)[own:]])[:_LOOK_AHEAD]
        if len(behind) < least:
            return
        if own:
            known.popleft()
        yield waiting.popleft(), behind


def _first_times(part: _Accepted | Gap) -> Int64s:
    if isinstance(part, Gap) or part.frames is None:
        return _NONE
    return part.frames.column("store_timestamp")[:_LOOK_AHEAD].astype(np.int64)


def _queue_keys(root: Path) -> set[tuple[str, int]]:
    return {
        (path.parent.name, int(path.name))
        for name in (CONSUME_QUEUE_DIR, BATCH_CONSUME_QUEUE_DIR)
        for path in (root / name).glob("*/*")
    }


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """Yield the directory to build the store in; it is removed unless renamed by the end."""
    part = path.with_name(path.name + _UNFINISHED_SUFFIX)
    with write_errors(str(part)):
        try:
            remove_tree(str(part))  # of a salvage that was killed
            make_directory(str(part))
            yield part
        finally:
            remove_tree(str(part))


def report_path(target: str) -> Path:
    """Return the path of the report of a salvage to ``target``."""
    path = Path(os.path.abspath(local_path(target)))  # noqa: PTH100 (links stay as they are)
    return path.with_name(path.name + _REPORT_SUFFIX)


def _write_report(report: SalvageReport) -> None:
    text = json.dumps(report.as_dict(), indent=1, ensure_ascii=False)
    finished = report_path(report.target)
    unfinished = finished.with_name(finished.name + ".tmp")
    try:
        unfinished.unlink(missing_ok=True)  # of a salvage that was killed, or a link
        replace_file(str(finished), text.encode("utf-8", "backslashreplace"))
    except OSError as err:
        raise write_error(err, str(unfinished)) from err


def _put_in_place(part: Path, path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    part.rename(path)
    flush_directory(str(path.parent))


def compacted_messages_notes(
    snapshot: StoreSnapshot, queues: Mapping[tuple[str, int], MovedOffsets]
) -> list[str]:
    """Return notes for the user about compacted messages that are not in the new store."""
    only: dict[str, int] = {}
    unread = []
    for topic, queue_id in compacted_queues(snapshot.directory):
        is_live = snapshot.state is StoreState.LIVE
        try:
            with CompactionLog(snapshot.directory, topic, queue_id, is_live=is_live) as log:
                offsets = log.units["base_queue_offset"]
        except StoreError as err:
            unread.append(f"the compacted log of {topic}/{queue_id} cannot be read: {err}")
            continue
        taken = np.zeros(len(offsets), bool)
        for run in queues[topic, queue_id].runs if (topic, queue_id) in queues else ():
            taken |= (offsets >= run.old) & (offsets < run.old + run.length)
        only[topic] = only.get(topic, 0) + int(np.count_nonzero(~taken))
    told = ", ".join(f"{topic}: {count}" for topic, count in only.items() if count)
    if told:
        unread.append(
            "messages that are only in compacted logs of the old store are not in the new one "
            f"({told}): read them from the old store with access=compaction"
        )
    return unread


def checked_target(snapshot: StoreSnapshot, target: str) -> Path:
    """Return the absolute path of a new store, if one can be created there.

    Parameters
    ----------
    target
        A path at which there should be nothing, or an empty directory.

    Raises
    ------
    StoreConfigError
        The path is not local, something is there, or one of the two stores is inside the other.
    """
    directory = StoreDirectory(target)
    if not directory.is_local:
        raise StoreConfigError(f"{directory.uri}: a store can be written only on this machine")
    path = Path(os.path.abspath(local_path(target)))  # noqa: PTH100 (links stay as they are)
    if os.path.lexists(path) and (not path.is_dir() or any(path.iterdir())):
        raise StoreConfigError(f"{path} already exists; give a new directory")
    if snapshot.directory.is_local:
        sources = [
            snapshot.directory.resolve(),
            *commit_log_directories(snapshot.directory, snapshot.config),
        ]
        real = os.path.realpath(path)
        for source in map(os.path.realpath, sources):
            if os.path.commonpath([source, real]) in {source, real}:
                raise StoreConfigError(
                    f"{path} and {source} overlap: one is inside the other; give another directory"
                )
    return path
