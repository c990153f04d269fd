# SPDX-License-Identifier: Apache-2.0
"""Columns with one row per message, also for records that hold several (inner batches).

An inner message's own fields come from its item inside the body, all others from the record.
Source: RocketMQ ``MessageDecoder.decodeMessage`` as its 5.x client unpacks batches.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from store_core.arrow import are_among, binary_parts, gather_binary, pa
from store_core.codec.compression import CorruptBodyError, begins_compressed
from store_core.codec.crc32 import BadBody
from store_core.codec.java_string import java_integer
from store_core.codec.message_batch_codec import PROPERTY_OF_COLUMN, MessageColumns
from store_core.codec.property_columns import PropertyColumns, words_column
from store_core.codec.record_frames import holds_inner_batch
from store_core.layout import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    INNER_ITEM,
    NEED_UNWRAP_FLAG,
    PROPERTIES_LENGTH_BYTES,
    PROPERTY_INNER_BASE,
    PROPERTY_KEYS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from store_core.arrow_types import Array
    from store_core.codec.record_frames import RecordFrames

    Int64s = npt.NDArray[np.int64]

_ITEM_COLUMNS = frozenset(
    {"queue_offset", "flag", "body", "properties_raw", "properties", "keys", "tags", "unique_key"}
)
_INNER_FLAGS = NEED_UNWRAP_FLAG | INNER_BATCH_FLAG
_FLAG_AND_BODY_LENGTH = struct.Struct(">ii")
_FLAG_AT = INNER_ITEM.at("flag")
_MAX_ITEMS = 32767  # INNER_NUM is a Java short, as is the batch size of a queue's unit


def undecodable_bodies(frames: RecordFrames) -> list[BadBody]:
    """Return the rows whose body contradicts its flags (compressed, inner batch).

    No CRC covers the flags. Of a compressed body that is not a batch, only the first bytes are
    checked.
    """
    flags = frames.column("sys_flag")
    is_batch = holds_inner_batch(flags)
    is_compressed = ~is_batch & ((flags & COMPRESSED_FLAG) != 0)
    odd = np.flatnonzero(is_compressed & (frames.body_length > 0))
    first_bytes = frames.data[frames.body_start[odd][:, None] + np.arange(4)]
    odd = odd[~begins_compressed(first_bytes, flags[odd])]
    found = _bad_bodies(frames, odd, lambda columns: columns.inflated_body())
    found += _bad_bodies(frames, np.flatnonzero(is_batch), UnwrappedColumns)
    return sorted(found)


def _bad_bodies(
    frames: RecordFrames, rows: Int64s, decode: Callable[[MessageColumns], object]
) -> list[BadBody]:
    if len(rows) == 0:
        return []
    columns = MessageColumns(frames.take(rows))
    decode(columns)
    return [BadBody(int(rows[bad.row]), bad.reason) for bad in columns.bad_bodies]


class UnwrappedColumns:
    """Message rows over the ``MessageColumns`` of records that may be inner batches."""

    def __init__(self, records: MessageColumns) -> None:
        self._records = records
        batch = np.flatnonzero(holds_inner_batch(records.frames.column("sys_flag")))
        self._items, item_counts = _inner_items(records, batch)
        counts = np.ones(len(records.frames), np.int64)
        counts[batch] = item_counts
        self.record_row = np.repeat(np.arange(len(counts)), counts)
        is_batch = np.zeros(len(counts), np.bool_)
        is_batch[batch] = True
        self._is_item = is_batch[self.record_row]

    @property
    def bad_bodies(self) -> list[BadBody]:
        """Record rows whose body could not be decoded so far; each once."""
        return self._records.bad_bodies

    def column(self, name: str) -> Array:
        """Return a column of `message_schema`, a row for each message."""
        return self._rows(0, len(self.record_row)).column(name)

    def parts(self, most_rows: int, most_bytes: int) -> Iterator[UnwrappedRows]:
        """Yield all rows in order, in parts; a record's own values are repeated per message.

        A part has at most ``most_rows`` rows, and at most ``most_bytes`` bytes or one row.
        """
        frames = self._records.frames
        sizes = frames.topic_length[self.record_row]
        sizes[self._is_item] += self._items.sizes()
        sizes[~self._is_item] += frames.column("total_size")[self.record_row[~self._is_item]]
        for start, stop in cut_rows(sizes, most_rows, most_bytes):
            yield self._rows(start, stop)

    def _rows(self, start: int, stop: int) -> UnwrappedRows:
        is_item = self._is_item[start:stop]
        first = int(np.count_nonzero(self._is_item[:start]))
        items = self._items.part(first, first + int(np.count_nonzero(is_item)))
        return UnwrappedRows(self._records, self.record_row[start:stop], is_item, items)


class UnwrappedRows:
    """Some rows of ``UnwrappedColumns``."""

    def __init__(
        self, records: MessageColumns, record_row: Int64s, is_item: Any, items: _InnerItems
    ) -> None:
        self._records, self._record_row = records, record_row
        self._is_item, self._items = is_item, items

    def __len__(self) -> int:
        return len(self._record_row)

    def column(self, name: str) -> Array:
        """Return a column of `message_schema`, a row for each message."""
        if name not in _ITEM_COLUMNS:
            return self._records.column(name).take(pa.array(self._record_row))
        return self._joined(self._items.column(name), lambda: self._records.column(name))

    def columns(self, names: Iterable[str]) -> dict[str, Array]:
        """Return some columns of `message_schema`."""
        return {name: self.column(name) for name in names}

    def are_among(self, name: str, texts: Array) -> npt.NDArray[np.bool_]:
        """Return in which rows column ``tags`` or ``unique_key`` is one of some texts."""
        return are_among(self.column(name), texts)

    def property_values(self, name: str) -> Array:
        """Return the value of a property of each message, null where it is absent."""
        items = self._items.property_values(name)
        return self._joined(items, lambda: self._records.property_values(name))

    def property_columns(self, names: Iterable[str]) -> dict[str, Array]:
        """Return `property_values` of some properties."""
        return {name: self.property_values(name) for name in names}

    def _joined(self, items: Array, of_records: Callable[[], Array]) -> Array:
        """Merge the values of batch items and of plain records in row order."""
        plain = self._record_row[~self._is_item]
        if len(plain) == 0:
            return items
        records = of_records().take(pa.array(plain))
        order = np.empty(len(self), np.int64)
        order[~self._is_item] = np.arange(len(plain))
        order[self._is_item] = np.arange(len(plain), len(self))
        return pa.concat_arrays([records, items]).take(pa.array(order))


def cut_rows(sizes: Int64s, most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of parts of the rows, each within both limits or one row."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + most_bytes, "right"))
        stop = min(max(stop, start + 1), start + most_rows)
        yield start, stop
        start = stop


class _InnerItems:
    """Messages inside the bodies of some records, back to back."""

    def __init__(self, data: Any, spans: Int64s, queue_offset: Int64s) -> None:
        self._data, self._spans, self._queue_offset = data, spans, queue_offset
        self._properties: PropertyColumns | None = None

    def part(self, start: int, stop: int) -> _InnerItems:
        return _InnerItems(self._data, self._spans[start:stop], self._queue_offset[start:stop])

    def sizes(self) -> Int64s:
        _, _, body_length, _, properties_length = self._spans.T
        return np.asarray(body_length + properties_length)

    def column(self, name: str) -> Array:
        flag, body_start, body_length, properties_start, properties_length = self._spans.T
        if name == "flag":
            return pa.array(flag.astype(np.int32))
        if name == "queue_offset":
            return pa.array(self._queue_offset)
        if name == "body":
            return gather_binary(self._data, body_start, body_length)
        if name == "properties_raw":
            return gather_binary(self._data, properties_start, properties_length)
        if name == "properties":
            return self._property_columns().map_column()
        if name == "keys":
            return words_column(self.property_values(PROPERTY_KEYS))
        return self.property_values(PROPERTY_OF_COLUMN[name])

    def property_values(self, name: str) -> Array:
        return self._property_columns().values_of(name)

    def _property_columns(self) -> PropertyColumns:
        if self._properties is None:
            _, _, _, start, length = self._spans.T
            self._properties = PropertyColumns(gather_binary(self._data, start, length))
        return self._properties


def _inner_items(records: MessageColumns, batch: Int64s) -> tuple[_InnerItems, Int64s]:
    """Return the messages of the batches in these rows, and the number in each batch."""
    offsets, data = binary_parts(_batch_bodies(records, batch))
    spans, counts = [np.empty((0, 5), np.int64)], np.zeros(len(batch), np.int64)
    for k, row in enumerate(batch.tolist()):
        try:
            items = inner_item_spans(data, int(offsets[k]), int(offsets[k + 1]))
        except CorruptBodyError as err:
            records.add_bad_body(row, str(err))
            continue
        counts[k] = len(items)
        spans.append(items)
    first = np.cumsum(counts) - counts
    index = np.arange(int(counts.sum())) - np.repeat(first, counts)
    queue_offset = np.repeat(_first_offsets(records, batch), counts) + index
    return _InnerItems(data, np.concatenate(spans), queue_offset), counts


def _batch_bodies(records: MessageColumns, batch: Int64s) -> Array:
    """Return the inflated bodies of only the batches; bad ones are null."""
    alone = records.of_rows(batch)
    bodies = alone.inflated_body()
    for bad in alone.bad_bodies:
        records.add_bad_body(int(batch[bad.row]), bad.reason)
    return bodies


def _first_offsets(records: MessageColumns, batch: Int64s) -> Int64s:
    stored = records.frames.column("queue_offset")[batch]
    base = records.property_values(PROPERTY_INNER_BASE).take(pa.array(batch)).to_pylist()
    return np.array(
        [_first_offset(text, offset) for text, offset in zip(base, stored.tolist())], np.int64
    )


def _first_offset(inner_base: str | None, queue_offset: int) -> int:
    """Return a batch's first queue offset: INNER_BASE if it is a Java long, else the record's."""
    base = None if inner_base is None else java_integer(inner_base, 64)
    return queue_offset if base is None else base


# Source: RocketMQ ``MessageDecoder.decodeMessages``, ``decodeMessage`` (release 5.3.3), which use
# the lengths of body and properties and ignore an item's total size, magic code and CRC.
class InnerItem(NamedTuple):
    """One message of an inner batch."""

    flag: int
    body: bytes
    properties_raw: bytes


def is_inner_batch(sys_flag: int) -> bool:
    """Return whether consumers unpack the body: ``PullAPIWrapper`` requires both bits."""
    return sys_flag & _INNER_FLAGS == _INNER_FLAGS


def split_inner_batch(body: bytes) -> list[InnerItem]:
    """Return the messages in an (inflated) body; `CorruptBodyError` if lengths contradict it."""
    spans = inner_item_spans(body, 0, len(body)).tolist()
    return [
        InnerItem(flag, bytes(body[at : at + length]), bytes(body[p_at : p_at + p_length]))
        for flag, at, length, p_at, p_length in spans
    ]


def inner_item_spans(buf: Any, start: int, end: int) -> npt.NDArray[np.int64]:
    """Return the positions of the messages of one inner batch.

    Parameters
    ----------
    buf
        Any buffer of bytes; ``0 <= start <= end <= len(buf)``.
    start, end
        Range of the inflated body in ``buf``, end exclusive.

    Returns
    -------
    spans
        Shape (messages, 5): flag, body start, body length, properties start, properties length;
        starts are positions in ``buf``.

    Raises
    ------
    CorruptBodyError
        A length is negative or leads past ``end``, or there are more messages than RocketMQ can
        count in a batch.
    """
    view = memoryview(buf)
    head_bytes = INNER_ITEM.size
    flag_and_length, two_bytes = _FLAG_AND_BODY_LENGTH.unpack_from, struct.Struct(">h").unpack_from
    spans = array("q")
    at, items = start, 0
    while at < end:
        body_at = at + head_bytes
        if body_at + PROPERTIES_LENGTH_BYTES > end:
            raise _damaged(items, at - start, f"only {end - at} bytes are left")
        flag, body_length = flag_and_length(view, at + _FLAG_AT)
        properties_at = body_at + body_length + PROPERTIES_LENGTH_BYTES
        if body_length < 0 or properties_at > end:
            raise _damaged(items, at - start, f"invalid body length {body_length}")
        (properties_length,) = two_bytes(view, properties_at - PROPERTIES_LENGTH_BYTES)
        if properties_length < 0 or properties_at + properties_length > end:
            raise _damaged(items, at - start, f"invalid properties length {properties_length}")
        spans.extend((flag, body_at, body_length, properties_at, properties_length))
        at = properties_at + properties_length
        items += 1
        if items > _MAX_ITEMS:
            raise CorruptBodyError(f"the body contains more than {_MAX_ITEMS} messages")
    return np.array(spans, np.int64).reshape(-1, 5)


def _damaged(item: int, position: int, found: str) -> CorruptBodyError:
    return CorruptBodyError(f"inner message {item} at byte {position} of the body: {found}")
