# SPDX-License-Identifier: Apache-2.0
"""Append the records of one log to another: their bytes stay, their offsets are reassigned."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.codec.crc32 import crc_failures, rows_with_property_crc
from store_core.codec.inner_columns import undecodable_bodies
from store_core.codec.java_string import decode_utf8
from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.record_encoder import EncodedRecords
from store_core.codec.record_frames import RecordFrames
from store_core.layout import (
    BORNHOST_V6_FLAG,
    HEADERS,
    NOT_QUEUED_BIT,
    STOREHOST_V6_FLAG,
    TRANSACTION_MASK,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_PREPARED_TYPE,
)
from store_core.queue.queue_directories import is_directory_name
from store_core.tools.salvage.inner_rows import InnerRows, marked_properties
from store_core.tools.salvage.moved_offsets import NewQueues, RecordRuns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from store_core.log.commit_log_appender import CommitLogAppender

    Int64s = npt.NDArray[np.int64]

_KEY_BITS = 32  # of the queue id in a key, below the topic's code
_SLACK_MS = 1000
_CHECKED_SLACK_MS = 10_000  # `check` reports a time that differs by more from both neighbours,
_END_SLACK_MS = 10 * 365 * 86_400_000  # and the first or last by more than this from its neighbour
_NONE = np.empty(0, np.int64)
_LIMIT_MS = 1 << 61  # differences of clipped times fit into 64 bits


class LogCopy:
    """Copies records batch by batch, in log order.

    Queue offsets have no gaps: the first record of a queue keeps its own (or gets 0, see
    `NewQueues`), and those after lost records close up. Prepared and rolled back messages, which
    are in no queue, keep theirs. A record that refers to its prepared message by physical offset
    gets that message's new one, if it was copied. Hosts, flags and bodies stay as stored; queue
    offsets in properties follow (`InnerRows`), implausible store times are corrected
    (`StoreTimes`).

    Parameters
    ----------
    is_batch_topic
        Returns whether the queues of a topic are batch queues; None if unknown.
    new_block
        Returns a block of the given size in bytes for the next batch.

    Attributes
    ----------
    records, record_bytes
        Number of records copied, and their bytes in the new log.
    last_record_offset, last_store_timestamp
        Start of the last record in the new log (-1 if there is none), and its store time (ms).
    rejected, undecodable
        Records not copied, and records copied with a body that does not match their flags.
    """

    def __init__(
        self,
        appender: CommitLogAppender,
        is_batch_topic: Callable[[str], bool | None],
        dispatch: Callable[[RecordFrames], None],
        new_block: Callable[[int], npt.NDArray[np.uint8]],
        *,
        has_light: bool,
    ) -> None:
        self.records = self.record_bytes = self.last_store_timestamp = 0
        self.last_record_offset = -1
        self.rejected: list[FaultyRecord] = []
        self.undecodable: list[FaultyRecord] = []
        self.places = RecordRuns()
        self.queues = NewQueues()
        self.store_times = StoreTimes()
        self._appender, self._dispatch, self._new_block = appender, dispatch, new_block
        self._topics = TopicCodes()
        self._inner = InnerRows(is_batch_topic, self.queues, has_light=has_light)

    @property
    def batch_topics(self) -> frozenset[str]:
        """Topics with batch queues, as far as the records have shown."""
        return frozenset(self._inner.batch_topics)

    @property
    def light_names(self) -> int:
        """How often records name light queues although the store has none."""
        return self._inner.light_names

    def has_batch_queues(self, topic: str) -> bool:
        """Return whether the queues of a topic are batch queues, as far as records have shown."""
        return topic in self._inner.batch_topics

    def accepted(self, frames: RecordFrames) -> tuple[RecordFrames, Int64s]:
        """Return the good records and the codes of their topics; add the others to ``rejected``."""
        codes = self._topics.codes_of(frames)
        bad = rejected_rows(frames, codes, self._appender.max_record_bytes)
        return self._without(frames, codes, bad)

    def append(self, frames: RecordFrames, codes: Int64s, next_times: Int64s = _NONE) -> None:
        """Append accepted records.

        Parameters
        ----------
        next_times
            Store times of the first accepted records after them; empty if there are none.

        Raises
        ------
        StoreWriteError
            A segment cannot be created or written.
        """
        most_bytes = self._appender.max_record_bytes
        frames, queue_offsets, changed = self._numbered(frames, codes, most_bytes)
        if len(frames) == 0:
            return
        self.undecodable += [faulty_record(frames, *bad) for bad in undecodable_bodies(frames)]
        old = frames.column("commit_log_offset")
        times = self.store_times.plausible(frames.column("store_timestamp"), old, next_times)
        batch = NewRecords(frames, changed, self._new_block)
        offsets = []
        for piece in batch.pieces(self.places):
            appended = self._append(piece.records, queue_offsets[piece.rows], times[piece.rows])
            self.places.add(
                old[piece.rows], batch.old_sizes[piece.rows], appended, piece.records.sizes
            )
            offsets.append(appended)
        new = np.concatenate(offsets)
        self.records += len(new)
        self.record_bytes += int(batch.sizes.sum())
        self.last_record_offset, self.last_store_timestamp = int(new[-1]), int(times[-1])
        self._dispatch(RecordFrames(batch.block, new - batch.starts, batch.starts))

    def _without(
        self, frames: RecordFrames, codes: Int64s, rejected: dict[int, FaultyRecord]
    ) -> tuple[RecordFrames, Int64s]:
        """Return the records and the codes of their topics, without the rejected ones."""
        if not rejected:
            return frames, codes
        self.rejected += rejected.values()
        rows = np.delete(np.arange(len(frames)), list(rejected))
        return frames.take(rows), codes[rows]

    def _numbered(
        self, frames: RecordFrames, codes: Int64s, most_bytes: int
    ) -> tuple[RecordFrames, Int64s, dict[int, bytes]]:
        """Return the records that can be copied, their queue offsets, and new bytes of some rows.

        A record without room for its new offsets is rejected, and the others are renumbered.
        """
        marked = marked_properties(frames)
        before, light_names = self.queues.saved() if marked else {}, self._inner.light_names
        while len(frames):
            topic_of = partial(_topic_of, self._topics.names, codes)
            inner = self._inner.look_at(frames, marked, topic_of)
            queue_offsets = self._number(frames, codes, inner.counts)
            changed, reasons = inner.new_records(queue_offsets, most_bytes)
            if not reasons:
                return frames, queue_offsets, changed
            self.queues.restore(before)
            self._inner.light_names = light_names
            bad = {row: faulty_record(frames, row, reason) for row, reason in reasons.items()}
            frames, codes = self._without(frames, codes, bad)
            marked = marked_properties(frames)
        return frames, np.empty(0, np.int64), {}

    def _number(self, frames: RecordFrames, codes: npt.NDArray[np.int64], counts: Int64s) -> Int64s:
        """Return the queue offsets in the new store."""
        old = frames.column("queue_offset")
        new = old.copy()
        queued = np.flatnonzero(frames.column("sys_flag") & NOT_QUEUED_BIT == 0)
        keys = (codes << _KEY_BITS | frames.column("queue_id"))[queued]
        order = np.argsort(keys, kind="stable")
        firsts = np.flatnonzero(np.concatenate([[True], np.diff(keys[order]) != 0]))
        for part in np.split(queued[order], firsts[1:]):
            if len(part):
                topic = self._topics.names[int(codes[part[0]])]
                queue = self.queues.at(topic, int(frames.column("queue_id")[part[0]]))
                new[part] = queue.assign(old[part], counts[part])
        return new

    def _append(
        self, records: EncodedRecords, queue_offsets: Int64s, store_timestamps: Int64s
    ) -> Int64s:
        """Append records, to as many segments as they need; return their offsets."""
        done, new = 0, []
        while done < len(records):
            appended = self._appender.append_records(
                records, queue_offsets, first=done, store_timestamps=store_timestamps
            )
            done = appended.stop
            new.append(appended.commit_log_offsets)
        return np.concatenate(new)


def _topic_of(names: list[str], codes: Int64s, row: int) -> str:
    return names[int(codes[row])]


class Piece(NamedTuple):
    """Some rows of a batch, to be appended together."""

    rows: slice
    records: EncodedRecords


class NewRecords:
    """The records of a batch, back to back.

    Parameters
    ----------
    rewritten
        New bytes of the records that change, by row.
    new_block
        Returns a block of the given size in bytes, to be filled.

    Attributes
    ----------
    block, starts, sizes
        The new bytes, and the start and size of each record in them.
    """

    def __init__(
        self,
        frames: RecordFrames,
        rewritten: Mapping[int, bytes],
        new_block: Callable[[int], npt.NDArray[np.uint8]],
    ) -> None:
        self._frames = frames
        self.old_sizes = frames.column("total_size").astype(np.int64)
        self.sizes = self.old_sizes.copy()
        for row, record in rewritten.items():
            self.sizes[row] = len(record)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.block = new_block(int(self.sizes.sum()))
        self._copy(rewritten)
        flags = frames.column("sys_flag")
        in_v4, in_v6 = (HEADERS[v6, False].at("store_timestamp") for v6 in (False, True))
        self._times_at = self.starts + np.where(flags & BORNHOST_V6_FLAG, in_v6, in_v4)
        self._prepared = frames.column("prepared_transaction_offset")
        kind = flags & TRANSACTION_MASK
        ended = (kind != TRANSACTION_NOT_TYPE) & (kind != TRANSACTION_PREPARED_TYPE)
        self._referring: list[int] = np.flatnonzero(ended & (self._prepared > 0)).tolist()

    def pieces(self, places: RecordRuns) -> Iterator[Piece]:
        """Yield all rows in order; the caller adds each piece to ``places`` before the next one.

        In a piece, either all rows have a CRC of the whole record or none has, and rows refer only
        to prepared messages of earlier pieces, whose new places are known by then.
        """
        has_crc = np.zeros(len(self.sizes), bool)
        has_crc[rows_with_property_crc(self._frames)] = True
        bounds = [*self._firsts(has_crc), len(self.sizes)]
        referring = iter([*self._referring, len(self.sizes)])
        row = next(referring)
        for first, stop in zip(bounds, bounds[1:]):
            while row < stop:
                self._refer(row, places)
                row = next(referring)
            yield Piece(slice(first, stop), self._encoded(first, stop, bool(has_crc[first])))

    def _firsts(self, has_crc: npt.NDArray[np.bool_]) -> list[int]:
        changes = (np.flatnonzero(has_crc[1:] != has_crc[:-1]) + 1).tolist()
        firsts, old = [0], self._frames.column("commit_log_offset")
        for row in sorted({*changes, *self._referring}):
            if row in changes or old[firsts[-1]] <= self._prepared[row] < old[row]:
                firsts.append(row)
        return sorted(set(firsts))

    def _refer(self, row: int, places: RecordRuns) -> None:
        """Make a record refer to the new place of its prepared message."""
        new = places.new_offset(int(self._prepared[row]))
        if new is None:
            return
        flags = int(self._frames.column("sys_flag")[row])
        layout = HEADERS[bool(flags & BORNHOST_V6_FLAG), bool(flags & STOREHOST_V6_FLAG)]
        at = int(self.starts[row]) + layout.at("prepared_transaction_offset")
        self.block[at : at + 8] = np.frombuffer(new.to_bytes(8, "big"), np.uint8)

    def _encoded(self, first: int, stop: int, property_crc: bool) -> EncodedRecords:
        return EncodedRecords(
            block=self.block,
            starts=self.starts[first:stop],
            sizes=self.sizes[first:stop],
            body_crc=self._frames.column("body_crc")[first:stop],
            store_timestamp_at=self._times_at[first:stop],
            property_crc=property_crc,
        )

    def _copy(self, rewritten: Mapping[int, bytes]) -> None:
        position, data = self._frames.position, self._frames.data
        ends = position + self.old_sizes
        is_new = np.zeros(len(position), bool)
        is_new[list(rewritten)] = True
        # Stretches without gaps and without changed records are copied in one piece.
        breaks = (position[1:] != ends[:-1]) | is_new[1:] | is_new[:-1]
        firsts = [0, *(np.flatnonzero(breaks) + 1).tolist()]
        parts = []
        for first, stop in zip(firsts, [*firsts[1:], len(position)]):
            if is_new[first]:
                parts.append(np.frombuffer(rewritten[first], np.uint8))
            else:
                parts.append(data[int(position[first]) : int(ends[stop - 1])])
        np.concatenate(parts, out=self.block)


class FaultyRecord(NamedTuple):
    """A damaged record whose frame is intact."""

    commit_log_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    reason: str


class TopicCodes:
    """Assigns a code to each topic; names that no broker could have used get -1."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._code_of: dict[bytes, int] = {}

    def codes_of(self, frames: RecordFrames) -> npt.NDArray[np.int64]:
        """Return the code of each row's topic."""
        numbers, names = MessageColumns(frames).topic_numbers()
        return np.array([self._code(name) for name in names], np.int64)[numbers]

    def _code(self, raw: bytes) -> int:
        code = self._code_of.get(raw)
        if code is None:
            code = -1
            try:
                name = raw.decode()
            except UnicodeDecodeError:
                name = ""
            if is_directory_name(name):
                code = len(self.names)
                self.names.append(name)
            self._code_of[raw] = code
        return code


