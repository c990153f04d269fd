"""The records of many units at once, where these lie together in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.log.live_log import PinnedLog

    Units = npt.NDArray[Any]
    """With fields ``commit_log_offset`` and ``message_size``."""

_MOST_BYTES = 4 << 20


def units_together(units: Units, log: PinnedLog) -> int:
    """Return how many units, from the first on, are of one segment, ascending, and 4 MiB at most.

    One at least, where there are any.
    """
    places = units["commit_log_offset"]
    same = places // log.segments.file_size == places[:1] // log.segments.file_size
    same[1:] &= places[1:] > places[:-1]
    sizes = np.cumsum(units["message_size"].astype(np.int64))
    fitting = max(int(np.searchsorted(sizes, _MOST_BYTES, "right")), 1)
    return min(int(np.argmin(np.append(same, False))), fitting)


def frames_of_units(units: Units, log: PinnedLog) -> RecordFrames | None:
    """Return the records of units that lie together; None where their segment has expired.

    Rows are not ``ok`` where no record of the unit's size begins.
    """
    places = units["commit_log_offset"].astype(np.int64)
    segment = log.segments.find(int(places[0])) if len(places) and places[0] >= 0 else None
    if segment is None:
        return None
    frames = log.frames_at(segment, places, log.end_offset)
    frames.ok &= frames.column("total_size") == units["message_size"]
    return frames
