# SPDX-License-Identifier: Apache-2.0
"""Property strings of many messages as columns.

In a gathered block ``name 0x01 value 0x02 name 0x01 value 0x02 …`` the positions of the separators
are the offsets of all names and values. The rules are those of RocketMQ's
``MessageDecoder.string2messageProperties`` (4.9.4 to 5.3.3): a part ends at 0x02 or at the end of
the string; its name ends at its first 0x01; parts without a name or a value are dropped; of
repeated names the last wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core import native
from store_core.arrow import (
    binary_parts,
    gather_binary,
    nullable_parts,
    pa,
    pc,
    replace_rows,
    take_bytes,
)
from store_core.codec.java_string import decode_utf8
from store_core.codec.message_codec import string_to_properties
from store_core.layout import KEY_SEPARATOR, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, RecordLayout
from store_core.native.record_columns import property_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.arrow_types import Array, Scalar

    Bools = npt.NDArray[np.bool_]
    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

_SPACE = ord(" ")
_REPLACEMENT = "\ufffd"
_MAX_SHIFTED_COMPARISONS = 64
_CODE_LAYOUT = RecordLayout("name_code", [("code", "u8")])
_CODE_BYTES = _CODE_LAYOUT.size
_CODE_MASKS = np.array(
    [(1 << 64) - (1 << 8 * (_CODE_BYTES - length)) for length in range(_CODE_BYTES + 1)], np.uint64
)
_MOST_JOINED = 2**31 - 1
_NAME_VALUE = bytes([NAME_VALUE_SEPARATOR])
_SEPARATOR = bytes([PROPERTY_SEPARATOR])


def utf8_column(array: Array) -> Array:
    """Return a binary array as strings; bytes that are not UTF-8 are replaced as in Java."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if v is None else decode_utf8(v) for v in array.to_pylist()]
        return pa.array(texts, pa.string())


