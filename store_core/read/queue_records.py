# SPDX-License-Identifier: Apache-2.0
"""The records of a queue, or of a range of the log, in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.codec.message_batch_codec import MessageColumns
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import skip_gap

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.log.live_log import PinnedLog
    from store_core.read.readable_store import ReadableStore

    DeliveredUnits = npt.NDArray[Any]
    """With fields ``commit_log_offset`` and ``message_size``."""

_UNITS = 16_384  # columns of this many records stay in the second-level cache
_MOST_BYTES = 4 << 20


def queue_columns(
    store: ReadableStore, topic: str, queue_id: int, start: int, stop: int
) -> Iterator[MessageColumns]:
    """Yield the readable records with queue offsets in ``[start, stop)``, in queue order.

    Bodies are as stored. The columns are valid only while the store stays pinned.
    """
    queue = store.queue(topic, queue_id)
    if queue is None:
        return
    at, stop = max(start, queue.min_offset), min(stop, queue.max_offset)
    while at < stop:
        run = queue.units_from(at, min(_UNITS, stop - at))
        if run is None or not run.queue_offset:
            at = max(queue.roll_next_file(at), at + 1)
            continue
        places = run.commit_log_offset.astype(np.int64)
        for frames in _frames(store, places[places >= 0]):
            yield MessageColumns(frames, raw_body=True)
        at = run.queue_offset[-1] + run.batch_size[-1]


def log_columns(store: ReadableStore, start: int) -> Iterator[MessageColumns]:
    """Yield the readable records of the log from a physical offset on; damage is skipped."""
    start, end = max(start, store.min_phy_offset), store.end_offset
    for frames in scan_frames(store.log, start, end, end, on_gap=skip_gap):
        yield MessageColumns(frames, raw_body=True)


def _frames(store: ReadableStore, places: npt.NDArray[np.int64]) -> Iterator[RecordFrames]:
    """Yield the frames of records, segment by segment; places without a record are skipped."""
    log = store.log
    size = max(log.segments.file_size, 1)
    # Places [90, 110, 150, 230] in segments of 100 bytes: [0, 1, 1, 2] changes before 1 and 3.
    cuts = (np.flatnonzero(np.diff(places // size)) + 1).tolist()
    for first, stop in zip([0, *cuts], [*cuts, len(places)]):
        segment = log.segments.find(int(places[first])) if first < stop else None
        if segment is not None:
            frames = log.frames_at(segment, places[first:stop], store.end_offset)
            yield frames if frames.ok.all() else frames.take(np.flatnonzero(frames.ok))


def units_together(units: DeliveredUnits, log: PinnedLog) -> int:
    """Return how many units from the first on ascend within one segment and 4 MiB.

    At least one, if there are any units.
    """
    places = units["commit_log_offset"]
    same = places // log.segments.file_size == places[:1] // log.segments.file_size
    same[1:] &= places[1:] > places[:-1]
    sizes = np.cumsum(units["message_size"].astype(np.int64))
    fitting = max(int(np.searchsorted(sizes, _MOST_BYTES, "right")), 1)
    return min(int(np.argmin(np.append(same, False))), fitting)


def frames_of_units(units: DeliveredUnits, log: PinnedLog) -> RecordFrames | None:
    """Return the records of units in one segment; None if the segment has expired.

    Rows are not ``ok`` where no record of the unit's size begins.
    """
    places = units["commit_log_offset"].astype(np.int64)
    segment = log.segments.find(int(places[0])) if len(places) and places[0] >= 0 else None
    if segment is None:
        return None
    frames = log.frames_at(segment, places, log.end_offset)
    frames.ok &= frames.column("total_size") == units["message_size"]
    return frames
