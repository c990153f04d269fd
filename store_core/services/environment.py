"""What services see of the machine: the clock, the hour, how full a disk is.

Source: RocketMQ ``UtilAll.getDiskPartitionSpaceUsedPercent`` (release 5.3.3).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, NamedTuple

UNKNOWN_SPACE = -1.0


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
        return UNKNOWN_SPACE
    return -(-found.used * 100 // found.entire) / 100


def local_hour(now_ms: int) -> int:
    """Return the hour of the day in the time zone of the process."""
    return time.localtime(now_ms / 1000).tm_hour


@dataclass(frozen=True)
class Environment:
    """What the services see of the machine; tests have others.

    Attributes
    ----------
    clock
        Returns ms since the epoch.
    disk_ratio
        Returns the used share (0 to 1) of the disk below a directory; -1 if unknown.
    """

    clock: Callable[[], int]
    disk_ratio: Callable[[str], float] = disk_ratio
    hour: Callable[[int], int] = local_hour