class PropertyColumns:
    """All properties of the rows of a block of property strings.

    Parameters
    ----------
    block
        ``pa.BinaryArray`` without nulls, one property string per row, starting at its first byte.
    """

    def __init__(self, block: Array) -> None:
        self._block = block
        self._row_offsets, values = binary_parts(block)
        self._data = values[: int(self._row_offsets[-1])] if len(block) else values[:0]
        self._pairs_per_row = 0
        """Pairs in every row; 0 if rows differ."""
        self._interleaved: Array | None = None
        self._same_names = False
        """The names of all rows have the same codes and lengths, in the same order."""
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
        """Split any bytes by the exact rule, columnar like the usual case but in more passes."""
        data, rows = self._data, self._row_offsets
        separators = found[kind == PROPERTY_SEPARATOR]
        name_ends = found[kind == NAME_VALUE_SEPARATOR]
        starts, ends = rows[:-1], rows[1:]
        filled = ends > starts
        open_ends = ends[filled][data[ends[filled] - 1] != PROPERTY_SEPARATOR]
        # At one position, a string's own end sorts before a separator (the next row's first byte).
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
        self._pair_offsets = self._count_pairs()
        self._name_code = _name_codes(self._data, self._name_start, self._name_length)
        step = self._pairs_per_row
        self._same_names = step > 0 and all(
            bool((column.reshape(-1, step) == column[:step]).all())
            for column in (self._name_code, self._name_length)
        )

    @property
    def _pieces(self) -> Array:
        """Names at 4k and values at 4k + 2, built on demand."""
        if self._interleaved is None:
            self._interleaved = _interleaved(
                self._name_start, self._name_end, self._value_end, pa.py_buffer(self._data)
            )
        return self._interleaved

    def _count_pairs(self) -> Int32s:
        """Return the index of each row's first pair, and last the number of all pairs."""
        pairs, rows = len(self._value_end), len(self._row_offsets) - 1
        if rows and pairs and pairs % rows == 0:
            step = pairs // rows  # usually all messages have equally many properties
            if (self._value_end[step - 1 :: step] + 1 == self._row_offsets[1:]).all():
                self._pairs_per_row = step
                return np.arange(0, pairs + 1, step, dtype=np.int32)
        counts = np.searchsorted(self._value_end, self._row_offsets, side="right")
        return counts.astype(np.int32)

    def _rows_of(self, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if self._pairs_per_row:
            return pairs // self._pairs_per_row
        return np.searchsorted(self._pair_offsets, pairs, side="right") - 1

    def holds(self, name: str) -> bool:
        """Return whether any row has a property."""
        if self._same_names and not len(self._in_first_row(name.encode())):
            return False
        return len(self._candidates(name.encode())) > 0

    def values_of(self, name: str) -> Array:
        """Return the value of one property as a ``pa.StringArray``; null where it is absent."""
        index = self._pairs_named(name.encode())
        absent = index < 0
        if absent.any():
            places = pa.array(4 * index + 2, mask=absent)
            return utf8_column(take_bytes(self._pieces, places, len(self._data)))
        starts = self._name_end[index] + 1
        return utf8_column(gather_binary(self._data, starts, self._value_end[index] - starts))

    def map_column(self) -> Array:
        """Return all properties as a ``pa.MapArray`` of strings; each name once per row."""
        count = len(self._name_start)
        names = self._pieces.take(pa.array(np.arange(0, 4 * count, 4)))
        values = self._pieces.take(pa.array(np.arange(2, 4 * count, 4)))
        offsets = self._pair_offsets
        try:
            names, values = names.cast(pa.string()), values.cast(pa.string())
        except pa.ArrowInvalid:
            return self._exact_map()
        if self._has_repeats():
            first, last, offsets = self._each_name_once(names)
            names, values = names.take(pa.array(first)), values.take(pa.array(last))
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)

    def pair_rows(self) -> npt.NDArray[np.int64]:
        """Return the row of every pair, in stored order."""
        return np.repeat(np.arange(len(self._block)), np.diff(self._pair_offsets))

    def pair_names(self) -> Array:
        """Return the name of every pair, in stored order, as bytes."""
        return self._pieces.take(pa.array(np.arange(0, 4 * len(self._name_start), 4)))

    def joined_pairs(
        self,
        names: npt.NDArray[np.int64],
        values: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
    ) -> Array:
        """Return property strings joined from these pairs, each closed by its separator."""
        # In the bytes a 1 x 2 b c 1 y 2 (pairs a=x and bc=y) the pieces begin at 0, 2, 4, 4, 7, 9:
        # 3k is a name with its separator, 3k + 1 a value with its own, 3k + 2 the bytes between.
        count = len(self._name_start)
        offsets = np.empty(3 * count + 1, np.int32)
        offsets[0:-1:3], offsets[1::3] = self._name_start, self._name_end + 1
        offsets[2::3] = self._value_end + 1
        offsets[-1] = offsets[-2] if count else 0
        pieces = pa.Array.from_buffers(
            pa.binary(), 3 * count, [None, pa.py_buffer(offsets), pa.py_buffer(self._data)]
        )
        wanted = np.empty(2 * len(names), np.int64)
        wanted[0::2], wanted[1::2] = 3 * names, 3 * values + 1
        ends, data = binary_parts(pieces.take(pa.array(wanted)))
        stops = ends[2 * np.append(0, np.cumsum(counts))]
        return pa.Array.from_buffers(
            pa.binary(), len(counts), [None, pa.py_buffer(stops), pa.py_buffer(data)]
        )

    def _exact_map(self) -> Array:
        items = [list(string_to_properties(s).items()) for s in self._block.to_pylist()]
        return pa.array(items, pa.map_(pa.string(), pa.string()))

    def _each_name_once(
        self, names: Array
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Int32s]:
        """Return the first and the last pair of each name in each row, and where rows begin.

        Brokers add a batch's properties to those of all its messages, so batches repeat the same
        names in every message: then the pairs of one row give those of all.
        """
        encoded = names.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        step = self._pairs_per_row
        if step and (codes.reshape(-1, step) == codes[:step]).all():
            first, last = _ends_of_groups(codes[:step])
            begin = np.arange(0, len(codes), step)[:, None]
            offsets = np.arange(len(begin) + 1, dtype=np.int32) * np.int32(len(first))
            return (begin + first).ravel(), (begin + last).ravel(), offsets
        rows = self.pair_rows()
        first, last = _ends_of_groups(rows * len(encoded.dictionary) + codes)
        counts = np.bincount(rows[first], minlength=len(self._block))
        return first, last, np.append(0, np.cumsum(counts)).astype(np.int32)

    def _pairs_named(self, name: bytes) -> npt.NDArray[np.int64]:
        """Return each row's last pair of that name, or -1."""
        if self._same_names:  # usual: producers give all messages the same properties
            found = self._in_first_row(name)
            if not len(found):
                return np.full(len(self._block), -1, np.int64)
            if len(name) <= _CODE_BYTES:  # equal codes mean equal names
                step = self._pairs_per_row
                return np.arange(found[-1], len(self._block) * step, step)
        candidates = self._candidates(name)
        index = np.full(len(self._block), -1, np.int64)
        index[self._rows_of(candidates)] = candidates  # for repeated rows numpy keeps the last
        return index

    def _in_first_row(self, name: bytes) -> npt.NDArray[np.int64]:
        """Return the first row's pairs whose names have the code and the length of ``name``."""
        first = slice(0, self._pairs_per_row)
        is_like = self._name_code[first] == _name_code(name)
        found: npt.NDArray[np.int64] = np.flatnonzero(
            is_like & (self._name_length[first] == len(name))
        )
        return found

    def _candidates(self, name: bytes) -> npt.NDArray[np.int64]:
        """Return the pairs with that name, ascending."""
        candidates: npt.NDArray[np.int64] = np.flatnonzero(self._name_code == _name_code(name))
        candidates = candidates[self._name_length[candidates] == len(name)]
        for at, code in enumerate(name[_CODE_BYTES:], _CODE_BYTES):
            candidates = candidates[self._data[self._name_start[candidates] + at] == code]
        return candidates

    def _has_repeats(self) -> bool:
        """Return whether two names of a row may be equal, because their codes are."""
        code, pairs_per_row = self._name_code, np.diff(self._pair_offsets)
        most = int(pairs_per_row.max(initial=0))
        row_of = np.repeat(np.arange(len(pairs_per_row)), pairs_per_row)
        if most > _MAX_SHIFTED_COMPARISONS:
            return _have_equal_codes(row_of, code)
        return any(
            bool((row_of[equal] == row_of[equal + shift]).any())
            for shift in range(1, most)
            for equal in (np.flatnonzero(code[shift:] == code[:-shift]),)
        )


