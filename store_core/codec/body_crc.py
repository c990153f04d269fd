"""CRCs of the bodies of many records.

Apart from the other columns, as it needs no Arrow kernels: planning checks records too, in
processes that start anew for each job, and loading the kernels takes longer than a plan.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.gather import binary_parts, gather_binary

if TYPE_CHECKING:
    from store_core.codec.record_frames import RecordFrames


class BadBody(NamedTuple):
    """A record whose frame is good and whose body is not."""

    row: int
    reason: str


def body_crc_failures(frames: RecordFrames) -> list[BadBody]:
    """Return the rows whose stored body does not have the CRC that its header names.

    An empty body is never checked, as in RocketMQ. One tight loop of ``zlib.crc32``.
    """
    stored = gather_binary(frames.data, frames.body_start, frames.body_length)
    offsets, values = binary_parts(stored)
    view, bounds = memoryview(values), offsets.tolist()
    crc32 = zlib.crc32
    found = [crc32(view[a:b]) for a, b in zip(bounds, bounds[1:])]
    actual = np.array(found, np.uint32) & np.uint32(0x7FFFFFFF)
    expected = frames.column("body_crc").view(np.uint32)
    wrong = np.flatnonzero((actual != expected) & (frames.body_length > 0))
    return [
        BadBody(row, f"the body's CRC is {actual[row]}, the record says {expected[row]}")
        for row in wrong.tolist()
    ]
