"""Where a stream begins in a store that it never read: earliest, latest, a time, or offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqsource.errors import DataLossError
from rmqsource.options.offsets import LATEST
from rmqsource.scan.planner import describe_missing, missing_offsets
from rmqsource.scan.predicate import ScanPredicate
from store_core.log.log_scan import scan_frames, skip_gap
from store_core.log.readable_log import narrow_by_time

if TYPE_CHECKING:
    from typing import Callable

    from rmqsource.options.offsets import OffsetBound
    from rmqsource.options.source_options import SourceOptions
    from store_core.snapshot.store_snapshot import StoreSnapshot


class StreamStart(NamedTuple):
    """What the options ask for."""

    bound: OffsetBound | None
    timestamp_ms: int | None
    slack_ms: int
    fail_on_data_loss: bool

    @classmethod
    def of(cls, options: SourceOptions) -> StreamStart:
        """Return the start that options ask for."""
        return cls(
            bound=options.starting_offsets,
            timestamp_ms=options.starting_timestamp_ms,
            slack_ms=options.store_time_slack_ms,
            fail_on_data_loss=options.fail_on_data_loss,
        )

    def place(
        self, snapshot: StoreSnapshot, readable_end: Callable[[int], int]
    ) -> tuple[int, dict[tuple[str, int], int]]:
        """Return the physical offset to begin at, and the first offsets of named queues.

        Raises
        ------
        DataLossError
            Queue offsets that were named are not there, and ``failOnDataLoss`` is true.
        """
        low = max(snapshot.min_phy_offset, 0)
        if self.timestamp_ms is not None:
            return self._first_at(snapshot, self.timestamp_ms), {}
        if self.bound is None:
            return low, {}
        if self.bound.kind == LATEST:
            return readable_end(low), {}
        return low, self._queue_offsets(snapshot, self.bound)

    def _queue_offsets(
        self, snapshot: StoreSnapshot, bound: OffsetBound
    ) -> dict[tuple[str, int], int]:
        missing = missing_offsets(snapshot, ScanPredicate(starting_offsets=bound))
        if missing and self.fail_on_data_loss:
            raise DataLossError(snapshot.directory.uri, describe_missing(missing))
        offsets = dict(bound.offsets)
        for topic, queue_id in bound.latest:
            offsets[topic, queue_id] = snapshot.queue_range(topic, queue_id).max_offset
        return offsets

    def _first_at(self, snapshot: StoreSnapshot, timestamp_ms: int) -> int:
        """Return where the first record begins that was stored then or later; the end: none."""
        end = snapshot.end_offset
        begin, _ = narrow_by_time(snapshot.log, end, timestamp_ms, None, self.slack_ms)
        for frames in scan_frames(snapshot.log, begin, end, on_gap=skip_gap):
            late = np.flatnonzero(frames.column("store_timestamp") >= timestamp_ms)
            if len(late):
                return int(frames.column("commit_log_offset")[late[0]])
        return end
