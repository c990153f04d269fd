# SPDX-License-Identifier: Apache-2.0
"""One store that a stream follows: where its next batch begins and how far it may go."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from rmqsource.errors import DataLossError, SourceOptionError, StreamDataLossError
from rmqsource.options.offsets import LATEST
from rmqsource.scan.planner import describe_missing, missing_offsets
from rmqsource.scan.predicate import ScanPredicate
from rmqsource.scan.store_versions import VANISHED_ATTEMPTS, open_snapshot
from rmqsource.stream.batch_cut import BatchBudget, cut_batch, waiting_messages
from rmqsource.stream.stream_offset import JOINED, RESUMED, STARTED, Begin, StoreOffset
from store_core.errors import FileVanishedError, StoreNotFoundError
from store_core.files.store_directory import StoreDirectory
from store_core.log.commit_log import narrow_by_time, scan_frames
from store_core.log.log_scan import skip_gap
from store_core.read.log_watch import LogWatch, MarkState, mark_at, mark_before, mark_state
from store_core.snapshot.batch_end import dispatched_end, flushed_end, written_end
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    from typing import Callable

    from rmqsource.options.offsets import OffsetBound
    from rmqsource.options.source_options import SourceOptions
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.snapshot.store_snapshot import StoreSnapshot

_T = TypeVar("_T")
logger = logging.getLogger(__name__)


class Waiting(NamedTuple):
    """The part of a store's log that waits for the next batch.

    Attributes
    ----------
    offset
        How far the store was read; None if never.
    """

    offset: StoreOffset | None
    begin: Begin | None
    end: int

    @property
    def start(self) -> int:
        """Where the batch begins."""
        if self.begin is not None:
            return self.begin.offset
        return self.offset.offset if self.offset is not None else 0

    @property
    def bytes_waiting(self) -> int:
        """Bytes of the log that wait."""
        return max(self.end - self.start, 0)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing for a batch, not even a beginning."""
        return self.offset is not None and self.begin is None and self.bytes_waiting == 0


class _Seen(NamedTuple):
    """A full look: how far a batch may go, the end of the written log, and the offset reached."""

    end: int
    written_end: int
    offset: int
    watch: LogWatch


