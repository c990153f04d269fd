# SPDX-License-Identifier: Apache-2.0
"""Pull parts of queues: in concurrent chunks, with retries, and reporting every lost message."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any, Callable, Generic, NamedTuple, TypeVar

import numpy as np

from rmqnet.client.send_result import PullStatus
from rmqnet.errors import BrokerError
from rmqnet.remoting.codes import ResponseCode
from rmqnet.remoting.headers import PullMessageRequestHeader
from rmqsource.live.cluster import Patience
from rmqsource.live.errors import LiveDataLossError
from rmqsource.live.live_options import EVERYTHING, SQL92, pushed
from rmqsource.live.live_queues import BATCH, PLAIN, UNKNOWN, LiveQueue, QueueSlice
from store_core.codec.record_frames import RecordFrames, walk_records
from store_core.layout import (
    COMMIT_LOG_OFFSET_AT,
    HEADER_IPV4,
    MIN_RECORD_BYTES,
    RECORD_PREFIX,
    RecordLayout,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Sequence

    from rmqnet.client.send_result import PullResult
    from rmqsource.live.cluster import Cluster
    from rmqsource.live.live_options import PullExpression
    from store_core.event_loop_thread import EventLoopThread

logger = logging.getLogger(__name__)
_SUBSCRIPTION_FLAG = 4
_PULLS_AT_ONCE = 8
_WAITING_BYTES = 16 << 20
_PULLS_OF_CHUNK = 8
_CHUNK_BYTES = 4 << 20
"""A larger chunk is pulled in parts, as whole chunks of large messages would fill the memory."""
_FILTERED_CHUNK = 8192
"""Offsets of a filtered chunk; a broker checks 800 of them per request if nothing matches."""
_QUEUE_OFFSET_AT = HEADER_IPV4.at("queue_offset")
_OFFSET_RESET = "OFFSET_RESET"
_QUEUE_OFFSET = RecordLayout("queue_offset", [("value", "i8")])
Job = TypeVar("Job")
Result = TypeVar("Result")
_OFFSET = RecordLayout("commit_log_offset", [("value", "i8")])
_ALL = 1 << 62


class Pulled(NamedTuple):
    """Result of pulling offsets ``[start, stop)`` of a queue."""

    part: QueueSlice
    start: int
    stop: int
    body: bytes
    is_complete: bool
    is_lost: bool = False


class QueuePulls:
    """The pulls of one task."""

    def __init__(self, cluster: Cluster, subscription: PullExpression, most_messages: int) -> None:
        self._cluster, self._subscription = cluster, subscription
        self._most = most_messages
        self._ends: dict[LiveQueue, int] = {}
        self._unfiltering: set[str] = set()
        self._offsets = self._bytes = 0

    def begin(self, ranges: Sequence[QueueSlice]) -> PullAhead[QueueSlice, list[Pulled]]:
        """Start the pulls of all ranges; results are in order within a queue."""
        return PullAhead(
            self._cluster.thread,
            self._chunks(ranges),
            self.pull_chunk,
            lambda found: sum(len(pulled.body) for pulled in found),
            _rest,
            at_once=_PULLS_AT_ONCE,
            most_bytes=_WAITING_BYTES,
        )

    def _chunks(self, ranges: Sequence[QueueSlice]) -> Iterator[QueueSlice]:
        """Yield chunks of all ranges, the brokers taking turns."""
        by_store: dict[str, list[QueueSlice]] = {}
        for part in ranges:
            by_store.setdefault(part.store, []).append(part)
        turns = [self._chunks_of_store(parts) for parts in by_store.values()]
        while turns:
            for turn in tuple(turns):
                chunk = next(turn, None)
                if chunk is None:
                    turns.remove(turn)
                else:
                    yield chunk

    def _chunks_of_store(self, parts: Sequence[QueueSlice]) -> Iterator[QueueSlice]:
        for part in parts:
            if part.kind == BATCH:  # a chunk might begin within an inner batch
                yield part
                continue
            filtered = not pushed(self._subscription, part).selects_all
            most = _FILTERED_CHUNK if filtered else self._most * _PULLS_OF_CHUNK
            start = part.start
            while start < part.end:
                end = min(start + self._chunk_offsets(most), part.end)
                yield part._replace(start=start, end=end)
                start = end

    def _chunk_offsets(self, most: int) -> int:
        """Return how many offsets have about the bytes of a full chunk."""
        if self._offsets == 0:  # the first chunks show how large messages are
            return min(self._most, most)
        return max(min(_CHUNK_BYTES * self._offsets // max(self._bytes, 1), most), 1)

    async def pull_chunk(self, chunk: QueueSlice) -> list[Pulled]:
        """Pull the offsets of a chunk; only the first of them if they have many bytes."""
        found, at, size = [], chunk.start, 0
        while at < chunk.end and size < _CHUNK_BYTES:
            pulled = await self._pull(chunk, at)
            at = pulled.stop
            size += len(pulled.body)
            found.append(pulled)
        self._offsets += at - chunk.start
        self._bytes += size
        return found

    async def _pull(self, chunk: QueueSlice, at: int) -> Pulled:
        """Pull from an offset on until an answer leads past it."""
        patience = Patience(self._cluster.connection.retry_timeout_ms)
        while at < self._ends.get(chunk.queue, chunk.end):
            subscription = self._told(chunk)
            result = await self._asked(chunk, at, subscription)
            stop = result.next_begin_offset
            if result.status is PullStatus.FOUND and stop > at:
                return _found(chunk, at, result, is_complete=_misses_none(chunk, subscription))
            if result.remark == _OFFSET_RESET:  # the group was reset; the broker says so once
                continue
            if at < result.min_offset or at < stop <= result.max_offset:
                is_lost = at < result.min_offset or _misses_none(chunk, subscription)
                return _nothing(chunk, at, max(stop, at + 1), is_lost=is_lost)
            reason = (
                f"{chunk.queue} ends at offset {result.max_offset}, but had messages up to "
                f"{chunk.end - 1} when the read was planned"
            )
            try:
                await patience.pause(reason, LiveDataLossError(chunk.store, reason))
            except LiveDataLossError:
                self._ends[chunk.queue] = min(at, self._ends.get(chunk.queue, at))
            await self._cluster.refresh(chunk.queue.topic)
        return _nothing(chunk, at, chunk.end, is_lost=True)

    async def _asked(self, chunk: QueueSlice, at: int, subscription: PullExpression) -> PullResult:
        queue, cluster = chunk.queue, self._cluster
        most = self._most
        if subscription.selects_all and chunk.kind != BATCH:
            most = min(most, chunk.end - at)
        header = PullMessageRequestHeader(
            consumer_group=cluster.connection.consumer_group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=at,
            max_msg_nums=most,
            sys_flag=_SUBSCRIPTION_FLAG,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=subscription.expression,
            expression_type=subscription.kind,
            bname=queue.broker_name,
        )

        async def attempt() -> PullResult | None:
            address = await cluster.address_of(queue.topic, queue.broker_name)
            try:
                return await cluster.brokers.pull(address, header)
            except BrokerError as err:
                if subscription.kind != SQL92 or not _refuses_filter(err):
                    raise
                logger.info(
                    "%s does not filter by SQL, so messages are filtered here: %s", chunk.store, err
                )
                return None

        result = await cluster.patiently(str(queue), queue.topic, attempt, named=False)
        if result is not None:
            return result
        self._unfiltering.add(chunk.store)
        return await self._asked(chunk, at, EVERYTHING)

    def _told(self, chunk: QueueSlice) -> PullExpression:
        """Return the filter for the broker; `EVERYTHING` if it does not filter by SQL."""
        subscription = pushed(self._subscription, chunk)
        if subscription.kind == SQL92 and chunk.store in self._unfiltering:
            return EVERYTHING
        return subscription


def _rest(found: Sequence[Pulled]) -> QueueSlice | None:
    """Return the rest of a partly pulled chunk; None if all of it was pulled."""
    last = found[-1]
    return last.part._replace(start=last.stop) if last.stop < last.part.end else None


def _refuses_filter(error: BrokerError) -> bool:
    """Return whether a broker does not support SQL, or not this expression.

    Without ``enablePropertyFilter`` only the remark says so (``PullMessageProcessor``).
    """
    if error.code == ResponseCode.SYSTEM_ERROR:
        return "does not support" in error.remark
    return error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def _misses_none(chunk: QueueSlice, subscription: PullExpression) -> bool:
    """Return whether every offset of the chunk must have a record."""
    return subscription.selects_all and chunk.kind in {PLAIN, UNKNOWN}


def _nothing(chunk: QueueSlice, at: int, stop: int, *, is_lost: bool) -> Pulled:
    """Return a result without records for some offsets."""
    return Pulled(chunk, at, min(stop, chunk.end), b"", is_complete=False, is_lost=is_lost)


def _found(chunk: QueueSlice, at: int, result: PullResult, *, is_complete: bool) -> Pulled:
    """Return the records of an answer without those past the chunk."""
    stop, body = result.next_begin_offset, result.body
    if stop > chunk.end and chunk.kind != BATCH:
        body, stop = _until(body, chunk.end), chunk.end
    return Pulled(chunk, at, stop, body, is_complete)


def _until(body: bytes, end: int) -> bytes:
    """Return the leading records whose queue offsets are below `end`."""
    at = 0
    while at + RECORD_PREFIX.size < len(body):
        size = RECORD_PREFIX.struct.unpack_from(body, at)[0]
        if size <= 0 or _QUEUE_OFFSET.struct.unpack_from(body, at + _QUEUE_OFFSET_AT)[0] >= end:
            break
        at += size
    return body[:at]


class PullAhead(Generic[Job, Result]):
    """Runs jobs in an event loop, several at a time, while another thread takes the results.

    Brokers return few messages per request, so a reader that waits for each answer spends most of
    its time waiting.

    Parameters
    ----------
    most_bytes
        No job starts while this many bytes of results wait.
    """

    def __init__(
        self,
        thread: EventLoopThread,
        jobs: Iterable[Job],
        work: Callable[[Job], Coroutine[Any, Any, Result]],
        size: Callable[[Result], int],
        rest: Callable[[Result], Job | None] = lambda _: None,
        *,
        at_once: int,
        most_bytes: int,
    ) -> None:
        self._jobs, self._work, self._size, self._rest = iter(jobs), work, size, rest
        self._at_once, self._most_bytes = at_once, most_bytes
        self._begun = self._taken = self._waiting_bytes = 0
        self._done: dict[int, Result] = {}
        self._error: BaseException | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._room: asyncio.Event | None = None
        self._thread = thread
        self._running = thread.submit(self._run())

    def __iter__(self) -> Iterator[Result]:
        """Yield the results in the order of the jobs; raise the exception of a failed job."""
        while True:
            found = self._next_ones()
            if not found:
                return
            for result in found:
                yield result
                self._give_back(self._size(result))
                yield from self._rests(result)

    def _rests(self, result: Result) -> Iterator[Result]:
        job = self._rest(result)
        while job is not None:
            found = self._thread.submit(self._work(job)).result()
            yield found
            job = self._rest(found)

    def shutdown(self) -> None:
        """Cancel the running jobs; results that were not taken are lost."""
        self._running.cancel()

    def _next_ones(self) -> list[Result]:
        """Wait for the next result; return all that follow in order, none if all were taken."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._taken in self._done or self._error is not None or self._ended
            )
            found = []
            while self._taken in self._done:
                found.append(self._done.pop(self._taken))
                self._taken += 1
            if not found and self._error is not None:
                raise self._error
            return found

    def _give_back(self, size: int) -> None:
        with self._changed:
            was_full = self._waiting_bytes >= self._most_bytes
            self._waiting_bytes -= size
            has_room = was_full and self._waiting_bytes < self._most_bytes
        if has_room and self._room is not None:
            self._thread.call(self._room.set)

    async def _run(self) -> None:
        self._room = asyncio.Event()
        workers = [asyncio.ensure_future(self._worker()) for _ in range(self._at_once)]
        try:
            await asyncio.gather(*workers)
        except BaseException as err:
            for worker in workers:
                worker.cancel()
            self._end(err)
            if not isinstance(err, Exception):
                raise
        else:
            self._end(None)

    async def _worker(self) -> None:
        while True:
            await self._wait_for_room()
            job = next(self._jobs, None)
            if job is None:
                return
            number = self._begun
            self._begun += 1
            self._put(number, await self._work(job))

    async def _wait_for_room(self) -> None:
        room = self._room
        while room is not None:
            room.clear()
            with self._changed:
                if self._waiting_bytes < self._most_bytes:
                    return
            await room.wait()

    def _put(self, number: int, result: Result) -> None:
        with self._changed:
            self._done[number] = result
            self._waiting_bytes += self._size(result)
            if number == self._taken:
                self._changed.notify_all()

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            self._error, self._ended = error, True
            self._changed.notify_all()


class BadPull(NamedTuple):
    """Why bytes from a broker are not records, and where."""

    position: int
    reason: str


def frames_of_bodies(bodies: Sequence[bytes]) -> RecordFrames | BadPull:
    """Return the frames of all consecutive records in some answers.

    The records come from anywhere in the log, so their own offsets prove nothing here; all other
    checks of `RecordFrames` apply.
    """
    data = np.frombuffer(bodies[0] if len(bodies) == 1 else b"".join(bodies), np.uint8)
    walk = walk_records(data, 0, len(data), len(data) // MIN_RECORD_BYTES + 1, _ALL)
    if walk.stop != len(data):
        return BadPull(walk.stop, "no record begins here")
    starts = walk.starts
    offsets = _OFFSET.gather(data, starts + COMMIT_LOG_OFFSET_AT)["value"].astype(np.int64)
    frames = RecordFrames(data, offsets - starts, starts)
    if not frames.ok.all():
        at = int(starts[int(np.argmin(frames.ok))])
        return BadPull(at, "a record whose lengths contradict each other")
    return frames
