# SPDX-License-Identifier: Apache-2.0
"""Build the stored properties of rows from exact bytes, a map, and columns for one property each.

Source: RocketMQ ``Message``, ``MessageConst``, ``MessageDecoder`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.arrow import binary_parts, pa, pc, replace_rows
from store_core.codec.property_columns import (
    PropertyColumns,
    joined_words,
    properties_block,
    words_column,
)
from store_core.codec.record_encoder import CRC_ENTRY, CRC_NAME
from store_core.layout import PROPERTY_KEYS, PROPERTY_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from store_core.arrow_types import Array, Columns

    Bools = npt.NDArray[np.bool_]

_EMPTY = pa.scalar("", pa.string())


def merge_properties(
    raw: Array | None, properties: Array | None, named: Mapping[str, Array], count: int
) -> Array:
    """Return the property bytes of every row.

    Parameters
    ----------
    raw
        ``pa.BinaryArray`` or None. Exact bytes, stored unchanged unless a named value differs from
        them; the map of such a row is ignored.
    properties
        ``pa.MapArray`` or None.
    named
        Property -> strings or lists of words. A value replaces the property, an empty one removes
        it, null leaves it.

    Returns
    -------
    properties_raw
        Without ``__CRC32#``, which the encoder adds: another record's value would be wrong.
    """
    merged = _merged(raw, properties, named, count)
    return merged if raw is None and properties is None else _without_crc(merged)


def _without_crc(merged: Array) -> Array:
    found = pc.match_substring(merged, CRC_NAME).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(found)
    if len(rows) == 0:
        return merged
    cleaned = [CRC_ENTRY.sub(b"", given) for given in merged.take(pa.array(rows)).to_pylist()]
    return replace_rows(merged, rows, pa.array(cleaned, pa.binary()))


def _merged(
    raw: Array | None, properties: Array | None, named: Mapping[str, Array], count: int
) -> Array:
    if raw is None:
        return properties_block(_maps(properties, named, count), named)
    exact = raw.is_valid().to_numpy(zero_copy_only=False)
    merged = pc.fill_null(raw, b"")
    built = np.flatnonzero(~exact)
    if len(built):
        rows = pa.array(built)
        maps = _maps(properties, named, count)
        maps = maps if maps is None else maps.take(rows)
        merged = replace_rows(merged, built, properties_block(maps, _values_at(named, rows)))
    decoded = PropertyColumns(pc.fill_null(raw, b""))
    differs = np.zeros(count, bool)
    for name, values in named.items():
        differs |= _differs(name, values, decoded)
    changed = np.flatnonzero(differs & exact)
    if len(changed):
        rows = pa.array(changed)
        maps = PropertyColumns(raw.take(rows)).map_column()
        merged = replace_rows(merged, changed, properties_block(maps, _values_at(named, rows)))
    return merged


def _values_at(named: Mapping[str, Array], rows: Array) -> Columns:
    return {name: values.take(rows) for name, values in named.items()}


def _maps(properties: Array | None, named: Mapping[str, Array], count: int) -> Array | None:
    """Return the maps for `properties_block`; empty ones if there are no other properties."""
    if properties is not None or named:
        return properties
    nothing = pa.array([], pa.string())
    offsets = pa.array(np.zeros(count + 1, np.int32))
    return pa.MapArray.from_arrays(offsets, nothing, nothing)


def _differs(name: str, values: Array, decoded: PropertyColumns) -> Bools:
    """Return which rows have a given value that differs from the one in the bytes."""
    if values.null_count == len(values):
        return np.zeros(len(values), bool)
    given, stored = joined_words(values), decoded.values_of(name)
    same = pc.equal(given, pc.fill_null(stored, _EMPTY))
    if name == PROPERTY_KEYS:  # as words: the stored string may have more than one space
        words = pc.fill_null(joined_words(words_column(stored)), _EMPTY)
        same = pc.or_(same, pc.equal(given, words))
    differs: Bools = ~pc.fill_null(same, True).to_numpy(zero_copy_only=False)
    return differs


def has_property(properties: Array | None, name: str, count: int) -> Bools:
    """Return which of ``count`` rows of a map column have a name with a value; none if no map."""
    rows = np.zeros(count, bool)
    if properties is None:
        return rows
    first, stop = properties.offsets[0].as_py(), properties.offsets[-1].as_py()
    names = properties.keys.slice(first, stop - first)
    filled = pc.greater(pc.binary_length(properties.items.slice(first, stop - first)), 0)
    here = pc.and_(pc.equal(names, name), pc.fill_null(filled, False))
    found = np.flatnonzero(here.to_numpy(zero_copy_only=False))
    if len(found):
        offsets = properties.offsets.to_numpy() - first
        rows[np.searchsorted(offsets, found, "right") - 1] = True
        rows &= properties.is_valid().to_numpy(zero_copy_only=False)
    return rows


def rows_with_separators(array: Array, *, names: bool = False, lenient: bool = False) -> Bools:
    """Return which rows of a column of strings, lists or maps contain U+0001 or U+0002.

    Parameters
    ----------
    lenient
        Look for U+0002 only: readers from 4.9.4 on accept U+0001 in a value.
    """
    if pa.types.is_map(array.type):
        strings, offsets = (array.keys if names else array.items), array.offsets.to_numpy()
    elif pa.types.is_list(array.type):
        strings, offsets = array.values, array.offsets.to_numpy()
    else:
        strings, offsets = array, np.arange(len(array) + 1)
    if pa.types.is_map(array.type) or pa.types.is_list(array.type):
        strings = strings.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        offsets = offsets - offsets[0]
    bad = np.zeros(len(array), bool)
    found = np.flatnonzero(_holds_separator(strings, 1 if lenient else 2))
    if len(found):
        bad[np.searchsorted(offsets, found, "right") - 1] = True
    return bad


def _holds_separator(strings: Array, count: int) -> Bools:
    """Return which strings contain U+0002, or with ``count`` 2 also U+0001; nulls do not."""
    holds = np.zeros(len(strings), bool)
    if len(strings) == 0:
        return holds
    bounds, data = binary_parts(strings)
    used = data[bounds[0] : bounds[-1]]
    lowest = PROPERTY_SEPARATOR + 1 - count
    # One pass over all bytes, which rarely has a hit: smaller bytes wrap around to large ones.
    hits = np.flatnonzero(used - np.uint8(lowest) < count)
    if len(hits):
        rows = np.searchsorted(bounds - bounds[0], hits, "right") - 1
        holds[rows] = True
        holds &= strings.is_valid().to_numpy(zero_copy_only=False)
    return holds