def rejected_rows(
    frames: RecordFrames, topic_codes: npt.NDArray[np.int64], most_bytes: int
) -> dict[int, FaultyRecord]:
    """Return the rows that must not be copied, with their descriptions."""
    reasons = crc_failures(frames)
    for row in np.flatnonzero(topic_codes < 0).tolist():
        reasons.setdefault(row, "no queue can have its topic")
    for row in np.flatnonzero(frames.column("queue_id") < 0).tolist():
        reasons.setdefault(row, "its queue id is negative")
    for row in np.flatnonzero(frames.column("total_size") > most_bytes).tolist():
        reasons.setdefault(row, "it leaves no room for the blank record at the end of a segment")
    return {row: faulty_record(frames, row, reason) for row, reason in sorted(reasons.items())}


def faulty_record(frames: RecordFrames, row: int, reason: str) -> FaultyRecord:
    """Return the description of a record and its fault."""
    start = int(frames.topic_start[row])
    topic = frames.data[start : start + int(frames.topic_length[row])].tobytes()
    names = ("commit_log_offset", "total_size", "queue_id", "queue_offset")
    offset, size, queue_id, queue_offset = (int(frames.column(name)[row]) for name in names)
    return FaultyRecord(
        commit_log_offset=offset,
        size=size,
        topic=decode_utf8(topic),
        queue_id=queue_id,
        queue_offset=queue_offset,
        reason=reason,
    )


