# SPDX-License-Identifier: Apache-2.0
"""Check compacted logs: units against records and back, and both against the commit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import pa, pc
from store_core.codec.crc32 import body_crc_failures
from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.message_codec import split_keys
from store_core.errors import StoreError
from store_core.layout import PROPERTY_KEYS, PROPERTY_UNIQ_KEY
from store_core.log.log_scan import BatchSizer, Gap, LogSlice, scan_slice
from store_core.queue.compaction_log import CompactionLog, compacted_queues, strange_files
from store_core.read.queue_records import queue_columns
from store_core.state.store_state import StoreState
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import unread

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.snapshot.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings

_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 32 << 20
_SHOWN = 5
_MOST_PLACES, _ANY_TIME = 64, 1 << 62
_ROWS_AT_ONCE = 1 << 20


def check_compaction(snapshot: StoreSnapshot, findings: Findings, counts: CheckCounts) -> None:
    """Report damage to compacted logs, and how many messages only they have.

    A record's own CRC over all its bytes is not compared: in the copy, a broker changes the
    physical offset but not that CRC.

    Memory: 62 bytes a unit of one queue, its keys (`NewestOfKeys`), and a batch of records.
    """
    is_live = snapshot.state is StoreState.LIVE
    for topic, queue_id in compacted_queues(snapshot.directory):
        place = f"compaction/{topic}/{queue_id}"
        try:
            with CompactionLog(snapshot.directory, topic, queue_id, is_live=is_live) as log:
                _Queue(snapshot, log, place, findings, counts).check()
                _only_there(snapshot, log, place, findings)
                if not is_live:
                    _strange_files(snapshot, topic, queue_id, findings)
        except StoreError as err:
            kind = unread(err, FindingKind.COMPACTED_FILES)
            findings.add(kind, place, examples=[str(err)])


class _Queue:
    """Checks one compacted log."""

    def __init__(
        self,
        snapshot: StoreSnapshot,
        log: CompactionLog,
        place: str,
        findings: Findings,
        counts: CheckCounts,
    ) -> None:
        self._snapshot, self._log, self._place = snapshot, log, place
        self._findings, self._counts = findings, counts
        self._newest = NewestOfKeys()
        self._told = [log.refused_offsets]

    def check(self) -> None:
        log = self._log
        self._counts.compacted_queues += 1
        self._counts.compacted_records += len(log.units)
        self._gaps(FindingKind.COMPACTED_FILES, log.file_gaps)
        self._gaps(FindingKind.COMPACTED_UNIT, log.unit_gaps)
        for segment, frames in log.parts(BatchSizer(_BATCH_ROWS, _BATCH_BYTES)):
            for bad in body_crc_failures(frames):
                self._findings.add(
                    FindingKind.COMPACTED_BODY,
                    segment.path,
                    position=int(frames.position[bad.row]),
                    examples=[f"queue offset {frames.column('queue_offset')[bad.row]}"],
                )
            self._newest.add(MessageColumns(frames, raw_body=True))
        self._records_without_unit()
        self._lost()

    def _gaps(self, kind: FindingKind, gaps: list[Gap]) -> None:
        for gap in gaps:
            self._findings.add(kind, gap.path, position=gap.position, examples=[gap.reason])

    def _records_without_unit(self) -> None:
        """Report records that no unit names; after the last unit, a crash may leave some."""
        named = self._log.units["commit_log_offset"]
        last = int(named[-1]) if len(named) else 0
        for segment, source in self._log.files():
            start, end = segment.from_offset, segment.from_offset + segment.size
            here = named[(named >= start) & (named < end)]
            stop = last if start <= last < end else min(end, max(start, last))
            part = LogSlice(segment.path, start, segment.size, start, stop, end)
            for found in scan_slice(source, part, BatchSizer(_BATCH_ROWS, _BATCH_BYTES)):
                if isinstance(found, Gap):  # if a unit names it, `unit_gaps` has it
                    continue
                starts = found.column("commit_log_offset")
                alone = ~np.isin(starts, here)
                self._told.append(found.column("queue_offset")[alone])
                self._without_unit(segment.path, start, starts[alone])

    def _without_unit(self, path: str, begin: int, starts: npt.NDArray[np.int64]) -> None:
        if len(starts):
            self._findings.add(
                FindingKind.COMPACTED_WITHOUT_UNIT,
                path,
                position=int(starts[0]) - begin,
                count=len(starts),
                examples=[f"record at byte {at - begin}" for at in starts[:_SHOWN].tolist()],
            )

    def _lost(self) -> None:
        """Report newest messages of keys that the commit log has and the compacted log lacks.

        Only between its first and last message: a slave may not have copied earlier ones from its
        master yet. Messages that other findings report are left out.
        """
        log = self._log
        try:
            for columns in self._in_commit_log():
                self._newest.add(columns)
        except StoreError:  # the checks of log and queue report it
            return
        there = np.concatenate([log.units["base_queue_offset"], *self._told])
        missing = np.setdiff1d(self._newest.kept_offsets(), there).tolist()
        lost = [offset for offset in missing if not self._has_other_keys(offset)]
        if lost:
            self._findings.add(
                FindingKind.COMPACTED_LOST,
                self._place,
                position=lost[0],
                count=len(lost),
                examples=[f"queue offset {offset}" for offset in lost[:_SHOWN]],
            )

    def _has_other_keys(self, queue_offset: int) -> bool:
        """Return whether the index has a message's unique key, but not all of its KEYS.

        Then the KEYS, which no CRC covers, are damaged: a message that a newer one of its key
        replaced looks like the only one of another key.
        """
        reach = (self._log.topic, self._log.queue_id, queue_offset, queue_offset + 1)
        try:
            for columns in queue_columns(self._snapshot, *reach):
                unique = self._indexed(columns, PROPERTY_UNIQ_KEY)
                if any(unique) and not all(self._indexed(columns, PROPERTY_KEYS)):
                    return True
        except StoreError:  # the check of the index reports it
            return False
        return False

    def _indexed(self, columns: MessageColumns, name: str) -> list[bool]:
        """Return for each key in a property of a message whether the index finds the message."""
        index, topic = self._snapshot.index, self._log.topic
        at = int(columns.frames.column("commit_log_offset")[0])
        keys = split_keys(columns.property_values(name).to_pylist()[0] or "")
        return [at in index.query_offset(topic, key, _MOST_PLACES, 0, _ANY_TIME)[0] for key in keys]

    def _in_commit_log(self) -> Iterator[MessageColumns]:
        """Yield the commit log's messages of the queue, within the compacted log's range."""
        log = self._log
        reach = (log.topic, log.queue_id, log.min_offset, log.max_offset)
        for columns in queue_columns(self._snapshot, *reach):
            frames = columns.frames
            offset, queue_id = frames.column("queue_offset"), frames.column("queue_id")
            own = (offset >= log.min_offset) & (offset < log.max_offset)
            own &= queue_id == log.queue_id
            own &= pc.equal(columns.column("topic"), log.topic).to_numpy(zero_copy_only=False)
            yield columns.of_rows(np.flatnonzero(own))


def _only_there(
    snapshot: StoreSnapshot, log: CompactionLog, place: str, findings: Findings
) -> None:
    """Report how many messages only the compacted log has: those before the queue's first."""
    if snapshot.kind.queue_database or (log.topic, log.queue_id) not in snapshot.queue_paths:
        return
    try:
        first = snapshot.queue_range(log.topic, log.queue_id).min_offset
    except StoreError:  # the check of the queue reports it
        return
    count = int(np.count_nonzero(log.units["base_queue_offset"] < first))
    if count:
        text = f"{count} messages before queue offset {first}"
        findings.add(FindingKind.COMPACTED_ONLY, place, count=count, examples=[text])


