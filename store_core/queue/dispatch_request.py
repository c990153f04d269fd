# SPDX-License-Identifier: Apache-2.0
"""Dispatch requests, in columns: what queues need to know of many records.

Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``, ``DispatchRequest``, ``LmqDispatch``
(release 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

import numpy as np

from store_core.arrow import pa
from store_core.codec.java_string import (
    decode_utf8,
    java_integer,
    java_split,
    string_hash,
    string_hashes,
)
from store_core.codec.message_batch_codec import MessageColumns
from store_core.layout import (
    LMQ_PREFIX,
    NOT_QUEUED_BIT,
    PROPERTY_DELAY,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
    PROPERTY_TAGS,
    SCHEDULE_TOPIC,
    TRANSACTION_MASK,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.codec.message_batch_codec import RecordTexts
    from store_core.codec.record_frames import RecordFrames

    Int64s = npt.NDArray[np.int64]
    Objects = npt.NDArray[np.object_]
    FilterBitmapsOf = Callable[[MessageColumns], Optional[Objects]]
    """Returns each record's filter bitmap (None without one), or None if no record has one."""

LMQ_QUEUE_ID = 0
ROUND_BYTES = 32 << 20
"""A running store adds units to queues in rounds; the records of one round start at most this far
apart. Other processes that read such a store rely on it."""
_NEVER_MULTI = ("%RETRY%", "rmq_sys_")
_MULTI_SEPARATOR = ","
_UNKNOWN_LEVEL_DELAY_MS = 1000
_FEW_ROWS = 64  # up to here a dict numbers their queues as fast as Arrow
_ONLY_IN_COLUMNS = (PROPERTY_INNER_NUM, PROPERTY_INNER_MULTI_DISPATCH)
_MAX_DENSE_QUEUES = 1 << 16  # codes of 16 bits are sorted by radix: 3 times as fast


@dataclass(frozen=True)
class DispatchRequests:
    """Columns of n requests in log order; each row goes to one queue.

    Attributes
    ----------
    tags_code
        Java's hash of TAGS; in the schedule topic the time (ms) of delivery.
    base_queue_offset, batch_size
        First queue offset and number of messages of an inner batch; for other records their queue
        offset and 1.
    transaction_type
        Bits of the sys flag: 0, 4 (prepared), 8 (commit) or 12 (rollback).
    filter_bitmap
        Bitmap of the consumers whose filter accepts the message (`FilterBitmaps`); None in rows
        without one, or instead of the column if no row has one.
    """

    topics: Sequence[str]
    topic_code: npt.NDArray[np.int32]
    queue_id: npt.NDArray[np.int32]
    queue_offset: Int64s
    commit_log_offset: Int64s
    message_size: npt.NDArray[np.int32]
    tags_code: Int64s
    store_timestamp: Int64s
    base_queue_offset: Int64s
    batch_size: npt.NDArray[np.int16]
    transaction_type: npt.NDArray[np.int32]
    light: npt.NDArray[np.bool_]
    filter_bitmap: Objects | None = None

    def __len__(self) -> int:
        return len(self.commit_log_offset)

    def take(self, rows: Any) -> DispatchRequests:
        """Return the rows selected by an array, a mask, or a slice (which copies nothing)."""
        part = object.__new__(DispatchRequests)  # a frozen class's ``__init__`` is slow
        values, own = part.__dict__, self.__dict__
        values["topics"] = self.topics
        for name in _COLUMNS:
            values[name] = own[name][rows]
        if self.filter_bitmap is not None:
            values["filter_bitmap"] = self.filter_bitmap[rows]
        return part

    def queued(self) -> DispatchRequests:
        """Return the rows that get a unit: all except prepared and rolled back messages."""
        wanted = self.transaction_type & NOT_QUEUED_BIT == 0
        return self if wanted.all() else self.take(wanted)

    def wrongly_unqueued(self) -> DispatchRequests:
        """Return the rows marked as prepared or rolled back that have a queue offset.

        Brokers store such messages with queue offset 0, so one of the two fields, which no checksum
        covers, has changed since.
        """
        unqueued = (self.transaction_type & NOT_QUEUED_BIT != 0) & ~self.light
        return self.take(unqueued & (self.queue_offset != 0))

    def by_queue(self) -> Iterator[tuple[str, int, DispatchRequests]]:
        """Yield (topic, queue id, rows in order) of each queue."""
        if len(self) == 0:
            return
        if len(self) == 1:  # often, where single messages are put
            yield self.topics[int(self.topic_code[0])], int(self.queue_id[0]), self
            return
        key = (self.topic_code.astype(np.int64) << 32) | self.queue_id.view(np.uint32)
        code = _numbered(key)
        count = np.bincount(code)
        small = code.astype(np.uint16) if len(count) <= _MAX_DENSE_QUEUES else code
        ordered = self.take(np.argsort(small, kind="stable"))
        stops = np.cumsum(count)
        starts = stops - count
        names = [self.topics[code] for code in ordered.topic_code[starts].tolist()]
        queue_ids = ordered.queue_id[starts].tolist()
        for name, queue_id, start, stop in zip(names, queue_ids, starts.tolist(), stops.tolist()):
            yield name, queue_id, ordered.take(slice(start, stop))

    def _columns(self) -> list[npt.NDArray[Any]]:
        return [getattr(self, name) for name in _COLUMNS]

    def _bitmaps(self) -> Objects:
        if self.filter_bitmap is None:
            return np.full(len(self), None, object)
        return self.filter_bitmap


