"""Sets of queue offsets that are mostly a few long runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.ranges import merged_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator


class OffsetRanges:
    """A set of numbers as disjoint ranges: what grows at the end costs nothing.

    Memory grows with the number of runs, not of numbers.
    """

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._merged = True

    def add_sorted(self, numbers: Any) -> None:
        """Add ascending numbers."""
        if not len(numbers):
            return
        breaks = np.flatnonzero(np.diff(numbers) > 1) + 1
        starts = numbers[np.concatenate([[0], breaks])].tolist()
        lasts = numbers[np.concatenate([breaks - 1, [len(numbers) - 1]])].tolist()
        for start, last in zip(starts, lasts):
            if self._ranges and self._ranges[-1][1] == start:
                self._ranges[-1] = (self._ranges[-1][0], last + 1)
                continue
            if self._ranges and start < self._ranges[-1][1]:
                self._merged = False
            self._ranges.append((start, last + 1))

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges ``(start, stop)``, ascending and disjoint."""
        if not self._merged:
            self._ranges, self._merged = merged_ranges(self._ranges), True
        return self._ranges

    def holes(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of ``[start, stop)`` that are not in the set."""
        at = start
        for begin, end in self.ranges():
            if begin >= stop:
                break
            if begin > at:
                yield at, min(begin, stop)
            at = max(at, end)
        if at < stop:
            yield at, stop
