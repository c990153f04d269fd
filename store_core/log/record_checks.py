"""Full validation of many records at once, as recovery wants it.

Source: RocketMQ ``CommitLog.checkMessageAndReturnSize`` (release 5.3.3), which checks neither the
own offset, nor, by default, the CRC over the whole record where there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.record_crcs import body_crc_failures, property_crc_failures

if TYPE_CHECKING:
    from store_core.codec.record_frames import RecordFrames


def first_invalid(frames: RecordFrames, *, check_crc: bool = True) -> int:
    """Return the first row that is no record; the number of rows when all are.

    Parameters
    ----------
    frames
        Records that lie one after the other.
    """
    good = len(frames) if frames.ok.all() else int(np.argmin(frames.ok))
    if good == 0 or not check_crc:
        return good
    checked = frames if good == len(frames) else frames.take(np.arange(good))
    return min([good, *crc_failures(checked)])


def crc_failures(frames: RecordFrames) -> dict[int, str]:
    """Return the rows of which a CRC is wrong, and which: of the body, or of the whole record."""
    bad = property_crc_failures(frames)
    found = {failure.row: "the CRC of the whole record is wrong" for failure in bad}
    for failure in body_crc_failures(frames):
        found[failure.row] = "the CRC of its body is wrong"
    return found
