# SPDX-License-Identifier: Apache-2.0
"""Reads compacted logs, from which consumers of ``cleanup.policy=COMPACTION`` topics are served.

A 5.x broker copies each message of such a topic from the commit log to separate files: for each
queue, a log and a sparse queue of units. From time to time it rewrites every file except the last
with only the newest message of each key. The units decide what exists: consumers get the records
that units point at, in unit order, and the queue offsets in between are gone.

Source: RocketMQ ``CompactionStore``, ``CompactionLog``, ``SparseConsumeQueue`` (5.3.3).
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.record_frames import are_of_topic
from store_core.errors import FileVanishedError, StoreFormatError, StoreReadError
from store_core.files.segment_list import Segment
from store_core.layout import (
    BATCH_CQ_UNIT,
    COMPACTION_DIR,
    COMPACTION_LOG_DIR,
    COMPACTION_QUEUE_DIR,
)
from store_core.log.log_scan import Gap, SegmentRecords
from store_core.queue.batch_consume_queue import (
    NATIVE_BATCH_CQ_UNIT,
    is_valid,
    max_queue_offset,
)
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.config_files import TopicConfig
    from store_core.files.byte_source import ByteSource
    from store_core.files.store_directory import FileEntry, StoreDirectory
    from store_core.log.log_scan import BatchSizer

    Units = npt.NDArray[np.void]
    Bools = npt.NDArray[np.bool_]

_UNITS_AT_ONCE = 1 << 16
_LONGEST_WAIT_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.5
_DIRECTORIES = (COMPACTION_QUEUE_DIR, COMPACTION_LOG_DIR)
_SEGMENT_NAME = re.compile(r"[0-9]{20}")
_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,8}")
_CLEANUP_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"
_MAX_OFFSET = 2**63 - 1


class CompactedPart(NamedTuple):
    """Records from one file of the compacted log."""

    segment: Segment
    frames: RecordFrames


class CompactionLog(Closing):
    """One queue's compacted log as it was when opened; read-only, a context manager.

    All files stay open, so a broker that replaces them meanwhile changes nothing.

    Parameters
    ----------
    is_live
        Whether a broker has the store open: then, if the files contradict each other, the broker is
        replacing them, and they are read again, for ten seconds at most.
    within
        Queue offsets ``[start, stop)`` of the units to read; all if None.

    Raises
    ------
    StoreReadError
        A file cannot be read, or a broker replaces the files faster than they can be opened.
    StoreFormatError
        A file's name belongs to something that is not a regular file, or is larger than an offset
        can be.
    """

    def __init__(
        self,
        directory: StoreDirectory,
        topic: str,
        queue_id: int,
        *,
        is_live: bool = False,
        within: tuple[int, int] | None = None,
        proved: bool = True,
    ) -> None:
        self.topic, self.queue_id = topic, queue_id
        self._within, self._proved = within, proved
        self._directory = directory
        self._paths = compacted_log_paths(directory, topic, queue_id)
        self._open = ExitStack()
        try:
            self._look_until_whole(is_live=is_live)
        except BaseException:
            self.close()  # the caller cannot: it has no object yet
            raise

    def _look_until_whole(self, *, is_live: bool) -> None:
        """Read the files until they agree; if no broker is writing, a mismatch is damage."""
        deadline, pause = time.monotonic() + _LONGEST_WAIT_S, _FIRST_PAUSE_S
        while True:
            is_stable = self._look()
            is_good = is_stable and not (self.file_gaps or self.unit_gaps)
            if is_good or (is_stable and not is_live):
                return
            if time.monotonic() >= deadline:
                if is_stable:
                    return
                text = "a broker keeps replacing the files here; read again"
                raise StoreReadError(text, self._paths[1])
            self.close()
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    @property
    def min_offset(self) -> int:
        """First queue offset; -1 if it is empty, as in the broker."""
        return int(self.units["base_queue_offset"][0]) if len(self.units) else -1

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message; 0 if it is empty."""
        return max_queue_offset(self.units)

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def parts(self, sizer: BatchSizer) -> Iterator[CompactedPart]:
        """Yield the records of all units, in unit order, each part from one file."""
        at, stop = 0, len(self.units)
        while at < stop:
            some = self.units[at : min(at + sizer.next_rows(), stop)]
            file = int(self._file_of[at])
            others = np.flatnonzero(self._file_of[at : at + len(some)] != file)
            total = np.cumsum(some["message_size"].astype(np.int64))
            fits = int(np.searchsorted(total, sizer.max_bytes, "right"))
            count = max(min(fits, *others[:1].tolist(), len(some)), 1)
            segment, records = self._files[file]
            some = some[:count]
            frames = records.frames_at(some["commit_log_offset"] - segment.from_offset)
            yield CompactedPart(segment, frames)
            at += count

    def files(self) -> list[tuple[Segment, ByteSource]]:
        """Return the files of the log, oldest first; they are open until `close`."""
        return self._sources

    def _look(self) -> bool:
        """Open the files and prove the units; return whether the files stayed the same meanwhile.

        A broker replaces the files of the log first, then those of the queue. So the queue is
        listed before the log, and both again when all files are open.
        """
        self.file_gaps: list[Gap] = []
        self.unit_gaps: list[Gap] = []
        self._files: list[tuple[Segment, SegmentRecords]] = []
        self._sources: list[tuple[Segment, ByteSource]] = []
        self.units = np.empty(0, NATIVE_BATCH_CQ_UNIT)
        self.refused_offsets = np.empty(0, np.int64)
        self._file_of = np.empty(0, np.int64)
        try:
            queue, log = listed = [
                compacted_segments(self._directory.list(path)) for path in self._paths
            ]
            queue_sources = [self._opened(segment) for segment in queue]
            self._sources = [(segment, self._opened(segment)) for segment in log]
            is_stable = listed == [compacted_segments(self._directory.list(p)) for p in self._paths]
        except FileVanishedError:
            return False
        self._files = [(segment, _records(segment, source)) for segment, source in self._sources]
        self._compare_names(queue, log)
        self._take_units(queue, [self._valid_units(*pair) for pair in zip(queue, queue_sources)])
        return is_stable

    def _opened(self, segment: Segment) -> ByteSource:
        return self._open.enter_context(self._directory.open(segment.path))

    def _compare_names(self, queue: list[Segment], log: list[Segment]) -> None:
        """Note files without a partner: a log file and its queue file have the same name."""
        starts = [{segment.from_offset for segment in some} for some in (queue, log)]
        for some, other, what in ((queue, starts[1], "log"), (log, starts[0], "sparse queue")):
            for segment in some:
                if segment.from_offset not in other:
                    reason = f"the {what} has no file of this name"
                    size = segment.size if some is log else 0
                    self.file_gaps.append(Gap(segment.from_offset, size, segment.path, 0, reason))

    def _valid_units(self, segment: Segment, source: ByteSource) -> Units:
        """Return the units of a file before the first invalid one, as consumers get them."""
        count = source.size // BATCH_CQ_UNIT.size
        view = source.view(0, count * BATCH_CQ_UNIT.size)
        units = BATCH_CQ_UNIT.table(view)
        valid = is_valid(units)
        end = int(np.argmin(np.append(valid, False)))
        behind = int(np.count_nonzero(valid[end:]))
        if behind:
            reason = f"{behind} units after an invalid one: consumers do not get their messages"
            at = end * BATCH_CQ_UNIT.size
            self.file_gaps.append(Gap(segment.from_offset, 0, segment.path, at, reason))
        return units[:end].astype(NATIVE_BATCH_CQ_UNIT)

    def _take_units(self, queue: list[Segment], found: list[Units]) -> None:
        """Set `units` to those in order whose record exists; note the others as gaps."""
        units = np.concatenate([self.units, *found])
        at = np.concatenate([np.empty(0, np.int64), *(np.arange(len(some)) for some in found)])
        owner = np.repeat(np.arange(len(found)), [len(some) for some in found])
        if self._within is not None:
            base, (start, stop) = units["base_queue_offset"], self._within
            rows = np.flatnonzero((base >= start) & (base < stop))
            units, at, owner = units[rows], at[rows], owner[rows]
        if not self._proved:
            self.units = units
            return
        starts = np.array([segment.from_offset for segment, _ in self._files], np.int64)
        file_of = np.searchsorted(starts, units["commit_log_offset"], "right") - 1
        good = np.zeros(len(units), bool)
        for number, (segment, records) in enumerate(self._files):
            rows = np.flatnonzero(file_of == number)
            within = units["commit_log_offset"][rows] < segment.from_offset + segment.size
            good[rows[within]] = self._have_records(segment, records, units[rows[within]])
        ascends = _ascends(units["base_queue_offset"], good)
        ascends &= _ascends(units["commit_log_offset"], good)
        refused = np.flatnonzero(~(good & ascends))
        self.refused_offsets = units["base_queue_offset"][refused]
        for row in refused.tolist():
            reason = (
                "follows a unit with a larger offset" if good[row] else "has no matching record"
            )
            position = int(at[row]) * BATCH_CQ_UNIT.size
            self._note_unit(queue[int(owner[row])], position, units[row], reason)
        self.units, self._file_of = units[good & ascends], file_of[good & ascends]

    def _have_records(self, segment: Segment, records: SegmentRecords, units: Units) -> Bools:
        """Return which units have the place, size and queue offset of a record of this queue."""
        order = np.argsort(units["commit_log_offset"], kind="stable")
        good = np.zeros(len(units), bool)
        for first in range(0, len(units), _UNITS_AT_ONCE):
            rows = order[first : first + _UNITS_AT_ONCE]
            some = units[rows]
            frames = records.frames_at(some["commit_log_offset"] - segment.from_offset)
            same = frames.ok & (frames.column("total_size") == some["message_size"])
            same &= frames.column("queue_offset") == some["base_queue_offset"]
            same &= frames.column("queue_id") == self.queue_id
            which = np.flatnonzero(same)
            good[rows[which]] = are_of_topic(frames, which, self.topic)
        return good

    def _note_unit(self, segment: Segment, position: int, unit: np.void, reason: str) -> None:
        place, size = int(unit["commit_log_offset"]), int(unit["message_size"])
        text = (
            f"the unit of queue offset {unit['base_queue_offset']}, which points at {size} bytes "
            f"at {place} of the compacted log, {reason}"
        )
        self.unit_gaps.append(Gap(place, size, segment.path, position, text))


