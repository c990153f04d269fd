# SPDX-License-Identifier: Apache-2.0
"""Maps places of records and queue offsets of the old store to those of the new one."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

_MAX_FIRST_OFFSET = 1 << 48  # a larger one in a damaged header would make a queue of that length


class OffsetRun(NamedTuple):
    """Offsets ``[old, old + length)`` are now ``[new, new + length)``."""

    old: int
    new: int
    length: int


class RecordRuns:
    """Runs of records that stayed together; ascending in both stores."""

    def __init__(self) -> None:
        self.runs: list[OffsetRun] = []

    def add(self, old: Int64s, old_sizes: Int64s, new: Int64s, new_sizes: Int64s) -> None:
        """Note the new places of records, which are in the order of the new store."""
        if len(old) == 0:
            return
        same = (np.diff(old) == old_sizes[:-1]) & (np.diff(new) == np.diff(old))
        # A record that changes its size ends its run, as the next one is shifted.
        firsts = np.flatnonzero(np.concatenate([[True], ~same]))
        lasts = np.concatenate([firsts[1:], [len(old)]]) - 1
        ends = old[lasts] + np.minimum(old_sizes, new_sizes)[lasts]
        lengths = ends - old[firsts]
        for run in zip(old[firsts].tolist(), new[firsts].tolist(), lengths.tolist()):
            self._add_run(OffsetRun(*run))

    def new_offset(self, old_offset: int) -> int | None:
        """Return the new offset of a byte of the old log; None if it was not copied."""
        at = bisect_right(self.runs, (old_offset, 2**63, 0)) - 1
        if at < 0:
            return None
        run = self.runs[at]
        inside = old_offset - run.old
        return run.new + inside if inside < run.length else None

    def _add_run(self, run: OffsetRun) -> None:
        last = self.runs[-1] if self.runs else None
        if last and (last.old + last.length, last.new + last.length) == (run.old, run.new):
            self.runs[-1] = last._replace(length=last.length + run.length)
        else:
            self.runs.append(run)


class MovedOffsets:
    """Gives the records of one queue offsets without gaps.

    Parameters
    ----------
    from_zero
        Whether the first record gets offset 0; otherwise it keeps its own.
    """

    def __init__(self, *, from_zero: bool = False) -> None:
        self.runs: list[OffsetRun] = []
        self.next_offset = 0 if from_zero else -1

    def assign(self, old: Int64s, counts: Int64s) -> Int64s:
        """Return new offsets of records in log order, each of which takes ``counts`` of them."""
        before = np.cumsum(counts) - counts
        if self.next_offset < 0:
            self.next_offset = _first_offset(old - before)
        new = self.next_offset + before
        self.next_offset += int(counts.sum())
        firsts = np.flatnonzero(np.concatenate([[True], np.diff(old) != counts[:-1]]))
        lengths = np.diff(np.concatenate([before[firsts], [int(counts.sum())]]))
        for run in zip(old[firsts].tolist(), new[firsts].tolist(), lengths.tolist()):
            self._add_run(OffsetRun(*run))
        return new

    @property
    def first_offset(self) -> int:
        """The first offset in the new store."""
        return self.runs[0].new

    @property
    def has_moved(self) -> bool:
        """Whether any offset has changed."""
        return any(run.old != run.new for run in self.runs)

    def new_offset(self, old_offset: int) -> int:
        """Return the new offset at which the messages from an old offset on begin.

        If a topic was deleted and recreated, its offsets began again: of two records with the same
        offset, the last one counts.
        """
        for run in reversed(self.runs):
            if run.old <= old_offset < run.old + run.length:
                return run.new + old_offset - run.old
        for run in reversed(self.runs):
            if old_offset == run.old + run.length:
                return run.new + run.length
        believed = self._believed()
        behind = [run for run in believed if run.old > old_offset]
        if not behind:
            return self.next_offset
        at = self.runs.index(min(behind))
        while at > 0 and self.runs[at - 1] not in believed:
            at -= 1  # a record with a damaged offset may be the one sought
        return self.runs[at].new

    def lost(self, most: int) -> list[tuple[int, int]]:
        """Return ranges of old offsets between copied records for which nothing was read.

        Ranges longer than ``most`` are left out: damaged offsets cause them, not lost records.
        """
        runs = self._believed()
        pairs = [(before.old + before.length, after.old) for before, after in zip(runs, runs[1:])]
        return [(start, stop) for start, stop in pairs if 0 < stop - start <= most]

    def _believed(self) -> list[OffsetRun]:
        """Return the runs without those of damaged offsets, before which the next run continues."""
        runs = self.runs
        found: list[OffsetRun] = []
        for at, run in enumerate(runs):
            before = found[-1].old + found[-1].length if found else 0
            after = runs[at + 1].old if at + 1 < len(runs) else run.old
            if run.old >= 0 and not before <= after < run.old:
                found.append(run)
        return found

    def _add_run(self, run: OffsetRun) -> None:
        last = self.runs[-1] if self.runs else None
        if last and last.old + last.length == run.old:
            self.runs[-1] = last._replace(length=last.length + run.length)
        else:
            self.runs.append(run)

    def saved(self) -> tuple[int, OffsetRun | None, int]:
        """Return the state to `restore` in order to undo later assignments."""
        return len(self.runs), self.runs[-1] if self.runs else None, self.next_offset

    def restore(self, saved: tuple[int, OffsetRun | None, int]) -> None:
        """Go back to a saved state."""
        count, last, self.next_offset = saved
        del self.runs[count:]
        if last is not None:
            self.runs[-1] = last


class NewQueues(dict[tuple[str, int], MovedOffsets]):
    """Queue offsets by (topic, queue id).

    Attributes
    ----------
    from_zero
        Whether all queues begin at 0. They have to if the log begins at 0: fillers before the first
        unit of a queue name log offset 0, and count as expired only if the log begins after that
        (``ConsumeQueue.fillPreBlank``, ``correctMinOffset``).
    """

    from_zero = True

    def at(self, topic: str, queue_id: int) -> MovedOffsets:
        """Return a queue, which the first call creates."""
        return self.setdefault((topic, queue_id), MovedOffsets(from_zero=self.from_zero))

    def saved(self) -> dict[tuple[str, int], Any]:
        """Return the state to `restore` in order to undo later assignments."""
        return {key: queue.saved() for key, queue in self.items()}

    def restore(self, saved: dict[tuple[str, int], Any]) -> None:
        """Go back to a saved state, without queues that were added later."""
        for key in self.keys() - saved.keys():
            del self[key]
        for key, state in saved.items():
            self[key].restore(state)


def _first_offset(candidates: Int64s) -> int:
    """Return the first offset of a queue: its first record's, unless the others belie that one.

    Lost records only make later candidates larger.
    """
    usable = candidates[(candidates >= 0) & (candidates <= _MAX_FIRST_OFFSET)]
    if len(usable) == 0:
        return 0
    first = candidates[0]
    if first == usable[0] and np.count_nonzero(usable == first) > 1:
        return int(first)
    return int(usable.min())
