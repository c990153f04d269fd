"""The ``checkpoint`` file of a running store.

Source: RocketMQ ``StoreCheckpoint`` (release 5.3.3).
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from store_core.errors import StoreReadError
from store_core.files.file_writing import (
    flush_directory,
    make_directory,
    sync_data,
    write_all,
    write_error,
)
from store_core.files.regular_file import open_to_read, open_to_write
from store_core.layout.checkpoint import CHECKPOINT, CHECKPOINT_FILE_BYTES
from store_core.state.store_checkpoint import StoreCheckpoint


class CheckpointFile:
    """How far log, queues and index were flushed; set by the services, written by `flush`.

    Only a hint to recovery, which looks at the log itself. The numbers lie in one sector of the
    disk, so that no power failure mixes old ones with new ones.

    Parameters
    ----------
    path
        The file; made with the first `flush`.

    Attributes
    ----------
    physic_msg_timestamp, logics_msg_timestamp, index_msg_timestamp
        Store times (ms), as in `StoreCheckpoint`; 0 while unknown.
    master_flushed_offset, confirm_phy_offset
        Offsets of the log.
    """

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_phy_offset: int

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._written: bytes | None = None
        self._lock = threading.Lock()
        self._set(StoreCheckpoint())

    def load(self) -> None:
        """Read the file; what it does not hold is 0.

        Raises
        ------
        StoreReadError
            It cannot be read.
        """
        try:
            fd = open_to_read(self.path)
            try:
                data = os.pread(fd, CHECKPOINT_FILE_BYTES, 0)
            finally:
                os.close(fd)
        except FileNotFoundError:
            data = b""
        except OSError as err:
            raise StoreReadError(err.strerror or str(err), self.path) from err
        self._set(StoreCheckpoint.from_bytes(data))

    @property
    def min_timestamp(self) -> int:
        """Store time from which a crashed store is dispatched again (``getMinTimestamp``)."""
        return StoreCheckpoint(self.physic_msg_timestamp, self.logics_msg_timestamp).min_timestamp

    def hold_back(self, now_ms: int) -> bool:
        """Let no time lie after the clock; return whether one did.

        When the clock was set back, new records are older than those times. A broker that recovers
        would begin at the last segment whose first record is older, and dispatch none before it.
        """
        is_ahead = self.logics_msg_timestamp > now_ms
        if is_ahead:
            self.logics_msg_timestamp = now_ms
        return is_ahead

    def flush(self) -> None:
        """Write the numbers and force them to the disk; nothing is done where none changed.

        Raises
        ------
        StoreWriteError
            The file cannot be made or written.
        """
        with self._lock:
            numbers = (
                self.physic_msg_timestamp,
                self.logics_msg_timestamp,
                self.index_msg_timestamp,
                self.master_flushed_offset,
                self.confirm_phy_offset,
            )
            data = CHECKPOINT.struct.pack(*numbers).ljust(CHECKPOINT_FILE_BYTES, b"\0")
            if data == self._written:
                return
            try:
                self._write(data)
            except OSError as err:
                self._close()
                raise write_error(err, self.path) from err
            self._written = data

    def close(self) -> None:
        """Close the file. Flushes nothing."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):  # what counts was forced to the disk before
                os.close(self._fd)
        self._fd, self._written = -1, None

    def _write(self, data: bytes) -> None:
        directory, is_open = str(Path(self.path).absolute().parent), self._fd >= 0
        if not is_open:
            make_directory(directory)
            self._fd = open_to_write(self.path, os.O_CREAT)
        write_all(self._fd, 0, memoryview(data))
        sync_data(self._fd)
        if not is_open:
            flush_directory(directory)

    def _set(self, read: StoreCheckpoint) -> None:
        (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        ) = (number or 0 for number in astuple(read))