def named_values(
    data: npt.NDArray[np.uint8], start: Int64s, length: Int64s, names: Sequence[str]
) -> dict[str, Array]:
    """Return `PropertyColumns.values_of` some names, which the kernel finds in one pass.

    Parameters
    ----------
    start, length
        Where the property string of each row is in the data; ascending and free of overlap.
    """
    found = None if native.kernel is None else property_values(data, start, length, names)
    if found is None:
        properties = PropertyColumns(gather_binary(data, start, length))
        return {name: properties.values_of(name) for name in names}
    rows = found.refused
    if not len(rows):
        return found.columns
    refused = PropertyColumns(gather_binary(data, start[rows], length[rows]))
    return {
        name: replace_rows(column, rows.astype(np.int64), refused.values_of(name))
        for name, column in found.columns.items()
    }


def have_value(
    data: npt.NDArray[np.uint8], start: Int64s, length: Int64s, name: str, texts: Sequence[str]
) -> Bools | None:
    """Return in which rows a property is one of some texts; None if the kernel cannot tell.

    Other parameters are as in `named_values`.
    """
    kernel = native.kernel
    # The kernel compares bytes; those that are not UTF-8 equal what they are decoded to.
    if kernel is None or len(texts) > kernel.MOST_NAMES or any(_REPLACEMENT in t for t in texts):
        return None
    found = np.empty(len(start), np.bool_)
    encoded = tuple(text.encode() for text in texts)
    kernel.have_value(data, start, length, (name.encode(),), encoded, found)
    return found


