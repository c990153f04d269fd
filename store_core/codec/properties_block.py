"""Property strings of many messages at once: Arrow columns -> the bytes that records store.

Source: RocketMQ ``MessageDecoder.messageProperties2String`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import pa, pc
from store_core.layout.message import KEY_SEPARATOR, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.arrow_types import Array, Scalar


_NAME_VALUE = bytes([NAME_VALUE_SEPARATOR])
_SEPARATOR = bytes([PROPERTY_SEPARATOR])


def properties_block(properties: Array | None, named: Mapping[str, Any]) -> Array:
    """Return the property string of every row as a ``pa.BinaryArray``.

    Parameters
    ----------
    properties
        Array of type map<string, string>; its entries come first, in order. Entries with a null
        or empty value, or an empty name, are left out: no decoder would see them. None, if there is
        a named one: there are no others.
    named
        Property name -> array of strings, or of lists of strings, which become words with a space
        between, nulls left out; as many rows as ``properties``. Where the value is not null it
        replaces that of the map; an empty one removes it.
    """
    values = {name: joined_words(array).cast(pa.binary()) for name, array in named.items()}
    parts = [] if properties is None else [_map_entries(properties, values)]
    before = b""
    for name, value in values.items():
        if value.null_count == 0 and (pc.min(pc.binary_length(value)).as_py() or 0) > 0:
            parts += [_scalar(before + name.encode() + _NAME_VALUE), value]
            before = _SEPARATOR  # of all rows; goes along with the next name
        else:
            parts += [_scalar(before), _entries(_scalar(name.encode()), value)]
            before = b""
    return pc.binary_join_element_wise(*parts, _scalar(before), _scalar(b""))


def joined_words(array: Array) -> Array:
    """Return lists of words as strings with a space between; strings as they are.

    Nulls among the words are left out: a row keeps the others. A null list stays null.
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
