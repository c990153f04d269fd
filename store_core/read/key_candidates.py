"""Where messages of some keys may lie: what the index names, and what it does not speak for.

One answer for every way to ask for keys. Index times are never looked at: they are whole seconds,
cut off, and in a rolled file relative to the file before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from store_core.errors import StoreConfigError, StoreError
from store_core.index.index_file import key_hashes
from store_core.log.log_scan import BatchSizer, refuse_gap, scan_frames
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.index.index_queries import IndexCoverage
    from store_core.read.readable_store import ReadableStore

    StoreTimestampAt = Callable[[int], "int | None"]

_SCAN_ROWS = 16384
_SCAN_BYTES = 32 << 20


class NotIndexedError(StoreError):
    """The index does not speak of these messages; the text says why. The log has to be scanned."""


class KeyCandidates(NamedTuple):
    """Offsets that the index names (ascending, distinct), and ranges of the log to be scanned.

    An offset at which no record starts was left over from a cut log, or the record is damaged:
    `segment_range` of it has to be scanned too.
    """

    offsets: npt.NDArray[np.int64]
    ranges: tuple[tuple[int, int], ...]


def has_batch_queues(store: ReadableStore, topic: str) -> bool:
    """Return whether a topic has batch consume queues, by its configuration or its directories."""
    config = (store.topic_configs or {}).get(topic)
    if config is not None and config.has_batch_queues:
        return True
    return any(name == topic for name, _ in store.batch_queue_paths)


def _is_simple_topic(store: ReadableStore, topic: str) -> bool:
    """Return whether it is known that the topic's messages are records of their own.

    Index entries of batch topics speak of whole batches, not of the messages in them.
    """
    if has_batch_queues(store, topic):
        return False
    known = topic in (store.topic_configs or {})
    return known or any(name == topic for name, _ in store.queue_paths)


def key_candidates(
    store: ReadableStore, topic: str, keys: Collection[str], store_timestamp_at: StoreTimestampAt
) -> KeyCandidates:
    """Return where messages of a topic with one of the keys may lie.

    Raises
    ------
    NotIndexedError
        Nothing can be said without scanning the log.
    """
    found = hash_candidates(store, topic, key_hashes(topic, sorted(keys)), store_timestamp_at)
    return KeyCandidates(np.unique(found.commit_log_offset), found.ranges)


class HashCandidates(NamedTuple):
    """Pairs of a hash (its index) and an offset, with repeats; ranges as in `KeyCandidates`."""

    key: npt.NDArray[np.int64]
    commit_log_offset: npt.NDArray[np.int64]
    ranges: tuple[tuple[int, int], ...]


def hash_candidates(
    store: ReadableStore,
    topic: str,
    hashes: npt.NDArray[np.int32],
    store_timestamp_at: StoreTimestampAt,
) -> HashCandidates:
    """Return what `key_candidates` does for keys of some hashes, and for which of them.

    Raises
    ------
    NotIndexedError
        Nothing can be said without scanning the log.
    """
    if not _is_simple_topic(store, topic):
        raise NotIndexedError(f"topic {topic} is not known to have indexed messages of its own")
    if not store.index.files:
        raise NotIndexedError("there is no usable index file")
    start = max(store.min_phy_offset, 0)
    ends = {file.header.end_phy_offset for file in store.index.files}
    store.log.fetch_ahead(end for end in ends if start <= end < store.end_offset)
    try:
        found = store.index.lookup_hashes(hashes, start, store.end_offset, store_timestamp_at)
    except StoreConfigError as err:
        raise NotIndexedError(str(err)) from err
    ranges = [(gap.start, gap.stop) for gap in found.coverage.gaps]
    ranges += _unflushed(store, found.coverage)
    return HashCandidates(found.key, found.commit_log_offset, tuple(ranges))


def segment_range(store: ReadableStore, commit_log_offset: int) -> tuple[int, int]:
    """Return the range of the log that the segment of an offset covers."""
    size = store.log.segments.file_size
    start = commit_log_offset // size * size
    return start, start + size


def frames_in(store: ReadableStore, start: int, stop: int) -> Iterator[RecordFrames]:
    """Yield the records that start in a range that has to be scanned.

    Raises
    ------
    CorruptRecordError
        Something in there is damaged or missing.
    """
    stop, sizer = min(stop, store.end_offset), BatchSizer(_SCAN_ROWS, _SCAN_BYTES)
    return scan_frames(store.log, start, stop, store.end_offset, on_gap=refuse_gap, sizer=sizer)


def is_of_topic(frames: RecordFrames, topic: str) -> npt.NDArray[np.bool_]:
    """Return which records are of a topic."""
    wanted = np.frombuffer(topic.encode("utf-8", "surrogatepass"), np.uint8)
    same: npt.NDArray[np.bool_] = frames.topic_length == len(wanted)
    if len(wanted) and same.any():
        rows = np.flatnonzero(same)
        texts = sliding_window_view(frames.data, len(wanted))[frames.topic_start[rows]]
        same[rows] = (texts == wanted).all(axis=1)
    return same


def _unflushed(store: ReadableStore, coverage: IndexCoverage) -> list[tuple[int, int]]:
    """Return what files of a crashed store speak for that RocketMQ would delete at its start.

    And those after the one that was flushed last, whatever times say: no checksum covers them.
    """
    if store.state is not StoreState.CRASHED:
        return []
    flushed_ms = (store.checkpoint.index_msg_timestamp or 0) if store.checkpoint else 0
    headers = [file.header for file in coverage.files]
    is_last = [header.end_timestamp == flushed_ms for header in headers]
    count = is_last.index(True) + 1 if any(is_last) else len(headers)
    start = max(store.min_phy_offset, 0)  # what such a file speaks for may have expired in part
    return [
        (max(header.begin_phy_offset, start), header.end_phy_offset + 1)
        for number, header in enumerate(headers)
        if number >= count or header.end_timestamp > flushed_ms
    ]
