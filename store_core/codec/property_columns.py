"""Property strings of many messages as columns.

In a gathered block ``name 0x01 value 0x02 name 0x01 value 0x02 …`` the positions of the separators
are the offsets of all names and values. The rules are those of RocketMQ's
``MessageDecoder.string2messageProperties`` (4.9.4 to 5.3.3): a part ends at 0x02 or at the end of the
string; its name ends at its first 0x01; parts without a name or a value are dropped; the last of
repeated names wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.codec.gather import binary_parts, replace_rows
from store_core.codec.java_string import decode_utf8
from store_core.codec.properties import string_to_properties
from store_core.layout.message import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

if TYPE_CHECKING:
    import numpy.typing as npt

    Int32s = npt.NDArray[np.int32]

_MAX_SHIFTED_COMPARISONS = 64


def utf8_column(array: Any) -> Any:
    """Return a binary array as strings; bytes that are not UTF-8 are replaced as Java does."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if v is None else decode_utf8(v) for v in array.to_pylist()], pa.string())


class PropertyColumns:
    """All properties of the rows of a block of property strings.

    Parameters
    ----------
    block
        ``pa.BinaryArray`` without nulls, one property string a row, starting at its first byte.
    """

    def __init__(self, block: Any) -> None:
        self._block = block
        self._row_offsets, values = binary_parts(block)
        self._data = values[: int(self._row_offsets[-1])] if len(block) else values[:0]
        self._split()

    def _split(self) -> None:
        data, rows = self._data, self._row_offsets
        found = np.flatnonzero(data <= PROPERTY_SEPARATOR).astype(np.int32)
        kind = data[found]
        if not _alternates(found, kind, data, rows):
            self._split_by_rule(found, kind)
            return
        self._name_end, self._value_end = found[0::2], found[1::2]
        self._name_start = np.empty_like(self._name_end)
        if len(self._name_start):
            self._name_start[0] = 0
            self._name_start[1:] = self._value_end[:-1] + 1
        self._finish()

    def _split_by_rule(self, found: Int32s, kind: npt.NDArray[np.uint8]) -> None:
        """Split any bytes by the exact rule; as much columnar as the usual case, in more passes."""
        data, rows = self._data, self._row_offsets
        separators = found[kind == PROPERTY_SEPARATOR]
        name_ends = found[kind == NAME_VALUE_SEPARATOR]
        starts, ends = rows[:-1], rows[1:]
        filled = ends > starts
        open_ends = ends[filled][data[ends[filled] - 1] != PROPERTY_SEPARATOR]
        # A string's own end comes before a separator at the same place (the next row's first byte).
        part_end = np.concatenate([open_ends, separators])
        is_separator = np.concatenate(
            [np.zeros(len(open_ends), np.int32), np.ones(len(separators), np.int32)]
        )
        order = np.argsort(part_end, kind="stable")
        part_end, is_separator = part_end[order], is_separator[order]
        part_start = np.concatenate([np.zeros(1, np.int32), (part_end + is_separator)[:-1]])
        part_start = part_start[: len(part_end)]
        which = np.searchsorted(name_ends, part_start)
        name_end = np.append(name_ends, np.int32(2**31 - 1))[which]
        kept = (name_end > part_start) & (name_end < part_end - 1)
        self._name_start, self._name_end = part_start[kept], name_end[kept]
        self._value_end = part_end[kept]
        self._finish()

    def _finish(self) -> None:
        self._name_length = self._name_end - self._name_start
        self._pair_offsets = np.searchsorted(
            self._value_end, self._row_offsets, side="right"
        ).astype(np.int32)
        self._pieces = _interleaved(
            self._name_start, self._name_end, self._value_end, pa.py_buffer(self._data)
        )

    def values_of(self, name: str) -> Any:
        """Return the value of one property as a ``pa.StringArray``; null where it is absent."""
        index = self._pairs_named(name.encode())
        return utf8_column(self._pieces.take(pa.array(4 * index + 2, mask=index < 0)))

    def map_column(self) -> Any:
        """Return all properties as a ``pa.MapArray`` of strings; each name once a row."""
        count = len(self._name_start)
        names = self._pieces.take(pa.array(np.arange(0, 4 * count, 4)))
        values = self._pieces.take(pa.array(np.arange(2, 4 * count, 4)))
        offsets = self._pair_offsets
        try:
            names, values = names.cast(pa.string()), values.cast(pa.string())
        except pa.ArrowInvalid:
            return self._exact_map(np.arange(len(self._block)))
        usual = pa.MapArray.from_arrays(pa.array(offsets), names, values)
        repeated = self._rows_with_repeats()
        if len(repeated) == 0:
            return usual
        return replace_rows(usual, repeated, self._exact_map(repeated))

    def _exact_map(self, rows: npt.NDArray[np.int64]) -> Any:
        strings = self._block.take(pa.array(rows)).to_pylist()
        items = [list(string_to_properties(s).items()) for s in strings]
        return pa.array(items, pa.map_(pa.string(), pa.string()))

    def _pairs_named(self, name: bytes) -> npt.NDArray[np.int64]:
        """Return for each row the last pair of that name, or -1."""
        candidates = np.flatnonzero(self._name_length == len(name))
        for at, code in enumerate(name):
            if len(candidates) == 0:
                break
            matches = self._data[self._name_start[candidates] + at] == code
            if not matches.all():
                candidates = candidates[matches]
        row = np.searchsorted(self._pair_offsets, candidates, side="right") - 1
        index = np.full(len(self._block), -1, np.int64)
        index[row] = candidates  # of repeated rows numpy keeps the last
        return index

    def _rows_with_repeats(self) -> npt.NDArray[np.int64]:
        """Return rows in which two names may be equal (same length, first and last character)."""
        if len(self._name_start) < 2:  # noqa: PLR2004 (a repeat takes two)
            return np.empty(0, np.int64)
        print_ = (
            self._name_length.astype(np.int64) << 16
            | self._data[self._name_start].astype(np.int64) << 8
            | self._data[self._name_end - 1]
        )
        pairs_per_row = np.diff(self._pair_offsets)
        most = int(pairs_per_row.max())
        row_of = np.repeat(np.arange(len(pairs_per_row)), pairs_per_row)
        if most > _MAX_SHIFTED_COMPARISONS:
            return _rows_with_equal_codes(row_of, print_)
        found = [
            row_of[:-shift][(print_[shift:] == print_[:-shift]) & (row_of[shift:] == row_of[:-shift])]
            for shift in range(1, most)
        ]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _alternates(
    found: Int32s, kind: npt.NDArray[np.uint8], data: npt.NDArray[np.uint8], rows: Int32s
) -> bool:
    """Tell whether every row is a closed sequence of name 1 value 2, nothing of it empty."""
    if len(found) % 2 or not (
        (kind[0::2] == NAME_VALUE_SEPARATOR).all() and (kind[1::2] == PROPERTY_SEPARATOR).all()
    ):
        return False
    if len(found) and (int(np.diff(found).min()) < 2 or found[0] == 0):  # noqa: PLR2004
        return False
    ends = rows[1:][rows[1:] > rows[:-1]]
    return bool((data[ends - 1] == PROPERTY_SEPARATOR).all())