def _strange_files(snapshot: StoreSnapshot, topic: str, queue_id: int, findings: Findings) -> None:
    """Report files that a broker cannot load as segments, such as ``….delete`` after a crash."""
    for entry in strange_files(snapshot.directory, topic, queue_id):
        findings.add(FindingKind.STRANGE_FILE, entry.path, examples=[entry.name])


class NewestOfKeys:
    """Finds the newest message of each key, from messages of one queue in any order.

    A key is the whole text of ``KEYS``; messages without one are skipped, as a broker does not
    retain them in a compacted log. Memory: the keys, twice, and those of a million messages.

    Source: RocketMQ ``CompactionLog.getOffsetMap``, ``shouldRetainMsg`` (release 5.3.3).
    """

    def __init__(self) -> None:
        self._held: list[Any] = []
        self._rows, self._limit = 0, _ROWS_AT_ONCE

    def add(self, columns: MessageColumns) -> None:
        """Add messages; some may be added twice."""
        frames, keys = columns.frames, columns.property_values(PROPERTY_KEYS)
        has_key = pc.greater(pc.binary_length(pc.utf8_trim_whitespace(keys)), 0)
        # Both in one number: the largest of a key also says whether the newest has a body.
        number = frames.column("queue_offset") << 1 | (frames.column("body_length") > 0)
        table = pa.table({"key": keys, "number": pa.array(number.astype(np.int64))})
        self._held.append(table.filter(has_key))
        self._rows += len(self._held[-1])
        if self._rows > self._limit:
            self._fold()
            self._limit = self._rows + max(self._rows, _ROWS_AT_ONCE)

    def kept_offsets(self) -> npt.NDArray[np.int64]:
        """Return the queue offsets of the newest messages, ascending.

        Those without a body are left out: a broker drops them with all older ones of their keys.
        """
        if not self._held:
            return np.empty(0, np.int64)
        self._fold()
        numbers = self._held[0].column("number").to_numpy()
        offsets: npt.NDArray[np.int64] = np.sort(numbers[numbers & 1 == 1] >> 1)
        return offsets

    def _fold(self) -> None:
        """Reduce the rows to one a key."""
        groups = pa.concat_tables(self._held).group_by("key", use_threads=False)
        newest = groups.aggregate([("number", "max")])
        self._held = [newest.select(["key", "number_max"]).rename_columns(["key", "number"])]
        self._rows = len(newest)
