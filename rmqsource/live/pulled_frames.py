"""The records of many pulls as frames: joined, walked and checked at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.record_frames import RecordFrames
from store_core.codec.record_walk import walk_records
from store_core.layout.message import COMMIT_LOG_OFFSET_AT, MIN_RECORD_BYTES
from store_core.layout.record_layout import RecordLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

_OFFSET = RecordLayout("commit_log_offset", [("value", "i8")])
_ALL = 1 << 62


class BadPull(NamedTuple):
    """Why bytes that a broker sent are no records, and where.

    Attributes
    ----------
    position
        In all bodies, joined.
    reason
        What was found.
    """

    position: int
    reason: str


def frames_of_bodies(bodies: Sequence[bytes]) -> RecordFrames | BadPull:
    """Return the frames of all records that lie one after the other in some answers.

    Records come from anywhere in the log, so that their own offsets prove nothing here; all else
    that `RecordFrames` checks is checked.
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
