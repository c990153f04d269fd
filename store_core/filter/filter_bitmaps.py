# SPDX-License-Identifier: Apache-2.0
"""Filter bitmaps of many messages in one call: which consumers want each message.

Source: RocketMQ ``CommitLogDispatcherCalcBitMap`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.arrow import pa
from store_core.codec.property_columns import utf8_column

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array
    from store_core.codec.message_batch_codec import MessageColumns
    from store_core.filter.consumer_filter_manager import ConsumerFilterManager, RegisteredFilter

    Objects = npt.NDArray[np.object_]


class FilterBitmaps:
    """Calculates the bitmaps of records from the filters known at that moment."""

    def __init__(self, manager: ConsumerFilterManager) -> None:
        self._manager = manager

    def __call__(self, columns: MessageColumns) -> Objects | None:
        """Return each record's bitmap, None if its topic has no filters; None if no topic has any.

        A consumer's bits are set if its filter is TRUE for the properties of the record; dead
        consumers count too.
        """
        topics = columns.topics()
        names = utf8_column(topics.dictionary).to_pylist()
        known = [self._manager.of_topic(name) for name in names]
        if not any(known):
            return None
        codes = topics.indices.to_numpy()
        bitmaps = np.full(len(codes), None, object)
        for code, filters in enumerate(known):
            if filters:
                rows = np.flatnonzero(codes == code)
                bitmaps[rows] = self._of_topic(columns, rows, filters)
        return bitmaps

    def _of_topic(
        self,
        columns: MessageColumns,
        rows: npt.NDArray[np.int64],
        filters: tuple[RegisteredFilter, ...],
    ) -> Objects:
        # Two filters with bits 0x01 and 0x06, three rows; the first wants rows 0 and 1, the second
        # row 1: matrix = [[0x01], [0x07], [0x00]]. Equal rows become one value: few differ.
        bloom = self._manager.bloom
        size = bloom.bits // 8
        matrix = np.zeros((len(rows), size), np.uint8)
        taken = pa.array(rows)
        values: dict[str, Array] = {}
        for data, compiled in filters:
            if compiled is None:
                continue
            for name in compiled.property_names - values.keys():
                values[name] = columns.property_values(name).take(taken)
            wanted = compiled.matches_columns(values, len(rows))
            bits = np.frombuffer(bloom.bitmap(data.bit_positions or ()), np.uint8)
            matrix[wanted] |= bits
        packed = pa.Array.from_buffers(
            pa.binary(size), len(rows), [None, pa.py_buffer(np.ascontiguousarray(matrix))]
        ).dictionary_encode()
        distinct = np.empty(len(packed.dictionary), object)
        distinct[:] = packed.dictionary.to_pylist()
        found: Objects = distinct[packed.indices.to_numpy()]
        return found