def _numbered(keys: Int64s) -> npt.NDArray[Any]:
    """Return a number for each key: the same for equal keys, counted from 0 as they appear."""
    if len(keys) > _FEW_ROWS:
        numbers: npt.NDArray[Any] = pa.array(keys).dictionary_encode().indices.to_numpy()
        return numbers
    number_of: dict[int, int] = {}
    return np.array([number_of.setdefault(key, len(number_of)) for key in keys.tolist()], np.int64)


_COLUMNS = tuple(field.name for field in fields(DispatchRequests)[1:-1])


def concat_requests(parts: Sequence[DispatchRequests]) -> DispatchRequests:
    """Concatenate parts (at least one) made by one decoder."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(part._columns() for part in parts))
    joined = DispatchRequests(parts[0].topics, *(np.concatenate(column) for column in columns))
    if all(part.filter_bitmap is None for part in parts):
        return joined
    return replace(joined, filter_bitmap=np.concatenate([part._bitmaps() for part in parts]))


class DispatchDecoder:
    """Makes dispatch requests from frames; remembers every topic that it has seen.

    Parameters
    ----------
    delay_levels_ms
        Delay of each level, level 1 first (``MessageStoreConfig.delay_levels_ms``).
    filter_bitmaps
        Returns the filter bitmaps of records; optional, by default they have none.
    """

    def __init__(
        self, delay_levels_ms: Sequence[int], filter_bitmaps: FilterBitmapsOf | None = None
    ) -> None:
        self.topics: list[str] = []
        self._code_of: dict[str, int] = {}
        self._delay_levels_ms = delay_levels_ms
        self._filter_bitmaps = filter_bitmaps

    def decode(self, frames: RecordFrames) -> DispatchRequests:
        """Return a request for each record, and one for each further queue that it names.

        Notes
        -----
        Malformed numbers in properties count as absent; RocketMQ ends the log there.
        """
        return self.decode_columns(MessageColumns.shared(frames))

    def outline(self, frames: RecordFrames) -> DispatchRequests:
        """Return a request for each record without reading its properties.

        As `decode`, but without tags codes, batches, bitmaps and further queues.
        """
        return self._outline(MessageColumns.shared(frames))

    def _outline(self, columns: MessageColumns) -> DispatchRequests:
        frames = columns.frames
        queue_offset = frames.column("queue_offset")
        return DispatchRequests(
            topics=self.topics,
            topic_code=self._topic_codes(columns),
            queue_id=frames.column("queue_id"),
            queue_offset=queue_offset,
            commit_log_offset=frames.column("commit_log_offset"),
            message_size=frames.column("total_size"),
            tags_code=np.zeros(len(frames), np.int64),
            store_timestamp=frames.column("store_timestamp"),
            base_queue_offset=queue_offset,
            batch_size=np.ones(len(frames), np.int16),
            transaction_type=frames.column("sys_flag") & TRANSACTION_MASK,
            light=np.zeros(len(frames), bool),
        )

    def decode_columns(self, columns: MessageColumns) -> DispatchRequests:
        """Return what `decode` does, from columns that the caller uses for other things too."""
        found = columns.dispatched()
        outline = self._outline(columns)
        if found is not None and not found.kinds.any():
            return self._ordinary_requests(outline, columns, found.tags_code)
        texts = columns.few_texts() if found is None else None
        if texts is not None and not _need_columns(texts):
            return self._plain_requests(outline, columns, texts)
        batch = _inner_batches(columns, outline.queue_offset)
        requests = replace(
            outline,
            tags_code=string_hashes(columns.property_values(PROPERTY_TAGS)).astype(np.int64),
            base_queue_offset=batch.base_queue_offset,
            batch_size=batch.size,
            filter_bitmap=None if self._filter_bitmaps is None else self._filter_bitmaps(columns),
        )
        self._set_deliver_times(requests, columns)
        light = self._light_requests(requests, columns)
        if light is None:
            return requests
        both = concat_requests([requests, light])
        return both.take(np.argsort(both.commit_log_offset, kind="stable"))

    def _ordinary_requests(
        self, outline: DispatchRequests, columns: MessageColumns, tags_code: npt.NDArray[np.int32]
    ) -> DispatchRequests:
        """Return the requests of records that name neither a batch nor further queues."""
        requests = replace(
            outline,
            tags_code=tags_code.astype(np.int64),
            filter_bitmap=None if self._filter_bitmaps is None else self._filter_bitmaps(columns),
        )
        self._set_deliver_times(requests, columns)
        return requests

    def _plain_requests(
        self, outline: DispatchRequests, columns: MessageColumns, texts: list[RecordTexts]
    ) -> DispatchRequests:
        """Return the requests of a few records that name neither a batch nor further queues."""
        times = outline.store_timestamp.tolist()
        codes = [self._tags_code(text, time) for text, time in zip(texts, times)]
        return replace(
            outline,
            tags_code=np.array(codes, np.int64),
            filter_bitmap=None if self._filter_bitmaps is None else self._filter_bitmaps(columns),
        )

    def _tags_code(self, text: RecordTexts, store_timestamp: int) -> int:
        if text.topic == SCHEDULE_TOPIC:
            delay = self._delay_ms(text.properties.get(PROPERTY_DELAY, ""))
            if delay >= 0:
                return store_timestamp + delay
        return string_hash(text.properties.get(PROPERTY_TAGS, ""))

    def _topic_codes(self, columns: MessageColumns) -> npt.NDArray[np.int32]:
        texts = None if columns.suits_kernel() else columns.few_texts()
        if texts is not None:
            return np.array([self._code(text.topic) for text in texts], np.int32)
        numbers, topics = columns.topic_numbers()
        codes = [self._code(decode_utf8(topic)) for topic in topics]
        code_of_row: npt.NDArray[np.int32] = np.array(codes, np.int32)[numbers]
        return code_of_row

    def _code(self, topic: str) -> int:
        if topic not in self._code_of:
            self._code_of[topic] = len(self.topics)
            self.topics.append(topic)
        return self._code_of[topic]

    def _set_deliver_times(self, requests: DispatchRequests, columns: MessageColumns) -> None:
        code = self._code_of.get(SCHEDULE_TOPIC, -1)
        rows = np.flatnonzero(requests.topic_code == code)
        if not len(rows):
            return
        values = columns.of_rows(rows).property_values(PROPERTY_DELAY).dictionary_encode()
        delays = [self._delay_ms(text) for text in values.dictionary.to_pylist()]
        index = values.indices.fill_null(len(delays)).to_numpy()
        delay = np.array([*delays, -1], np.int64)[index]
        delayed = rows[delay >= 0]
        requests.tags_code[delayed] = requests.store_timestamp[delayed] + delay[delay >= 0]

    def _delay_ms(self, text: str) -> int:
        """Return the delay of a level in ms; -1 if the text is not a level."""
        level = min(java_integer(text, 32) or 0, len(self._delay_levels_ms))
        return self._delay_levels_ms[level - 1] if level > 0 else -1

    def _light_requests(
        self, requests: DispatchRequests, columns: MessageColumns
    ) -> DispatchRequests | None:
        if not columns.has_property(PROPERTY_INNER_MULTI_DISPATCH):
            return None
        names = columns.property_values(PROPERTY_INNER_MULTI_DISPATCH)
        rows = np.flatnonzero(names.is_valid().to_numpy(zero_copy_only=False))
        offsets = columns.property_values(PROPERTY_INNER_MULTI_QUEUE_OFFSET).take(pa.array(rows))
        found: list[tuple[int, int, int, int]] = []
        for row, listed, numbers in zip(
            rows.tolist(), names.take(pa.array(rows)).to_pylist(), offsets.to_pylist()
        ):
            topic = self.topics[int(requests.topic_code[row])]
            if numbers is None or topic == SCHEDULE_TOPIC or topic.startswith(_NEVER_MULTI):
                continue
            for name, queue_offset in _further_queues(listed, numbers):
                light = name.startswith(LMQ_PREFIX)
                queue_id = LMQ_QUEUE_ID if light else int(requests.queue_id[row])
                found.append((row, self._code(name), queue_id, queue_offset))
        table = np.array(found, np.int64).reshape(-1, 4)
        return replace(
            requests.take(table[:, 0]),
            topic_code=table[:, 1].astype(np.int32),
            queue_id=table[:, 2].astype(np.int32),
            queue_offset=table[:, 3].copy(),
            light=np.ones(len(table), bool),
        )


class _InnerBatches(NamedTuple):
    base_queue_offset: Int64s
    size: npt.NDArray[np.int16]


def _inner_batches(columns: MessageColumns, queue_offset: Int64s) -> _InnerBatches:
    """Return base and size from the properties where both are valid (``setBatchSizeIfNeeded``)."""
    size = np.ones(len(queue_offset), np.int16)
    if not columns.has_property(PROPERTY_INNER_NUM):
        return _InnerBatches(queue_offset, size)
    numbers = columns.property_values(PROPERTY_INNER_NUM)
    rows = np.flatnonzero(numbers.is_valid().to_numpy(zero_copy_only=False))
    base = queue_offset.copy()
    bases = columns.property_values(PROPERTY_INNER_BASE).take(pa.array(rows)).to_pylist()
    counts = numbers.take(pa.array(rows)).to_pylist()
    for row, first_text, count_text in zip(rows.tolist(), bases, counts):
        first = None if first_text is None else java_integer(first_text, 64)
        count = java_integer(count_text, 16)
        if first is not None and count is not None:
            base[row], size[row] = first, count
    return _InnerBatches(base, size)


def _need_columns(texts: list[RecordTexts]) -> bool:
    return any(name in text.properties for text in texts for name in _ONLY_IN_COLUMNS)


def _further_queues(names: str, offsets: str) -> Iterator[tuple[str, int]]:
    queues, numbers = (java_split(text, _MULTI_SEPARATOR) for text in (names, offsets))
    if len(queues) != len(numbers):
        return
    for name, text in zip(queues, numbers):
        queue_offset = java_integer(text, 64)
        if queue_offset is not None and "/" not in name:
            yield name, queue_offset
