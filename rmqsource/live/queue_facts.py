# SPDX-License-Identifier: Apache-2.0
"""Ask brokers for facts of queues: their ends, and their first and last messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqnet.errors import BrokerError
from rmqsource.live.cluster import may_pass
from rmqsource.live.cluster_survey import gather, offset_of_time
from rmqsource.live.live_options import EVERYTHING
from rmqsource.live.live_queues import SPARSE, LiveQueue, QueueSlice
from rmqsource.live.queue_pulls import BadPull, QueuePulls, frames_of_bodies
from rmqsource.metadata.columns import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from rmqsource.live.cluster import Cluster
    from rmqsource.live.live_queues import QueueState

NO_RECORD = -1


class MessagePlace(NamedTuple):
    """Where and when a message was stored; `NO_RECORD` and ``NO_TIME`` if there is none."""

    commit_log_offset: int = NO_RECORD
    store_timestamp: int = NO_TIME


NOWHERE = MessagePlace()


async def places_of(
    cluster: Cluster,
    states: Mapping[LiveQueue, QueueState],
    wanted: Iterable[tuple[LiveQueue, int]],
) -> dict[tuple[LiveQueue, int], MessagePlace]:
    """Return the places of messages by queue and queue offset; `NOWHERE` for missing messages."""
    pulls = QueuePulls(cluster, EVERYTHING, 1)
    asked = sorted(set(wanted))

    async def place(item: tuple[LiveQueue, int]) -> MessagePlace:
        queue, offset = item
        state = states[queue]
        part = QueueSlice(queue, state.store, offset, offset + 1, state.kind)
        try:
            found = await pulls.pull_chunk(part)
        except BrokerError as err:
            if may_pass(err):
                raise
            return NOWHERE  # not readable, like some system topics
        return _first_place([pulled.body for pulled in found if pulled.body])

    return dict(zip(asked, await gather(asked, place)))


async def first_offset_at(cluster: Cluster, state: QueueState, timestamp_ms: int) -> int:
    """Return the offset of the first message in a queue that was stored at a time or later.

    The broker's answer is checked: 4.x may return the previous message, or any of several that were
    stored in the same millisecond.
    """
    found = await offset_of_time(cluster, state.queue, timestamp_ms)
    at = min(max(found, state.min_offset), state.max_offset)
    if state.kind == SPARSE:  # some offsets have no message; 5.x, which has such queues, is exact
        return at

    async def is_before(offset: int) -> bool:
        item = (state.queue, offset)
        place = (await places_of(cluster, {state.queue: state}, [item]))[item]
        return place.store_timestamp < timestamp_ms  # also true if it is gone

    return await _first_not_before(is_before, state.min_offset, at, state.max_offset)


async def _first_not_before(
    is_before: Callable[[int], Awaitable[bool]], low: int, near: int, high: int
) -> int:
    """Return the first number of ``[low, high)`` that is not before, searching from `near`."""
    at, step, seen = near, 1, set[bool]()
    while low < high:
        at = min(max(at, low), high - 1)
        before = await is_before(at)
        low, high = (at + 1, high) if before else (low, at)
        seen.add(before)
        at = (low + high) // 2 if len(seen) > 1 else at + (step if before else -step)
        step *= 2
    return low


def _first_place(bodies: list[bytes]) -> MessagePlace:
    if not bodies:
        return NOWHERE
    frames = frames_of_bodies(bodies[:1])
    if isinstance(frames, BadPull) or len(frames) == 0:
        return NOWHERE
    offset, time = (frames.column(name)[0] for name in ("commit_log_offset", "store_timestamp"))
    return MessagePlace(int(offset), int(time))