def _ascends(values: npt.NDArray[np.int64], good: Bools) -> Bools:
    """Return which values are larger than all good ones before them."""
    largest = np.maximum.accumulate(np.concatenate([[-1], np.where(good, values, -1)]))
    larger: Bools = values > largest[:-1]
    return larger


def _records(segment: Segment, source: ByteSource) -> SegmentRecords:
    start, size = segment.from_offset, source.size
    return SegmentRecords(source, start, size, start + size)


# Source: RocketMQ ``CompactionStore``, ``MappedFileQueue`` (5.3.3).
def compacted_queues(directory: StoreDirectory) -> tuple[tuple[str, int], ...]:
    """Return topic and queue id of each compacted log, sorted; opens no file.

    Raises
    ------
    StoreReadError
        A directory cannot be read.
    """
    roots = (directory.resolve(COMPACTION_DIR, name) for name in _DIRECTORIES)
    found = {
        (topic.name, int(queue.name))
        for root in roots
        for topic in directory.list(root)
        if topic.is_dir
        for queue in directory.list(topic.path)
        if queue.is_dir and _QUEUE_ID.fullmatch(queue.name)
    }
    return tuple(sorted(found))


def is_compacted(config: TopicConfig | None) -> bool:
    """Return whether a broker serves a topic from compacted logs; False if ``config`` is None."""
    return config is not None and config.attributes.get(_CLEANUP_POLICY) == _COMPACTION


