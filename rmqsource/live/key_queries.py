"""Messages by key from the brokers' indexes, all of them: a broker gives at most 64 at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqnet.remoting.headers import QueryMessageRequestHeader
from rmqsource.live.cluster_survey import asked, gather
from rmqsource.live.errors import ClusterError, KeyLookupError
from rmqsource.live.live_queues import LiveQueue
from rmqsource.live.pulled_frames import BadPull, frames_of_bodies

if TYPE_CHECKING:
    from rmqsource.live.cluster import Cluster
    from store_core.codec.record_frames import RecordFrames

_MOST = 64
"""What a broker gives at most (``maxMsgsNumBatch``), whatever is asked for."""
_FIRST = 3
"""Of the largest size that brokers take (4 MB) so many fit an answer."""
_ANSWER_BYTES = 12 << 20
"""A frame has 16 MB at most; messages may be longer than those that were seen."""
SECOND_MS = 1000
"""The index notes times in whole seconds after the first one of a file."""


class KeyPlace(NamedTuple):
    """Where keys are asked for: a topic on a broker."""

    topic: str
    broker_name: str
    store: str


class KeyQuestion(NamedTuple):
    """Keys, and the store times ``[begin_ms, end_ms]`` of messages that may have one."""

    keys: tuple[str, ...]
    begin_ms: int
    end_ms: int


async def frames_of_keys(
    cluster: Cluster, place: KeyPlace, question: KeyQuestion
) -> RecordFrames | None:
    """Return the records that a broker's index leads to, each once; None: there is none.

    Keys are hashed with the topic, so that others come along.

    Raises
    ------
    KeyLookupError
        The index holds more of one key within a second than the broker gives at once.
    """

    async def find(key: object) -> list[bytes]:
        return await _find(cluster, place, str(key), question)

    bodies = [body for found in await gather(question.keys, find) for body in found if body]
    if not bodies:
        return None
    frames = frames_of_bodies(bodies)
    if isinstance(frames, BadPull):
        raise ClusterError(place.store, f"its answer to a query by key: {frames.reason}")
    _, first = np.unique(frames.column("commit_log_offset"), return_index=True)
    return frames.take(np.sort(first))


async def _find(cluster: Cluster, place: KeyPlace, key: str, question: KeyQuestion) -> list[bytes]:
    """Return what is found in a span of time: in both halves of it, where it is too much.

    Few messages are asked for at first: they show how many fit an answer.
    """
    found: list[bytes] = []
    spans, most = [(question.begin_ms, question.end_ms)], _FIRST
    while spans:
        begin, end = spans.pop()
        body = await _query(cluster, place, key, (begin, end), most)
        sizes = _record_sizes(body)
        fit = int(np.clip(_ANSWER_BYTES // sizes.max(initial=1), _FIRST, _MOST))
        if len(sizes) < most:
            found.append(body)
            most = min(most, fit)
            continue
        asked_for, most = most, fit
        if asked_for < most:
            spans.append((begin, end))
        elif end - begin < SECOND_MS:
            raise KeyLookupError(
                place.store,
                f"its index has {asked_for} or more messages of topic {place.topic!r} for key "
                f"{key!r} within a second ({begin} ms since the epoch), and an answer has no room "
                f"for more of up to {sizes.max():,} bytes, nor ever for more than {_MOST}",
            )
        else:
            middle = (begin + end) // 2
            spans += [(begin, middle), (middle + 1, end)]
    return found


async def _query(
    cluster: Cluster, place: KeyPlace, key: str, span: tuple[int, int], most: int
) -> bytes:
    header = QueryMessageRequestHeader(
        topic=place.topic,
        key=key,
        max_num=most,
        begin_timestamp=span[0],
        end_timestamp=span[1],
        unique_key_query=False,
        bname=place.broker_name,
    )

    async def ask(address: str) -> bytes:
        return (await cluster.brokers.query_message(address, header)).body

    return await asked(cluster, LiveQueue(place.topic, place.broker_name, 0), ask)


def _record_sizes(body: bytes) -> Any:
    """Return the length of each record of an answer; none where they are no records."""
    frames = frames_of_bodies([body]) if body else None
    if frames is None or isinstance(frames, BadPull):
        return np.empty(0, np.int64)
    return frames.column("total_size")
