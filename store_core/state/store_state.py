"""In what state a store's directory was found: stopped, crashed, or in use; never written here."""

from __future__ import annotations

import os
import struct
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from store_core.files.regular_file import open_to_read
from store_core.layout.store_paths import ABORT_BACKUP_FILE, ABORT_FILE, LOCK_FILE

if TYPE_CHECKING:
    from store_core.files.store_directory import StoreDirectory

_FileKey = tuple[int, int]
_locked: dict[_FileKey, int] = {}
"""(device, inode) -> the process that locked it: a forked child has the table, not the locks."""


class StoreState(Enum):
    """Source: RocketMQ ``DefaultMessageStore.load``, ``start``, ``shutdown`` (5.3.3)."""

    STOPPED = "stopped cleanly"
    CRASHED = "not stopped cleanly"
    LIVE = "open in a broker"


def store_state(directory: StoreDirectory) -> StoreState:
    """Return the state: ``abort`` tells a clean stop, a lock held on ``lock`` a live broker."""
    if directory.stat(directory.resolve(ABORT_FILE)) is None:
        return StoreState.STOPPED
    return StoreState.LIVE if _is_locked(directory) else StoreState.CRASHED


def written_by_5x(directory: StoreDirectory) -> bool:
    """Return whether a 5.x broker opened the store last: it writes its PID into ``abort``.

    Writing it leaves ``abort.bak``, also after a clean stop; 4.x leaves ``abort`` empty.
    """
    if directory.stat(directory.resolve(ABORT_BACKUP_FILE)) is not None:
        return True
    abort = directory.stat(directory.resolve(ABORT_FILE))
    return abort is not None and abort.size > 0


def _is_locked(directory: StoreDirectory) -> bool:
    """Ask the system who holds byte 0 of ``lock``, without taking the lock."""
    path = directory.resolve(LOCK_FILE)
    if not directory.is_local:
        return False
    if is_locked_here(path):  # the system does not tell a process of its own locks
        return True
    if sys.platform != "linux" or directory.stat(path) is None:
        return False
    import fcntl  # noqa: PLC0415 (Unix only)

    query = struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 1, 0)
    try:
        with os.fdopen(open_to_read(path), "rb") as lock:
            answer = fcntl.fcntl(lock, fcntl.F_GETLK, query)
    except OSError:
        return False
    return bool(struct.unpack_from("hh", answer)[0] != fcntl.F_UNLCK)


# POSIX locks belong to a process, which loses them when it closes any descriptor of the file:
# whoever wants to look at a ``lock`` file asks here first.
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
