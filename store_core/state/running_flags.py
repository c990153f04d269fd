# SPDX-License-Identifier: Apache-2.0
"""Flags that block reads, puts or dispatch in a running store.

Source: RocketMQ ``RunningFlags`` (release 5.3.3).
"""

from __future__ import annotations

import threading
from enum import IntFlag


class RunningFlag(IntFlag):
    """A reason to block; the values are RocketMQ's bits."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64


# Plain numbers: every put checks them, and an IntFlag is slow.
_NO_PUT = int(
    RunningFlag.NOT_WRITEABLE
    | RunningFlag.WRITE_LOGICS_QUEUE_ERROR
    | RunningFlag.WRITE_INDEX_FILE_ERROR
    | RunningFlag.DISK_FULL
    | RunningFlag.FENCED
    | RunningFlag.LOGIC_DISK_FULL
)
# A full disk does not stop dispatch: records already in the log still get their units.
_NOT_READABLE = int(RunningFlag.NOT_READABLE)
_NO_DISPATCH = int(
    RunningFlag.NOT_WRITEABLE
    | RunningFlag.WRITE_LOGICS_QUEUE_ERROR
    | RunningFlag.WRITE_INDEX_FILE_ERROR
    | RunningFlag.LOGIC_DISK_FULL
)


class RunningFlags:
    """The flags of a running store, in memory only; safe for any thread."""

    def __init__(self) -> None:
        self._flags = 0
        self.write_error: Exception | None = None
        """The last error in writing queues or the index; None if there was none."""
        self.gone = ""
        """Names a directory that has disappeared and so blocks puts; empty if all are there."""
        self._lock = threading.Lock()

    @property
    def flags(self) -> RunningFlag:
        """All flags that are set."""
        return RunningFlag(self._flags)

    @property
    def is_readable(self) -> bool:
        """Whether messages may be read."""
        return not self._flags & _NOT_READABLE

    @property
    def is_writeable(self) -> bool:
        """Whether messages may be put."""
        return not self._flags & _NO_PUT and not self.gone

    @property
    def is_cq_writeable(self) -> bool:
        """Whether queues may grow."""
        return not self._flags & _NO_DISPATCH

    def set(self, flag: RunningFlag) -> bool:
        """Set a flag; return whether it was clear."""
        with self._lock:
            before, self._flags = self._flags, self._flags | int(flag)
        return not before & int(flag)

    def set_write_error(self, flag: RunningFlag, error: Exception) -> None:
        """Record a write error, then set its flag: a reader of the flag always sees the error."""
        self.write_error = error
        self.set(flag)

    def clear(self, flag: RunningFlag) -> bool:
        """Clear a flag; return whether it was set."""
        with self._lock:
            before, self._flags = self._flags, self._flags & ~int(flag)
        return bool(before & int(flag))