def compacted_log_paths(directory: StoreDirectory, topic: str, queue_id: int) -> tuple[str, str]:
    """Return the directories of a compacted log's sparse queue and of its log."""
    queue, log = (
        directory.resolve(COMPACTION_DIR, name, topic, str(queue_id)) for name in _DIRECTORIES
    )
    return queue, log


def compacted_segments(entries: Sequence[FileEntry]) -> list[Segment]:
    """Return the segments in a listing; files being replaced have another name or directory."""
    named = [entry for entry in entries if _SEGMENT_NAME.fullmatch(entry.name)]
    for entry in named:
        if entry.is_dir or entry.not_a_file:
            kind = entry.not_a_file or "a directory"
            raise StoreFormatError(f"is {kind}, where a regular file was expected", entry.path)
        if int(entry.name) > _MAX_OFFSET - entry.size:
            raise StoreFormatError("the name is larger than a byte offset can be", entry.path)
    return [Segment(int(entry.name), entry.path, entry.size) for entry in named]


def strange_files(directory: StoreDirectory, topic: str, queue_id: int) -> list[FileEntry]:
    """Return files whose name is not an offset; a broker does not start if there are any."""
    return [
        entry
        for path in compacted_log_paths(directory, topic, queue_id)
        for entry in directory.list(path)
        if not entry.is_dir and not _SEGMENT_NAME.fullmatch(entry.name)
    ]
