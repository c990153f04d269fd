"""Where messages of some keys may lie: what the index names, and what it does not speak for.

One answer for every way to ask for keys. Index times are never looked at: they are whole seconds,
cut off, and in a rolled file relative to the file before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

from store_core.errors import StoreConfigError, StoreError
from store_core.store_state import StoreState

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    import numpy.typing as npt

    from store_core.index_service import IndexCoverage
    from store_core.store_view import StoreView

    StoreTimestampAt = Callable[[int], "int | None"]

_BATCH_TYPE = "BatchCQ"


class NotIndexedError(StoreError):
    """The index does not speak of these messages; the text says why. The log has to be scanned."""


class KeyCandidates(NamedTuple):
    """Offsets that the index names (ascending, distinct), and ranges of the log to be scanned.

    An offset at which no record starts was left over from a cut log, or the record is damaged:
    `segment_range` of it has to be scanned too.
    """

    offsets: npt.NDArray[np.int64]
    ranges: tuple[tuple[int, int], ...]


def has_batch_queues(view: StoreView, topic: str) -> bool:
    """Tell whether a topic has batch consume queues, by its configuration or its directories."""
    config = (view.topic_configs or {}).get(topic)
    if config is not None and config.attributes.get("queue.type") == _BATCH_TYPE:
        return True
    return any(name == topic for name, _ in view.batch_queue_paths)


def _is_simple_topic(view: StoreView, topic: str) -> bool:
    """Tell whether it is known that the topic's messages are records of their own.

    Index entries of batch topics speak of whole batches, not of the messages in them.
    """
    if has_batch_queues(view, topic):
        return False
    known = topic in (view.topic_configs or {})
    return known or any(name == topic for name, _ in view.queue_paths)


def key_candidates(
    view: StoreView, topic: str, keys: Collection[str], store_timestamp_at: StoreTimestampAt
) -> KeyCandidates:
    """Return where messages of a topic with one of the keys may lie.

    Raises
    ------
    NotIndexedError
        Nothing can be said without scanning the log.
    """
    if not _is_simple_topic(view, topic):
        raise NotIndexedError(f"topic {topic} is not known to have indexed messages of its own")
    if not view.index.files:
        raise NotIndexedError("there is no usable index file")
    start = max(view.min_phy_offset, 0)
    try:
        found = view.index.lookup(topic, sorted(keys), start, view.end_offset, store_timestamp_at)
    except StoreConfigError as err:
        raise NotIndexedError(str(err)) from err
    ranges = [(gap.start, gap.stop) for gap in found.coverage.gaps]
    return KeyCandidates(found.commit_log_offsets, (*ranges, *_unflushed(view, found.coverage)))


def segment_range(view: StoreView, commit_log_offset: int) -> tuple[int, int]:
    """Return the range of the log that the segment of an offset covers."""
    size = view.log.segments.file_size
    start = commit_log_offset // size * size
    return start, start + size


def _unflushed(view: StoreView, coverage: IndexCoverage) -> list[tuple[int, int]]:
    """Return what files of a crashed store speak for that RocketMQ would delete at its start."""
    if view.state is not StoreState.CRASHED:
        return []
    flushed_ms = (view.checkpoint.index_msg_timestamp or 0) if view.checkpoint else 0
    headers = [file.header for file in coverage.files]
    return [
        (header.begin_phy_offset, header.end_phy_offset + 1)
        for header in headers
        if header.end_timestamp > flushed_ms
    ]