class CorrectedTime(NamedTuple):
    """A store time (ms) that cannot be right, and its replacement."""

    commit_log_offset: int
    store_timestamp: int
    new_store_timestamp: int


class StoreTimes:
    """Corrects implausible store times of records, in log order.

    A broker's clock moves forward and may be set back, but it does not jump for a single record.
    Such a record gets the time of the one before it: with its own, a search by time would end at
    it, and an index file might begin after its end.
    """

    def __init__(self) -> None:
        self.corrected: list[CorrectedTime] = []
        self._last: int | None = None

    def plausible(
        self, store_timestamps: Int64s, commit_log_offsets: Int64s, next_times: Int64s = _NONE
    ) -> Int64s:
        """Return the times of the next records, corrected.

        Parameters
        ----------
        store_timestamps, commit_log_offsets
            Of the records of this call, at least one.
        next_times
            Store times of the first records after them, which may be odd too; empty if none follow.
        """
        times = np.concatenate([store_timestamps, next_times])
        corrected = np.zeros(len(times), bool)
        # The second of two odd times in a row shows only when the first is corrected.
        while len(rows := np.flatnonzero(~corrected & self._odd(times, not len(next_times)))):
            corrected[rows] = True
            for row in np.flatnonzero(corrected).tolist():
                times[row] = times[row - 1] if row else self._before(times, corrected)
        times = times[: len(store_timestamps)]
        for row in np.flatnonzero(corrected[: len(times)]).tolist():
            found = (commit_log_offsets[row], store_timestamps[row], times[row])
            self.corrected.append(CorrectedTime(*map(int, found)))
        self._last = int(times[-1])
        return times

    def _before(self, times: Int64s, corrected: npt.NDArray[np.bool_]) -> int:
        """Return the time of the record before; the very first is judged by later ones."""
        if self._last is not None:
            return self._last
        is_later = len(times) > 2 and times[0] > times[2]  # noqa: PLR2004
        wanted = 2 if is_later else min(1, len(times) - 1)
        good = np.flatnonzero(~corrected)
        return int(times[good[0] if corrected[wanted] and len(good) else wanted])

    def _odd(self, store_timestamps: Int64s, is_end: bool) -> npt.NDArray[np.bool_]:
        times = np.clip(store_timestamps, -_LIMIT_MS, _LIMIT_MS)
        is_begin = self._last is None
        before = np.concatenate([times[:1] if self._last is None else [self._last], times[:-1]])
        after = np.concatenate([times[1:], times[-1:]])
        if is_begin and len(times) > 2 and times[0] > times[2]:  # noqa: PLR2004
            before[0] = times[2]  # the very first, if later, is judged by its followers
        goes_on = after >= before - _SLACK_MS
        outside = (times < before - _SLACK_MS) | (times > np.maximum(before, after) + _SLACK_MS)
        low, high = np.minimum(before, after), np.maximum(before, after)
        away = np.maximum(low - times, times - high) > _CHECKED_SLACK_MS + (high - low)
        wrong: npt.NDArray[np.bool_] = (goes_on & outside) | away
        # If one leaps and the next falls back, only one of the two is odd.
        leaps, falls = times > high + _SLACK_MS, times < before - _SLACK_MS
        wrong[:-1] &= ~(leaps[:-1] & (wrong & falls)[1:])
        if is_begin and len(times) > 1 and not wrong[:2].any():
            wrong[0] = abs(int(times[0]) - int(times[1])) > _END_SLACK_MS
        if not is_end:
            wrong[-1] = False  # its next neighbour is unknown here
        elif not wrong[-2:].any():
            wrong[-1] = abs(int(times[-1]) - int(before[-1])) > _END_SLACK_MS
        return wrong
