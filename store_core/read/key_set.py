"""Millions of keys to look others up in, without an object for each.

Arrow's ``is_in`` puts the whole set into a hash table at each call; here that is done once. A hash
is that of RocketMQ's index, 32 bits, and what has an equal one is compared itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.arrow import pa, pc
from store_core.codec.java_string import string_hashes

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

_MARKS_PER_KEY = 4
_LEAST_BITS, _MOST_BITS = 10, 26


class KeySet:
    """A set of strings.

    Of ten million of 16 bytes it takes 0.4 GB. A string that is looked up costs 50 ns, most of
    them for its hash, and more only where some key has the same.

    Examples
    --------
    Of hashes 7, 3, 7 of keys a, b, c, sorted are 3, 7, 7 of the keys 1, 0, 2. A string of hash 7
    is compared with the keys 0 and 2; one of hash 5 with none.
    """

    def __init__(self, keys: Array) -> None:
        self._keys = keys.drop_null().cast(pa.large_string())
        hashes = string_hashes(self._keys).view(np.uint32)
        self._order = np.argsort(hashes, kind="stable").astype(np.uint32)
        self._hashes = hashes[self._order]
        wanted_bits = (len(hashes) * _MARKS_PER_KEY).bit_length()
        self._bits = np.uint32(min(max(wanted_bits, _LEAST_BITS), _MOST_BITS))
        self._marks = np.zeros(1 << int(self._bits), np.bool_)
        self._marks[self._mark_of(hashes)] = True

    def __len__(self) -> int:
        return len(self._keys)

    def contains(self, strings: Array) -> Bools:
        """Return which strings are in the set; nulls are not."""
        hashes = string_hashes(strings).view(np.uint32)
        found = np.zeros(len(hashes), np.bool_)
        rows = np.flatnonzero(self._marks[self._mark_of(hashes)])
        low = np.searchsorted(self._hashes, hashes[rows], "left")
        count = np.searchsorted(self._hashes, hashes[rows], "right") - low
        rows, low, count = rows[count > 0], low[count > 0], count[count > 0]
        most = int(count.max(initial=0))
        for step in range(most):  # keys of one hash, one after the other: as a rule there is one
            keys = self._keys.take(pa.array(self._order[low + step]))
            asked = strings.take(pa.array(rows)).cast(pa.large_string())
            equal = pc.fill_null(pc.equal(asked, keys), False)
            found[rows[equal.to_numpy(zero_copy_only=False)]] = True
            left = (count > step + 1) & ~found[rows]
            rows, low, count = rows[left], low[left], count[left]
        return found

    def _mark_of(self, hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return the mark of each hash: its low bits, in which those of neighbours differ."""
        marks: npt.NDArray[np.uint32] = (hashes ^ (hashes >> self._bits)) & np.uint32(
            (1 << int(self._bits)) - 1
        )
        return marks
