"""Columns with one row per message where records hold several (inner batches).

What belongs to the inner message comes from the item inside the body; everything else is the
record's. Source: RocketMQ ``MessageDecoder.decodeMessage`` as its 5.x client unpacks batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from store_core.codec.compression import CorruptBodyError
from store_core.codec.gather import binary_parts, gather_binary
from store_core.codec.inner_batch import inner_item_spans
from store_core.codec.java_string import java_integer
from store_core.codec.message_batch_codec import (
    PROPERTY_OF_COLUMN,
    InflatedTooLargeError,
    MessageColumns,
)
from store_core.codec.property_columns import PropertyColumns, words_column
from store_core.codec.record_crcs import BadBody
from store_core.layout.message import (
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
    PROPERTY_INNER_BASE,
    PROPERTY_KEYS,
)

_UNWRAP = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
_ITEM_COLUMNS = frozenset(
    {"queue_offset", "flag", "body", "properties_raw", "properties", "keys", "tags", "unique_key"}
)


def holds_inner_batch(sys_flag: Any) -> Any:
    """Tell of sys flags (a number or an array) whether the body is a batch to unpack."""
    return (sys_flag & _UNWRAP) == _UNWRAP


class UnwrappedColumns:
    """Rows of messages over ``MessageColumns`` of records of which some are inner batches.

    Attributes
    ----------
    record_row
        For each row the row of its record.
    """

    def __init__(self, records: MessageColumns) -> None:
        self._records = records
        batch = np.flatnonzero(holds_inner_batch(records.frames.column("sys_flag")))
        self._items = _InnerItems(records, batch)
        counts = np.ones(len(records.frames), np.int64)
        counts[batch] = self._items.counts
        self.record_row = np.repeat(np.arange(len(counts)), counts)
        self._order = self._interleave(batch, counts)

    @property
    def bad_bodies(self) -> list[BadBody]:
        """Rows of records of which a body was found that cannot be decoded; each once."""
        return self._records.bad_bodies

    def _interleave(self, batch: Any, counts: Any) -> Any:
        """Rows of (records' column ++ items' column) in the order of the messages."""
        order = self.record_row.copy()
        first = np.cumsum(counts) - counts
        is_item = np.zeros(len(order), bool)
        for row in batch.tolist():
            is_item[first[row] : first[row] + counts[row]] = True
        order[is_item] = len(counts) + np.arange(int(is_item.sum()))
        return pa.array(order)

    def column(self, name: str) -> Any:
        """Return a column of ``MESSAGE_SCHEMA``, a row for each message."""
        records = self._records.column(name)
        if name in _ITEM_COLUMNS:
            return pa.concat_arrays([records, self._items.column(name)]).take(self._order)
        return records.take(pa.array(self.record_row))


class _InnerItems:
    """The messages inside the bodies of some records, back to back."""

    def __init__(self, records: MessageColumns, batch: Any) -> None:
        offsets, self._data = binary_parts(self._bodies(records, batch))
        spans, counts = [], np.zeros(len(batch), np.int64)
        for k, row in enumerate(batch.tolist()):
            try:
                items = inner_item_spans(self._data, int(offsets[k]), int(offsets[k + 1]))
            except CorruptBodyError as err:
                records.add_bad_body(row, str(err))
                continue
            counts[k] = len(items)
            spans.append(items)
        self.counts = counts
        self._spans = np.concatenate(spans) if spans else np.empty((0, 5), np.int64)
        self._base = self._first_offsets(records, batch)
        self._properties: PropertyColumns | None = None

    @staticmethod
    def _bodies(records: MessageColumns, batch: Any) -> Any:
        """Return the decompressed bodies of the batches alone; bad ones are null."""
        alone = records.of_rows(batch)
        try:
            bodies = alone.inflated_body()
        except InflatedTooLargeError as err:
            raise InflatedTooLargeError(int(batch[err.row])) from None
        for bad in alone.bad_bodies:
            records.add_bad_body(int(batch[bad.row]), bad.reason)
        return bodies

    @staticmethod
    def _first_offsets(records: MessageColumns, batch: Any) -> Any:
        stored = records.frames.column("queue_offset")[batch]
        base = records.property_values(PROPERTY_INNER_BASE).take(pa.array(batch)).to_pylist()
        return np.array(
            [_first_offset(text, offset) for text, offset in zip(base, stored.tolist())], np.int64
        )

    def column(self, name: str) -> Any:
        flag, body_start, body_length, properties_start, properties_length = self._spans.T
        if name == "flag":
            return pa.array(flag.astype(np.int32))
        if name == "queue_offset":
            first = np.cumsum(self.counts) - self.counts
            index = np.arange(len(flag)) - np.repeat(first, self.counts)
            return pa.array(np.repeat(self._base, self.counts) + index)
        if name == "body":
            return gather_binary(self._data, body_start, body_length)
        block = gather_binary(self._data, properties_start, properties_length)
        if name == "properties_raw":
            return block
        if self._properties is None:
            self._properties = PropertyColumns(block)
        if name == "properties":
            return self._properties.map_column()
        if name == "keys":
            return words_column(self._properties.values_of(PROPERTY_KEYS))
        return self._properties.values_of(PROPERTY_OF_COLUMN[name])


def _first_offset(inner_base: str | None, queue_offset: int) -> int:
    """Return the queue offset of a batch's first message: INNER_BASE, if it is a Java long."""
    base = None if inner_base is None else java_integer(inner_base, 64)
    return queue_offset if base is None else base