class FollowedStore:
    """A store of a stream; no file stays open between calls."""

    def __init__(
        self,
        path: str,
        options: SourceOptions,
        config: MessageStoreConfig,
        selection: ScanPredicate,
    ) -> None:
        self.path = path
        self._options, self._config, self._selection = options, config, selection
        self._directory = StoreDirectory(path)
        self._seen: _Seen | None = None
        self._told: set[str] = set()

    def look(self, offset: StoreOffset | None, start: StreamStart | None) -> Waiting | None:
        """Return what waits in the store; None if the store is gone and that is not an error.

        Parameters
        ----------
        offset
            How far the store was read; None if never.
        start
            Where to begin a store that was never read; None for a store added later, which begins
            at its first record.

        Raises
        ------
        StreamDataLossError
            The log is not the one that was read, or has lost records that were not read yet, and
            ``failOnDataLoss`` is true. A lost end is an error only with ``mode=FAILFAST`` as well.
        """
        seen = self._seen
        if (
            seen is not None
            and offset is not None
            and offset.offset == seen.offset
            and self.is_unchanged()
        ):
            return Waiting(offset, None, seen.end)
        try:
            return self._retried(lambda: self._full_look(offset, start))
        except StoreNotFoundError as err:
            self._miss(offset, err, is_late=start is None)
            return None

    def is_unchanged(self) -> bool:
        """Return whether another look would surely give the result of the last one."""
        return self._seen is not None and self._seen.watch.is_unchanged()

    def end_now(self) -> int | None:
        """Return how far a batch may go now; None if there is no store."""
        try:
            with open_snapshot(self.path, self._config, None) as snapshot:
                return self.readable_end(snapshot, max(snapshot.min_phy_offset, 0))
        except StoreNotFoundError:
            return None  # the next look reports it

    def _full_look(self, offset: StoreOffset | None, start: StreamStart | None) -> Waiting:
        watch = LogWatch(
            self._directory, self._config, with_checkpoint=self._options.read_up_to == "flushed"
        )
        with open_snapshot(self.path, self._config, None) as snapshot:
            begin = (
                self._first_begin(snapshot, start)
                if offset is None
                else self._resumed(snapshot, offset)
            )
            at = Waiting(offset, begin, 0).start
            end = self.readable_end(snapshot, at)
            self._check_log_end(snapshot)
            last = offset.last if offset is not None else None
            # Dispatching and flushing go on without changes of the log.
            if end >= snapshot.end_offset:
                watch.remember(snapshot, last)
            self._seen = _Seen(end, snapshot.end_offset, at, watch)
        return Waiting(offset, begin, end)

    def _check_log_end(self, snapshot: StoreSnapshot) -> None:
        """Report messages that a stopped store has lost past the end of its log.

        A writer's queues can be ahead of the log as it was seen first, so a second look decides.
        """
        if snapshot.state is not StoreState.STOPPED or snapshot.evident_lost_end is None:
            return
        with open_snapshot(self.path, self._config, None) as again:
            lost = again.evident_lost_end if again.state is StoreState.STOPPED else None
        if lost is None:
            return
        if self._options.mode == "FAILFAST":
            self._lose(str(lost), "it reads what is left")
        else:
            self._warn(str(lost), "it reads what is left")

    def readable_end(self, snapshot: StoreSnapshot, floor: int) -> int:
        """Return how far a batch may go (option ``readUpTo``)."""
        if self._options.read_up_to == "written":
            return written_end(snapshot, floor)
        if self._options.read_up_to == "flushed":
            return flushed_end(snapshot, floor)
        if snapshot.kind.queue_database:
            raise SourceOptionError(
                "readUpTo",
                f"store {self.path} has its queues in a RocksDB database, which does not show "
                "what was dispatched; give 'written' or 'flushed'",
            )
        return dispatched_end(snapshot, floor)

    def _first_begin(self, snapshot: StoreSnapshot, start: StreamStart | None) -> Begin:
        if start is None:
            return Begin(max(snapshot.min_phy_offset, 0), JOINED)
        place, queue_offsets = start.place(
            snapshot, lambda floor: self.readable_end(snapshot, floor)
        )
        return Begin(place, STARTED, queue_offsets)

    def _resumed(self, snapshot: StoreSnapshot, offset: StoreOffset) -> Begin | None:
        """Return where to continue, None for the offset itself; report what is lost.

        A log is the same as long as the last record that was read is there or has expired. If
        another record is in its place, the first record distinguishes a new log from a cut one.
        """
        at, log = offset.offset, snapshot.log
        low = max(snapshot.min_phy_offset, 0)
        last = MarkState.EXPIRED if offset.last is None else mark_state(log, offset.last)
        if last is MarkState.HELD and snapshot.end_offset >= at:
            return None
        if last is MarkState.EXPIRED and low <= at <= snapshot.end_offset:
            return None
        if offset.last is None and offset.first is None:
            return Begin(low, RESUMED)  # no record was ever seen there
        if last is MarkState.EXPIRED and at < low:
            gone = f"bytes {at} to {low} of the log expired before they were read"
            self._lose(gone, f"it continues at offset {low}")
            return Begin(low, RESUMED)
        return self._after_cut(snapshot, offset, last)

    def _after_cut(self, snapshot: StoreSnapshot, offset: StoreOffset, last: MarkState) -> Begin:
        at, low, end = offset.offset, max(snapshot.min_phy_offset, 0), snapshot.end_offset
        what = (
            f"it was read up to offset {at}, but now its log ends at {end}"
            if end < at
            else f"it was read up to offset {at}, where there are other records now"
        )
        first = (
            MarkState.REPLACED if offset.first is None else mark_state(snapshot.log, offset.first)
        )
        if first in {MarkState.HELD, MarkState.EXPIRED} and last is not MarkState.EXPIRED:
            self._lose(
                f"{what}: the log was cut. Rows that were delivered are no longer in it, and "
                "records written since the cut have offsets that were read before",
                f"it continues at offset {end}; records written since the cut are skipped",
            )
            return Begin(end, RESUMED)
        self._lose(f"{what}: this is another log", f"it continues with its first record, at {low}")
        return Begin(low, RESUMED)

    def _miss(self, offset: StoreOffset | None, err: StoreNotFoundError, *, is_late: bool) -> None:
        """Report a missing store: it is gone, or was named or matched before it was complete."""
        self._seen = None
        if offset is not None:
            gone = f"{err}; it was read up to offset {offset.offset}"
            self._lose(gone, "it is skipped until it is back")
        elif self._options.fail_on_data_loss and not is_late:
            raise err
        else:
            self._warn(f"{err}", "it is skipped until there is one")

    def _lose(self, reason: str, instead: str) -> None:
        if self._options.fail_on_data_loss:
            raise StreamDataLossError(self.path, reason, instead)
        self._warn(reason, instead)

    def _warn(self, reason: str, instead: str) -> None:
        if reason not in self._told:
            self._told.add(reason)
            logger.warning("store %s: %s; %s", self.path, reason, instead)

    def cut(self, waiting: Waiting, budget: BatchBudget) -> StoreOffset | None:
        """Return how far a batch goes: as far as it may within the budget.

        Returns
        -------
        StoreOffset
            The offset that was read, if nothing waits or the store is gone; None if a store that
            is gone was never read.
        """
        if waiting.is_empty:
            return waiting.offset
        try:
            return self._retried(lambda: self._cut(waiting, budget))
        except StoreNotFoundError as err:  # it was deleted just now
            self._miss(waiting.offset, err, is_late=True)
            return waiting.offset

    def _cut(self, waiting: Waiting, budget: BatchBudget) -> StoreOffset:
        begin, offset = waiting.begin, waiting.offset
        if begin is not None:
            queue_offsets = begin.queue_offsets
        else:
            queue_offsets = offset.queue_offsets if offset is not None else {}
        with self._known(waiting.end) as snapshot:
            end = cut_batch(snapshot, waiting.start, waiting.end, self._selection, budget)
            low = max(snapshot.min_phy_offset, 0)
            last = mark_before(snapshot.log, waiting.start, end)
            if last is None and offset is not None and begin is None:
                last = offset.last
            return StoreOffset(
                offset=end,
                first=mark_at(snapshot.log, low, max(end, low)),
                last=last or mark_before(snapshot.log, low, end),
                queue_offsets=_not_passed(snapshot, queue_offsets, end),
                begin=begin,
            )

    def reported(self, read: StoreOffset) -> StoreOffset | None:
        """Return how far the store goes, and how many messages wait past what was read.

        None if the store is gone or no longer followed.
        """
        seen = self._seen
        if seen is None:
            return None
        if seen.end <= read.offset:
            return StoreOffset(read.offset, read.first, read.last, waiting=0)
        try:
            return self._retried(lambda: self._reported(read, seen.end))
        except StoreNotFoundError:  # the next look reports it
            return None

    def _reported(self, read: StoreOffset, end: int) -> StoreOffset:
        with self._known(end) as snapshot:
            return StoreOffset(
                offset=end,
                first=read.first,
                last=mark_before(snapshot.log, read.offset, end) or read.last,
                waiting=waiting_messages(snapshot, self._selection, read.offset, end),
            )

    def _known(self, end: int) -> StoreSnapshot:
        """Open the store up to the end that the last look saw, or to ``end`` if that is later."""
        written = max(self._seen.written_end, end) if self._seen is not None else end
        return open_snapshot(self.path, self._config, written)

    def _retried(self, work: Callable[[], _T]) -> _T:
        """Return the result of ``work`` on the store, retrying if files vanish."""
        for _ in range(VANISHED_ATTEMPTS - 1):
            try:
                return work()
            except FileVanishedError:
                continue
        return work()


