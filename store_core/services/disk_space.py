"""How full the disk is that holds a directory.

Source: RocketMQ ``UtilAll.getDiskPartitionSpaceUsedPercent`` (release 5.3.3).
"""

from __future__ import annotations

import os

UNKNOWN = -1.0


def disk_ratio(path: str) -> float:
    """Return the used share of the disk, whole percents rounded up; -1 if there is no path."""
    try:
        found = os.statvfs(path)
    except OSError:
        return UNKNOWN
    used = found.f_blocks - found.f_bfree
    entire = used + found.f_bavail  # blocks that are kept for root do not count
    return -(-used * 100 // entire) / 100 if entire > 0 else UNKNOWN