def _interleaved(name_start: Int32s, name_end: Int32s, value_end: Int32s, values: Any) -> Any:
    """Return names at 4k and values at 4k + 2 as views of the block; separators are between."""
    count = len(name_start)
    offsets = np.empty(4 * count + 1, np.int32)
    offsets[0:-1:4], offsets[1::4] = name_start, name_end
    offsets[2::4], offsets[3::4] = name_end + 1, value_end
    offsets[-1] = value_end[-1] if count else 0
    return pa.Array.from_buffers(pa.binary(), 4 * count, [None, pa.py_buffer(offsets), values])


def _rows_with_equal_codes(
    row_of: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    order = np.lexsort((codes, row_of))
    rows, codes = row_of[order], codes[order]
    return np.unique(rows[1:][(rows[1:] == rows[:-1]) & (codes[1:] == codes[:-1])])


def words_column(strings: Any) -> Any:
    """Split strings at single spaces into ``list<string>``, empty words dropped, nulls kept.

    Source: RocketMQ ``IndexService.buildIndex`` (5.3.3), which indexes the words of ``KEYS`` so.
    """
    words = pc.split_pattern(strings, " ")
    flat, offsets = words.values, np.frombuffer(words.buffers()[1], np.int32)
    offsets = offsets[words.offset : words.offset + len(words) + 1]
    filled = np.diff(binary_parts(flat)[0]) > 0
    if filled.all():
        return words
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(filled)])
    valid = strings.is_valid()
    return pa.ListArray.from_arrays(
        pa.array(before[offsets].astype(np.int32)),
        flat.filter(pa.array(filled)),
        mask=pc.invert(valid) if strings.null_count else None,
    )