def _not_passed(
    snapshot: StoreSnapshot, queue_offsets: dict[tuple[str, int], int], end: int
) -> dict[tuple[str, int], int]:
    """Return the bounds of the queues that can still have earlier messages after ``end``."""
    if snapshot.kind.queue_database:
        return queue_offsets
    return {
        (topic, queue_id): bound
        for (topic, queue_id), bound in queue_offsets.items()
        if _queue_offset_at(snapshot, topic, queue_id, end) < bound
    }


def _queue_offset_at(snapshot: StoreSnapshot, topic: str, queue_id: int, offset: int) -> int:
    """Return the queue offset of the first message at or after a log offset."""
    queue = snapshot.consume_queue(topic, queue_id)
    if queue is None:
        return 0
    return queue.correct_min_offset(offset, snapshot.queue_range(topic, queue_id).max_offset)


class StreamStart(NamedTuple):
    """Where a stream starts, as the options say."""

    bound: OffsetBound | None
    timestamp_ms: int | None
    slack_ms: int
    fail_on_data_loss: bool

    @classmethod
    def from_options(cls, options: SourceOptions) -> StreamStart:
        """Return the start that the options set."""
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
            The store no longer has queue offsets of the options, and ``failOnDataLoss`` is true.
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
        """Return the offset of the first record stored at that time or later; the end if none."""
        end = snapshot.end_offset
        begin, _ = narrow_by_time(snapshot.log, end, timestamp_ms, None, self.slack_ms)
        for frames in scan_frames(snapshot.log, begin, end, on_gap=skip_gap):
            late = np.flatnonzero(frames.column("store_timestamp") >= timestamp_ms)
            if len(late):
                return int(frames.column("commit_log_offset")[late[0]])
        return end
