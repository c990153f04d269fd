"""How full the disk is that holds a directory.

Source: RocketMQ ``UtilAll.getDiskPartitionSpaceUsedPercent`` (release 5.3.3).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

UNKNOWN = -1.0


class DiskSpace(NamedTuple):
    """Bytes of a disk, as who is not root may use them."""

    used: int
    entire: int


def disk_space(path: str) -> DiskSpace | None:
    """Return how full the disk below a path is; None if there is no path."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    used = found.f_blocks - found.f_bfree
    entire = used + found.f_bavail  # blocks that are kept for root do not count
    return DiskSpace(used * found.f_frsize, entire * found.f_frsize)


def is_gone(path: str) -> bool:
    """Return whether nothing is at a path, as far as this user can see."""
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def disk_ratio(path: str) -> float:
    """Return the used share of the disk, whole percents rounded up; -1 if there is no path."""
    found = disk_space(path)
    if found is None or found.entire <= 0:
        return UNKNOWN
    return -(-found.used * 100 // found.entire) / 100
