"""What was pulled as batches of columns: many answers are decoded at once, and checked."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rmqsource.live.errors import ClusterError, LiveDataLossError
from rmqsource.live.live_queues import BATCH
from rmqsource.live.pulled_frames import BadPull, frames_of_bodies
from rmqsource.live.repeats import RepeatFilter
from rmqsource.options.offsets import SPECIFIC, OffsetBound
from rmqsource.scan.message_batches import MessageBatches
from rmqsource.scan.splits import SegmentPositions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqsource.live.live_queues import LiveQueue, QueueRange
    from rmqsource.live.queue_pulls import Pulled
    from rmqsource.scan.predicate import ScanPredicate
    from rmqsource.scan.read_request import ReadRequest
    from store_core.arrow_types import Columns
    from store_core.codec.record_frames import RecordFrames

logger = logging.getLogger(__name__)


class LiveBatches:
    """Decodes what one task pulls.

    Parameters
    ----------
    request
        Columns, filters, sizes.
    ranges
        All that the task reads.
    dedupe
        Drop repeats.
    """

    def __init__(
        self, request: ReadRequest, ranges: Sequence[QueueRange], *, dedupe: bool = False
    ) -> None:
        self._request = request
        repeats = RepeatFilter() if dedupe else None
        self._stores = {
            store: _StoreBatches(
                store, request, [part for part in ranges if part.store == store], repeats
            )
            for store in {part.store for part in ranges}
        }
        self._lost: dict[LiveQueue, list[int]] = {}

    def of_pulls(self, pulls: Iterable[Sequence[Pulled]]) -> Iterator[Columns]:
        """Yield the matching messages of answers, in order within each queue."""
        for chunk in pulls:
            for pulled in chunk:
                store = self._stores[pulled.part.store]
                if pulled.is_lost:
                    self._lose(pulled, pulled.start, pulled.stop)
                if pulled.body:
                    store.add(pulled)
                if store.is_full:
                    yield from self._decoded(store)
        for store in self._stores.values():
            yield from self._decoded(store)
        self._report()

    def _decoded(self, store: _StoreBatches) -> Iterator[Columns]:
        answers = store.take()
        if not answers:
            return
        frames = frames_of_bodies([pulled.body for pulled in answers])
        if isinstance(frames, BadPull):
            raise ClusterError(store.name, f"{_place(answers, frames.position)}: {frames.reason}")
        self._check_gaps(answers, frames)
        yield from store.batches.of_frames(frames, store.place)

    def _check_gaps(self, answers: Sequence[Pulled], frames: RecordFrames) -> None:
        """Look for offsets that must have come and did not, in all answers at once."""
        whole = [pulled for pulled in answers if pulled.is_complete]
        if not whole:
            return
        expected = np.concatenate([np.arange(p.start, p.stop, dtype=np.int64) for p in whole])
        found = frames.column("queue_offset")
        if len(whole) == len(answers) and np.array_equal(expected, found):
            return
        sizes = np.cumsum([len(pulled.body) for pulled in answers])
        answer = np.searchsorted(sizes, frames.position, "right")
        for number, pulled in enumerate(answers):
            if pulled.is_complete:
                self._check_answer(pulled, found[answer == number].tolist())

    def _check_answer(self, pulled: Pulled, offsets: list[int]) -> None:
        at = pulled.start
        for offset in [*offsets, pulled.stop]:
            if offset < at:
                raise ClusterError(
                    pulled.part.store,
                    f"{pulled.part.queue} answered a pull of offset {at} with a message of offset "
                    f"{offset}",
                )
            if offset > at:
                self._lose(pulled, at, offset)
            at = offset + 1

    def _lose(self, pulled: Pulled, start: int, stop: int) -> None:
        """Decide what it means that messages are gone: an error, or a warning at the end."""
        queue = pulled.part.queue
        if self._request.fail_on_data_loss:
            raise LiveDataLossError(
                pulled.part.store,
                f"offsets {start} to {stop - 1} of {queue} are gone since the read was planned: "
                "expired, or lost when the broker crashed",
            )
        self._lost.setdefault(queue, [start, 0])[1] += stop - start

    def _report(self) -> None:
        for queue, (first, count) in self._lost.items():
            logger.warning(
                "%s: %d messages are gone and left out, from offset %d on", queue, count, first
            )
        for store in self._stores.values():
            store.batches.report()


class _StoreBatches:
    """Answers of one broker that wait to be decoded together."""

    def __init__(
        self,
        store: str,
        request: ReadRequest,
        parts: Sequence[QueueRange],
        repeats: RepeatFilter | None,
    ) -> None:
        self.name = store
        predicate = _bounded(request.predicate, parts)
        self.batches = MessageBatches(
            store,
            replace(request, predicate=predicate),
            None if repeats is None else repeats.of_matching,
        )
        self.place = SegmentPositions("its log", 0, 0, 0, b"")
        self._rows, self._bytes = request.batch_rows, request.batch_bytes
        self._waiting: list[Pulled] = []
        self._offsets = self._size = 0

    @property
    def is_full(self) -> bool:
        return self._offsets >= self._rows or self._size >= self._bytes

    def add(self, pulled: Pulled) -> None:
        self._waiting.append(pulled)
        self._offsets += pulled.stop - pulled.start if pulled.is_complete else 1
        self._size += len(pulled.body)

    def take(self) -> list[Pulled]:
        found, self._waiting = self._waiting, []
        self._offsets = self._size = 0
        return found


def _bounded(predicate: ScanPredicate, parts: Sequence[QueueRange]) -> ScanPredicate:
    """Return a predicate that holds for the rows of these parts only.

    Offsets of other records are those that were asked for; those of inner messages need not be.
    """
    bounded = [part for part in parts if part.kind == BATCH]
    if not bounded:
        return replace(predicate, starting_offsets=None, ending_offsets=None)
    starts = {(part.queue.topic, part.queue.queue_id): part.start for part in reversed(bounded)}
    ends = {(part.queue.topic, part.queue.queue_id): part.end for part in bounded}
    return replace(
        predicate,
        starting_offsets=OffsetBound(SPECIFIC, starts),
        ending_offsets=OffsetBound(SPECIFIC, ends),
    )


def _place(answers: Sequence[Pulled], position: int) -> str:
    """Say which answer holds a byte of all bodies joined."""
    for pulled in answers:
        if position < len(pulled.body):
            return f"byte {position} of the answer to a pull of {pulled.part.queue}"
        position -= len(pulled.body)
    return "the last answer"
