"""One batch consume queue while it is checked; a unit holds the messages of one record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.queue.batch_consume_queue import NATIVE_BATCH_CQ_UNIT, BatchConsumeQueue
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import unread
from store_core.tools.check.queue_units import MissingRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings

_FIELDS = ("tags_code", "store_timestamp", "base_queue_offset", "batch_size")


class CheckedBatchQueue:
    """Compares the units of a batch queue with the records that should be there.

    Holds the units: 46 bytes each, and 16 to find them by.
    """

    unit_word = "unit"

    def __init__(
        self,
        snapshot: StoreSnapshot,
        key: tuple[str, int],
        path: str,
        findings: Findings,
        counts: CheckCounts,
    ) -> None:
        self.key = key
        self.place = f"{key[0]}/{key[1]}"
        self._findings, self._counts = findings, counts
        self.missing = MissingRecords()
        self.is_known = True
        self._units: Any = np.empty(0, NATIVE_BATCH_CQ_UNIT)
        size = snapshot.config.mapper_file_size_batch_consume_queue
        try:
            queue = BatchConsumeQueue.open(snapshot.directory, *key, path, size)
            self._units = queue.read_units()
        except (CorruptRecordError, StoreFormatError, StoreReadError) as err:
            kind = unread(err, FindingKind.QUEUE_UNREADABLE)
            self.is_known = kind is not FindingKind.NO_PERMISSION
            findings.add(kind, self.place, examples=[str(err)])
        self._proved = np.zeros(len(self._units), bool)
        self._by_offset = np.argsort(self._units["commit_log_offset"], kind="stable")
        self._offsets = self._units["commit_log_offset"][self._by_offset]
        self._differs = np.zeros(len(self._units), bool)

    @property
    def first_proved(self) -> int:
        """Number of the first unit that a record proved; after all if there is none."""
        return int(np.argmax(self._proved)) if self._proved.any() else len(self._units)

    def match(self, rows: DispatchRequests) -> Any:
        """Return which records have their unit; note units that differ otherwise."""
        at = np.searchsorted(self._offsets, rows.commit_log_offset)
        inside = np.flatnonzero(at < len(self._offsets))
        place = self._by_offset[at[inside]]
        good = self._units["commit_log_offset"][place] == rows.commit_log_offset[inside]
        good &= self._units["message_size"][place] == rows.message_size[inside]
        matched = np.zeros(len(rows), bool)
        matched[inside[good]] = True
        place = place[good]
        self._proved[place] = True
        self._counts.units += len(place)
        units, proved = self._units[place], rows.take(matched)
        for name in _FIELDS:
            wrong = np.flatnonzero(units[name] != getattr(proved, name))
            self._differs[place[wrong]] = True
            self._note(name, units[wrong], place[wrong])
        return matched

    def unproved(self) -> Iterator[tuple[int, Any]]:
        """Yield (number of the first, units) of the stretches that no record proved."""
        rows = np.flatnonzero(~self._proved)
        for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
            if len(run):
                yield int(run[0]), self._units[run]

    def _note(self, name: str, units: Any, numbers: Any) -> None:
        if len(units):
            kind = FindingKind.UNIT_TAGS if name == "tags_code" else FindingKind.UNIT_WRONG
            self._findings.add(
                kind,
                self.place,
                position=int(numbers[0]),
                commit_log_offset=int(units["commit_log_offset"][0]),
                count=len(units),
                examples=[f"unit {numbers[0]}: {name} is {units[name][0]}"],
            )

    def check_order(self) -> None:
        """Note units that do not follow the one before, when all records were matched."""
        units, good = self._units, self._proved & ~self._differs
        follows = units["base_queue_offset"][:-1] + units["batch_size"][:-1]
        odd = follows != units["base_queue_offset"][1:]
        # Made anew from good records, units stand as they do.
        is_hole = good[:-1] & good[1:]
        for kind, wrong in (
            (FindingKind.QUEUE_ORDER, np.flatnonzero(odd & ~is_hole)),
            (FindingKind.QUEUE_HOLE, np.flatnonzero(odd & is_hole)),
        ):
            self._findings.add(
                kind,
                self.place,
                position=int(wrong[0]) + 1 if len(wrong) else -1,
                count=len(wrong),
                examples=[
                    f"unit {at + 1} begins at queue offset {units['base_queue_offset'][at + 1]}, "
                    f"not {follows[at]}"
                    for at in wrong[:5].tolist()
                ],
            )
