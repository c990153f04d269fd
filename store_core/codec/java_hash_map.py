# SPDX-License-Identifier: Apache-2.0
"""Property strings in the iteration order of Java's ``HashMap``.

A broker that changes a property decodes the string into a ``HashMap`` and encodes that map, so the
stored order is that of its bins.

Source: RocketMQ ``MessageDecoder.string2messageProperties``, ``messageProperties2String`` (release
5.3.3, whose maps begin with 128 bins; those of 4.9.7 begin with 16); ``java.util.HashMap`` of
OpenJDK 17. A bin of nine or more names, which Java turns into a tree, stays in insertion order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from store_core.arrow import pa
from store_core.codec.java_string import string_hash, string_hashes
from store_core.codec.message_codec import properties_to_bytes
from store_core.codec.property_columns import PropertyColumns, utf8_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.arrow_types import Array

    Int64s = npt.NDArray[np.int64]

_BINS = 128
_BINS_OF_RELEASE_4 = 16
_UNSIGNED_INT = 0xFFFFFFFF
_HALF_BITS = 16


def hash_map_string(properties: Mapping[str, str], *, as_release_4: bool = False) -> bytes:
    """Return the property string of a map, in the order of its bins.

    Parameters
    ----------
    as_release_4
        Write as 4.9.7 does: other bins, and no separator at the end.
    """
    mask = _bins(len(properties), _BINS_OF_RELEASE_4 if as_release_4 else _BINS) - 1
    return properties_to_bytes(
        sorted(properties.items(), key=lambda item: _spread_hash(item[0]) & mask),
        closing_separator=not as_release_4,
    )


def hash_map_strings(properties_raw: Array, dropped: Sequence[str] = ()) -> Array:
    """Return every row's property string in the order of its bins; of equal names the last wins.

    Parameters
    ----------
    properties_raw
        ``pa.BinaryArray`` without nulls, starting at its first byte; each row ends with the
        separator 0x02, or is empty.
    """
    block = utf8_column(properties_raw).cast(pa.binary())
    pairs = PropertyColumns(block)
    row_of, names = pairs.pair_rows(), pairs.pair_names().dictionary_encode()
    code = names.indices.to_numpy().astype(np.int64)
    distinct = [name.decode() for name in names.dictionary.to_pylist()]
    kept = ~np.isin(code, [number for number, name in enumerate(distinct) if name in dropped])
    first, last = _distinct(row_of * len(distinct) + code, np.flatnonzero(kept))
    counts = np.bincount(row_of[first], minlength=len(block))
    # Worked example: row 0 has names K, A, K and row 1 has A; the hash of A gives bin 65, of K 75.
    # first = [0, 1, 3], last = [2, 1, 3] (the value of K is that of pair 2), bins [75, 65, 65].
    # Sorted by (row, bin): [1, 0, 3], so row 0 becomes A, K.
    hashes = string_hashes(names.dictionary).view(np.uint32)
    spread = (hashes ^ hashes >> _HALF_BITS).astype(np.int64)[code[first]]
    bins = _bins(int(counts.max(initial=0)))
    masks = np.full(len(block), _BINS - 1, np.int64)
    for row in np.flatnonzero(counts > _BINS * 3 // 4).tolist():
        masks[row] = _bins(int(counts[row])) - 1
    order = np.argsort(row_of[first] * bins + (spread & masks[row_of[first]]), kind="stable")
    return pairs.joined_pairs(first[order], last[order], counts)


def _distinct(key: Int64s, pairs: Int64s) -> tuple[Int64s, Int64s]:
    """Return the first and the last pair of each key, in order of the first."""
    order = pairs[np.argsort(key[pairs], kind="stable")]
    ordered = key[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    ends = np.append(begins[1:], len(ordered))
    first, last = order[begins], order[ends - 1] if len(begins) else order
    back = np.argsort(first, kind="stable")
    return first[back], last[back]


def _bins(names: int, bins: int = _BINS) -> int:
    """Return how many bins a map with so many names has; they fill at most 3/4 of them."""
    while names > bins * 3 // 4:
        bins *= 2
    return bins


@lru_cache(maxsize=4096)
def _spread_hash(name: str) -> int:
    code = string_hash(name) & _UNSIGNED_INT
    return code ^ code >> _HALF_BITS
