"""Sums by key over a stream of Arrow batches, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.arrow import pa

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Table

    Int64s = npt.NDArray[np.int64]

_MERGE_ROWS = 1 << 18
_MOST_BINS = 1 << 20


class Tally:
    """Adds up numbers by one or several keys.

    Parameters
    ----------
    keys, sums
        Names of the columns to group by and to add up.
    greatest
        Names of columns of which the greatest value of a group is kept.
    limit
        Most groups to keep; None: all. Beyond it the groups with the smallest first sum are let
        go, and ``missed`` grows: no kept sum is short by more, and no group left out is larger.
    """

    def __init__(
        self,
        keys: tuple[str, ...],
        sums: tuple[str, ...],
        limit: int | None = None,
        *,
        greatest: tuple[str, ...] = (),
    ) -> None:
        self._keys = list(keys)
        self._sums = list(sums)
        self._greatest = list(greatest)
        self._limit = limit
        self._parts: list[Table] = []
        self._rows = 0
        self.missed = 0

    def add(self, part: Table) -> None:
        """Add rows of a ``pa.Table`` that has the columns; groups may occur more than once."""
        self._parts.append(part)
        self._rows += part.num_rows
        if self._rows > _MERGE_ROWS and len(self._parts) > 1:
            self._merge()

    def table(self) -> Table | None:
        """Return the groups, largest first sum first; None before anything was added."""
        if not self._parts:
            return None
        self._merge()
        order = [(self._sums[0], "descending"), *((key, "ascending") for key in self._keys)]
        return self._parts[0].sort_by(order)

    def _merge(self) -> None:
        merged = self._grouped(pa.concat_tables(self._parts))
        if self._limit is not None and merged.num_rows > self._limit:
            ordered = merged.sort_by([(self._sums[0], "descending")])
            self.missed += int(ordered[self._sums[0]][self._limit].as_py())
            merged = ordered.slice(0, self._limit)
        self._parts, self._rows = [merged], 0

    def _grouped(self, part: Table) -> Table:
        wanted = [(name, "sum") for name in self._sums] + [(name, "max") for name in self._greatest]
        found = part.group_by(self._keys).aggregate(wanted)
        names = [*self._keys, *(f"{name}_{what}" for name, what in wanted)]
        return found.select(names).rename_columns([*self._keys, *(name for name, _ in wanted)])


def counted_pairs(
    first: Int64s, second: Int64s, weights: Int64s, values: Int64s | None = None
) -> tuple[Int64s, ...]:
    """Return the distinct pairs of two columns, how often each occurs, and its weights' sum.

    With ``values`` also the greatest of them for each pair. ``first`` counts from 0. Counts into
    bins where the pairs lie densely, which is ten times as fast as grouping them; sums of weights
    are exact up to 2**53.
    """
    low = int(second.min())
    span = int(second.max()) - low + 1
    pairs = first * span + (second - low)
    bins = (int(first.max()) + 1) * span
    if bins <= _MOST_BINS:
        all_counts = np.bincount(pairs)
        found = np.flatnonzero(all_counts)
        counts, sums = all_counts[found], np.bincount(pairs, weights)[found]
        places = (np.cumsum(all_counts > 0) - 1)[pairs]
    else:
        found, places, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        sums = np.bincount(places, weights)
    columns = (found // span, found % span + low, counts, sums.astype(np.int64))
    if values is None:
        return columns
    greatest = np.full(len(found), np.iinfo(np.int64).min)
    np.maximum.at(greatest, places, values)
    return (*columns, greatest)
