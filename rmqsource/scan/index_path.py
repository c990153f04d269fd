"""The index path: records of some keys of some topics through the index files.

What the index does not cover (lag, gaps between its files, files that are lost or damaged) comes
back as ranges to be scanned. Index times are never looked at: they are whole seconds, cut off, and
in a rolled file relative to the file before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqsource.scan.queue_path import RecordPlaces, UnprovedError
from rmqsource.scan.splits import clip_ranges
from store_core.read.key_candidates import NotIndexedError, key_candidates, segment_range

if TYPE_CHECKING:
    import numpy.typing as npt

    from rmqsource.scan.predicate import ScanPredicate
    from rmqsource.scan.splits import Range
    from store_core.store_snapshot import StoreSnapshot

_FETCHED_AHEAD = 256


def indexed_keys(predicate: ScanPredicate) -> frozenset[str] | None:
    """Return keys one of which every matching message has; None when there is no such set.

    Words of KEYS and unique keys lie in the index side by side; the fewest are looked up.
    """
    sets = [predicate.key_equals, predicate.unique_keys, predicate.keys]
    given = [keys for keys in sets if keys is not None]
    return min(given, key=len) if given else None


def read_index(snapshot: StoreSnapshot, predicate: ScanPredicate, bounds: Range) -> RecordPlaces:
    """Return candidates for the predicate's keys and topics, inside ``bounds`` of the log.

    Raises
    ------
    UnprovedError
        The index does not speak of these messages, or nothing of it can be used.
    """
    keys = indexed_keys(predicate)
    if keys is None or predicate.topics is None:
        raise UnprovedError("the index finds a key of a topic, and both must be given")
    offsets: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    ranges: list[Range] = []
    for topic in sorted(predicate.topics):
        try:
            found = key_candidates(snapshot, topic, keys, snapshot.store_timestamp_at)
        except NotIndexedError as err:
            raise UnprovedError(str(err)) from err
        offsets.append(found.offsets)
        ranges += found.ranges
    places = np.unique(np.concatenate(offsets))
    places = places[(places >= bounds[0]) & (places < bounds[1])]
    sizes = record_sizes(snapshot, places)
    valid = sizes > 0
    ranges += [segment_range(snapshot, offset) for offset in places[~valid].tolist()]
    return RecordPlaces(places[valid], sizes[valid], tuple(clip_ranges(ranges, *bounds)))


def record_sizes(snapshot: StoreSnapshot, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bytes of the records at offsets (ascending); 0 where no whole valid one starts."""
    sizes = np.zeros(len(offsets), np.int64)
    size = max(snapshot.log.segments.file_size, 1)
    snapshot.log.fetch_ahead(offsets[:_FETCHED_AHEAD].tolist())
    cuts = np.flatnonzero(np.diff(offsets // size)) + 1
    for rows in np.split(np.arange(len(offsets)), cuts):
        segment = snapshot.log.segments.find(int(offsets[rows[0]])) if len(rows) else None
        if segment is not None:
            frames = snapshot.log.frames_at(segment, offsets[rows], snapshot.end_offset)
            sizes[rows] = np.where(frames.ok, frames.column("total_size"), 0)
    return sizes