def _ends_of_groups(
    keys: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first position of each key, ascending, and its last position."""
    first = np.unique(keys, return_index=True)[1]
    last = len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]
    order = np.argsort(first)
    return first[order], last[order]


def _name_codes(
    data: npt.NDArray[np.uint8], start: Int32s, length: Int32s
) -> npt.NDArray[np.uint64]:
    """Return the first eight bytes of each name as a number; shorter names are zero-padded."""
    codes = np.zeros(len(start), np.uint64)
    inner = start <= len(data) - _CODE_BYTES
    if inner.all() and len(start):
        codes = _CODE_LAYOUT.gather(data, start)["code"].astype(np.uint64)
    elif len(start):
        codes[inner] = _CODE_LAYOUT.gather(data, start[inner])["code"]
        for row in np.flatnonzero(~inner).tolist():  # at most the last four pairs of the block
            codes[row] = _name_code(data[start[row] : start[row] + length[row]].tobytes())
    return codes & _CODE_MASKS[np.minimum(length, _CODE_BYTES)]


def _name_code(name: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(name[:_CODE_BYTES].ljust(_CODE_BYTES, b"\0"), "big"))


def _alternates(
    found: Int32s, kind: npt.NDArray[np.uint8], data: npt.NDArray[np.uint8], rows: Int32s
) -> bool:
    """Return whether every row is a closed sequence of name 1 value 2 without empty parts."""
    if len(found) % 2 or not (
        (kind[0::2] == NAME_VALUE_SEPARATOR).all() and (kind[1::2] == PROPERTY_SEPARATOR).all()
    ):
        return False
    if len(found) and (int(np.diff(found).min()) < 2 or found[0] == 0):  # noqa: PLR2004
        return False
    ends = rows[1:][rows[1:] > rows[:-1]]
    return bool((data[ends - 1] == PROPERTY_SEPARATOR).all())


def _interleaved(name_start: Int32s, name_end: Int32s, value_end: Int32s, values: Any) -> Array:
    """Return names at 4k and values at 4k + 2 as views of the block, with separators between."""
    count = len(name_start)
    offsets = np.empty(4 * count + 1, np.int32)
    offsets[0:-1:4], offsets[1::4] = name_start, name_end
    offsets[2::4], offsets[3::4] = name_end + 1, value_end
    offsets[-1] = value_end[-1] if count else 0
    return pa.Array.from_buffers(pa.binary(), 4 * count, [None, pa.py_buffer(offsets), values])


def _have_equal_codes(row_of: npt.NDArray[np.int64], codes: npt.NDArray[np.uint64]) -> bool:
    order = np.lexsort((codes, row_of))
    rows, codes = row_of[order], codes[order]
    return bool(((rows[1:] == rows[:-1]) & (codes[1:] == codes[:-1])).any())


def _split_at_spaces(strings: Array) -> Array:
    """Return all words, empty ones too; usually every string is one word."""
    offsets, data = binary_parts(strings)
    if strings.null_count or (data[offsets[0] : offsets[-1]] == _SPACE).any():
        return pc.split_pattern(strings, " ")
    return pa.ListArray.from_arrays(np.arange(len(strings) + 1, dtype=np.int32), strings)


def words_column(strings: Array) -> Array:
    """Split strings at single spaces into ``list<string>``; drops empty words, keeps nulls.

    Source: RocketMQ ``IndexService.buildIndex`` (5.3.3), which splits ``KEYS`` the same way.
    """
    words = _split_at_spaces(strings)
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


# Source: RocketMQ ``MessageDecoder.messageProperties2String`` (release 5.3.3).
def properties_block(properties: Array | None, named: Mapping[str, Any]) -> Array:
    """Return the property string of every row as a ``pa.BinaryArray``.

    Parameters
    ----------
    properties
        Array of type map<string, string>; its entries come first, in order. Entries with a null
        or empty value, or an empty name, are left out: no decoder would return them. None if there
        are only named properties, at least one.
    named
        Property name -> array of strings, or of lists of strings, whose words are joined with
        spaces, without nulls; as many rows as ``properties``. A value that is not null replaces
        that of the map; an empty one removes it.
    """
    values = {name: joined_words(array).cast(pa.binary()) for name, array in named.items()}
    if properties is None and native.kernel is not None:
        block = _joined_natively(values)
        if block is not None:
            return block
    parts = [] if properties is None else [_map_entries(properties, values)]
    before = b""
    for name, value in values.items():
        if value.null_count == 0 and (pc.min(pc.binary_length(value)).as_py() or 0) > 0:
            parts += [_scalar(before + name.encode() + _NAME_VALUE), value]
            before = _SEPARATOR  # of all rows; prefixed to the next name
        else:
            parts += [_scalar(before), _entries(_scalar(name.encode()), value)]
            before = b""
    return pc.binary_join_element_wise(*parts, _scalar(before), _scalar(b""))


def _joined_natively(values: Mapping[str, Any]) -> Array | None:
    """Return the property strings of named values; None if the kernel cannot join so many."""
    if len(values) > native.kernel.MOST_NAMED:
        return None
    rows, most = len(next(iter(values.values()))), 0
    for name, column in values.items():
        most += rows * len(name.encode() + _NAME_VALUE + _SEPARATOR)
        most += int(np.ptp(binary_parts(column)[0][[0, -1]]))
    if most > _MOST_JOINED:
        return None
    offsets, data = np.empty(rows + 1, np.int32), np.empty(most, np.uint8)
    given = [part for column in values.values() for part in nullable_parts(column)]
    native.kernel.join_properties(tuple(n.encode() for n in values), offsets, data, *given)
    used = data[: int(offsets[-1])]
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(used)]
    )


def joined_words(array: Array) -> Array:
    """Join lists of words with spaces; strings are returned as they are.

    Null words are left out; a null list stays null.
    """
    if not pa.types.is_list(array.type):
        return array
    words = array.cast(pa.list_(pa.string()))
    if words.values.null_count:
        words = _without_nulls(words)
    return pc.binary_join(words, KEY_SEPARATOR)


def _without_nulls(lists: Array) -> Array:
    words, row = pc.list_flatten(lists), pc.list_parent_indices(lists)
    kept = words.is_valid()
    counts = np.bincount(row.filter(kept).to_numpy(), minlength=len(lists))
    offsets = pa.array(np.append(0, np.cumsum(counts)).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, words.filter(kept), mask=lists.is_null())


def _entries(names: Any, values: Array) -> Array:
    """Return name, separator, value, separator; empty where the value is null or empty."""
    empty = _scalar(b"")
    entries = pc.binary_join_element_wise(
        names, _scalar(_NAME_VALUE), values, _scalar(_SEPARATOR), empty
    )
    return pc.if_else(pc.fill_null(pc.greater(pc.binary_length(values), 0), False), entries, empty)


def _map_entries(properties: Array, values: Mapping[str, Any]) -> Array:
    names = properties.keys.cast(pa.binary())
    entries = _entries(names, properties.items.cast(pa.binary()))
    keep = pc.fill_null(pc.greater(pc.binary_length(names), 0), False)
    lists = pa.ListArray.from_arrays(properties.offsets, entries)
    row_of_entry = pc.list_parent_indices(lists)
    first, stop = properties.offsets[0].as_py(), properties.offsets[-1].as_py()
    entries, names, keep = (a.slice(first, stop - first) for a in (entries, names, keep))
    for name, value in values.items():
        replaced = pc.and_(
            pc.equal(names, _scalar(name.encode())), value.is_valid().take(row_of_entry)
        )
        keep = pc.and_not(keep, replaced)
    empty = _scalar(b"")
    entries = pc.if_else(keep, entries, empty)
    offsets = pc.subtract(properties.offsets, properties.offsets[0])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, entries), empty)
    return pc.if_else(properties.is_valid(), joined, empty)


def _scalar(data: bytes) -> Scalar:
    return pa.scalar(data, pa.binary())
