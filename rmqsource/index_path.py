"""The index path: records of some keys of some topics through the index files.

What the index does not cover (lag, gaps between its files, files that are lost or damaged) comes
back as ranges to be scanned. Index times are never looked at: they are whole seconds, cut off, and
in a rolled file relative to the file before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqsource.plan import clip_ranges
from rmqsource.queue_path import QueueUnits, UnprovedError, is_simple_topic
from store_core.errors import StoreConfigError
from store_core.store_state import StoreState

if TYPE_CHECKING:
    import numpy.typing as npt

    from rmqsource.plan import Range
    from rmqsource.predicate import ScanPredicate
    from store_core.index_service import IndexCoverage
    from store_core.store_snapshot import StoreSnapshot

_RECORD_BYTES_GUESS = 1024


def indexed_keys(predicate: ScanPredicate) -> frozenset[str] | None:
    """Return keys one of which every matching message has; None when there is no such set.

    Words of KEYS and unique keys lie in the index side by side; the fewest are looked up.
    """
    sets = [predicate.key_equals, predicate.unique_keys, predicate.keys]
    given = [keys for keys in sets if keys is not None]
    return min(given, key=len) if given else None


def read_index(snapshot: StoreSnapshot, predicate: ScanPredicate, bounds: Range) -> QueueUnits:
    """Return candidates for the predicate's keys and topics, inside ``bounds`` of the log.

    Raises
    ------
    UnprovedError
        The index does not speak of these messages, or nothing of it can be used.
    """
    keys = indexed_keys(predicate)
    if keys is None or predicate.topics is None:
        raise UnprovedError("the index finds a key of a topic, and both must be given")
    for topic in sorted(predicate.topics):
        if not is_simple_topic(snapshot, topic):
            raise UnprovedError(f"topic {topic} is not known to have indexed messages of its own")
    if not snapshot.index.files:
        raise UnprovedError("there is no usable index file")
    offsets, gaps = [np.empty(0, np.int64)], []
    for topic in sorted(predicate.topics):
        try:
            found = snapshot.index.lookup(
                topic,
                sorted(keys),
                max(snapshot.min_phy_offset, 0),
                snapshot.end_offset,
                snapshot.store_timestamp_at,
            )
        except StoreConfigError as err:
            raise UnprovedError(str(err)) from err
        offsets.append(found.commit_log_offsets)
        gaps += [(gap.start, gap.stop) for gap in found.coverage.gaps]
        gaps += _distrusted(snapshot, found.coverage)
    places = np.unique(np.concatenate(offsets))
    places = places[(places >= bounds[0]) & (places < bounds[1])]
    valid = _are_records(snapshot, places)
    for offset in places[~valid].tolist():
        # Left over from a cut log, or damaged: the scan of its segment tells.
        start = offset // snapshot.log.segments.file_size * snapshot.log.segments.file_size
        gaps.append((start, start + snapshot.log.segments.file_size))
    places = places[valid]
    sizes = np.full(len(places), _RECORD_BYTES_GUESS, np.int64)
    return QueueUnits(places, sizes, tuple(clip_ranges(gaps, *bounds)))


def _distrusted(snapshot: StoreSnapshot, coverage: IndexCoverage) -> list[Range]:
    """Return what files of a crashed store speak for that RocketMQ would delete at its start."""
    if snapshot.state is not StoreState.CRASHED:
        return []
    flushed_ms = (snapshot.checkpoint.index_msg_timestamp or 0) if snapshot.checkpoint else 0
    return [
        (file.header.begin_phy_offset, file.header.end_phy_offset + 1)
        for file in coverage.files
        if file.header.end_timestamp > flushed_ms
    ]


def _are_records(
    snapshot: StoreSnapshot, offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    return np.array(
        [snapshot.log.is_record(offset, snapshot.end_offset) for offset in offsets.tolist()],
        np.bool_,
    )
