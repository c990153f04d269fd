"""Which ``lock`` files this process has locked.

POSIX locks belong to a process, which loses them when it closes any descriptor of the file: whoever
wants to look at a ``lock`` file asks here first.
"""

from __future__ import annotations

import os
from pathlib import Path

_FileKey = tuple[int, int]
_locked: dict[_FileKey, int] = {}
"""(device, inode) -> the process that locked it: a forked child has the table, not the locks."""


def locked_here(key: _FileKey) -> None:
    """Remember that this process locked a file, named by device and inode."""
    _locked[key] = os.getpid()


def unlocked_here(key: _FileKey) -> None:
    """Forget a file."""
    _locked.pop(key, None)


def is_locked_here(path: str) -> bool:
    """Return whether this process locked a file; False when it is missing."""
    try:
        found = Path(path).stat()
    except OSError:
        return False
    return _locked.get((found.st_dev, found.st_ino)) == os.getpid()
