"""What keeps a store from being read or written at the moment.

Source: RocketMQ ``RunningFlags`` (release 5.3.3).
"""

from __future__ import annotations

import threading
from enum import IntFlag


class RunningFlag(IntFlag):
    """One reason each; the values are RocketMQ's bits."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64


# Plain numbers: they are looked at with every put, and an IntFlag is slow.
_NO_PUT = int(
    RunningFlag.NOT_WRITEABLE
    | RunningFlag.WRITE_LOGICS_QUEUE_ERROR
    | RunningFlag.WRITE_INDEX_FILE_ERROR
    | RunningFlag.DISK_FULL
    | RunningFlag.FENCED
    | RunningFlag.LOGIC_DISK_FULL
)
# A full disk does not stop dispatch: what is in the log gets its units.
_NOT_READABLE = int(RunningFlag.NOT_READABLE)
_NO_DISPATCH = int(
    RunningFlag.NOT_WRITEABLE
    | RunningFlag.WRITE_LOGICS_QUEUE_ERROR
    | RunningFlag.WRITE_INDEX_FILE_ERROR
    | RunningFlag.LOGIC_DISK_FULL
)


class RunningFlags:
    """The flags of a running store, kept in memory only; safe for any thread."""

    def __init__(self) -> None:
        self._flags = 0
        self.write_error: Exception | None = None
        """Why queues or the index could not be written, the last time that they could not."""
        self.gone = ""
        """Which directory is not there any more, so that nothing is put; empty: all of them are."""
        self._lock = threading.Lock()

    @property
    def flags(self) -> RunningFlag:
        """The flags that are set."""
        return RunningFlag(self._flags)

    @property
    def is_readable(self) -> bool:
        """Messages may be read."""
        return not self._flags & _NOT_READABLE

    @property
    def is_writeable(self) -> bool:
        """Messages may be put."""
        return not self._flags & _NO_PUT and not self.gone

    @property
    def is_cq_writeable(self) -> bool:
        """Queues may grow."""
        return not self._flags & _NO_DISPATCH

    def set(self, flag: RunningFlag) -> bool:
        """Set a flag; return whether it was clear."""
        with self._lock:
            before, self._flags = self._flags, self._flags | int(flag)
        return not before & int(flag)

    def set_write_error(self, flag: RunningFlag, error: Exception) -> None:
        """Set a flag for what could not be written; whoever sees the flag finds the error."""
        self.write_error = error
        self.set(flag)

    def clear(self, flag: RunningFlag) -> bool:
        """Clear a flag; return whether it was set."""
        with self._lock:
            before, self._flags = self._flags, self._flags & ~int(flag)
        return bool(before & int(flag))
