# SPDX-License-Identifier: Apache-2.0
"""State of the machine that services read: the clock, the hour, disk usage.

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
    """Bytes of a disk as available to users other than root."""

    used: int
    entire: int


def disk_space(path: str) -> DiskSpace | None:
    """Return the usage of the disk that contains a path; None if the path does not exist."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    used = found.f_blocks - found.f_bfree
    entire = used + found.f_bavail  # blocks reserved for root do not count
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
    """Return the used share of the disk, rounded up to whole percents; -1 if unknown."""
    found = disk_space(path)
    if found is None or found.entire <= 0:
        return UNKNOWN_SPACE
    return -(-found.used * 100 // found.entire) / 100


def local_hour(now_ms: int) -> int:
    """Return the hour of the day in the time zone of the process."""
    return time.localtime(now_ms / 1000).tm_hour


@dataclass(frozen=True)
class Environment:
    """The machine as services see it; tests pass their own.

    Attributes
    ----------
    clock
        Returns ms since the epoch.
    disk_ratio
        Returns the used share (0 to 1) of a directory's disk; -1 if unknown.
    """

    clock: Callable[[], int]
    disk_ratio: Callable[[str], float] = disk_ratio
    hour: Callable[[int], int] = local_hour
