# SPDX-License-Identifier: Apache-2.0
"""The ``checkpoint`` file of a running store.

Source: RocketMQ ``StoreCheckpoint`` (release 5.5.1).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from store_core.files.file_writing import RewrittenFile
from store_core.layout import CHECKPOINT, CHECKPOINT_FILE, CHECKPOINT_FILE_BYTES

if TYPE_CHECKING:
    from store_core.files.store_directory import StoreDirectory

_MARGIN_MS = 3_000


class CheckpointFile:
    """How far log, queues and index are flushed; the services set the numbers, `flush` writes them.

    Only a hint to recovery, which checks the log itself.

    Attributes
    ----------
    physic_msg_timestamp, logics_msg_timestamp, index_msg_timestamp
        Store times (ms), as in `StoreCheckpoint`; 0 while unknown.
    for_5_5
        Whether brokers from 5.5.0 on read the file; only then `set_dispatched` notes an offset.
    """

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_phy_offset: int
    logics_physical_offset: int

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = RewrittenFile(path)
        self.for_5_5 = False
        self._rest = bytes(CHECKPOINT_FILE_BYTES - CHECKPOINT.size)
        self._set(StoreCheckpoint())

    def load(self) -> None:
        """Read the file; numbers missing from it become 0.

        Raises
        ------
        StoreReadError
            The file cannot be read.
        """
        data = self._file.read(CHECKPOINT_FILE_BYTES)
        self._set(StoreCheckpoint.from_bytes(data))
        self.for_5_5 |= self.logics_physical_offset != 0
        # Fields of later releases stay as they are: zeros there may stop a broker.
        self._rest = data.ljust(CHECKPOINT_FILE_BYTES, b"\0")[CHECKPOINT.size :]

    def set_dispatched(self, commit_log_offset: int, store_timestamp: int) -> None:
        """Note the last record whose queue units are on the disk.

        Parameters
        ----------
        commit_log_offset, store_timestamp
            Start of the record (-1 if there is none) and its store time in ms (0 if unknown).
        """
        if store_timestamp > 0:
            self.logics_msg_timestamp = store_timestamp
        if self.for_5_5 and commit_log_offset > 0:
            self.logics_physical_offset = commit_log_offset

    @property
    def min_timestamp(self) -> int:
        """Store time from which a crashed store is dispatched again (``getMinTimestamp``)."""
        return StoreCheckpoint(self.physic_msg_timestamp, self.logics_msg_timestamp).min_timestamp

    def hold_back(self, now_ms: int) -> bool:
        """Lower the queues' time to ``now_ms`` if it is later; return whether it was.

        After the clock is set back, new records have earlier times than the checkpoint. A
        recovering broker would start at the last segment whose first record is older than the
        checkpoint, and dispatch nothing before it.
        """
        is_ahead = self.logics_msg_timestamp > now_ms
        if is_ahead:
            self.logics_msg_timestamp = now_ms
        return is_ahead

    def flush(self) -> None:
        """Write the numbers and force them to the disk; does nothing if none changed.

        A negative time, as of a record whose time is damaged, is written as 0, unknown.

        Raises
        ------
        StoreWriteError
            The file cannot be created or written.
        """
        numbers = (
            max(self.physic_msg_timestamp, 0),
            max(self.logics_msg_timestamp, 0),
            max(self.index_msg_timestamp, 0),
            self.master_flushed_offset,
            self.confirm_phy_offset,
            self.logics_physical_offset,
        )
        self._file.write(CHECKPOINT.struct.pack(*numbers) + self._rest)

    def close(self) -> None:
        """Close the file without flushing."""
        self._file.close()

    def _set(self, read: StoreCheckpoint) -> None:
        (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
            self.logics_physical_offset,
        ) = (number or 0 for number in astuple(read))


@dataclass(frozen=True)
class StoreCheckpoint:
    """Content of the file; times in ms. Fields that a short file lacks are None.

    4.x writes only the first three fields, releases 5.0.0 to 5.4.0 every field except the last;
    their files have zeros in the others.
    """

    physic_msg_timestamp: int | None = None
    """Store time up to which the commit log is flushed."""
    logics_msg_timestamp: int | None = None
    """Store time of the last dispatched record."""
    index_msg_timestamp: int | None = None
    """End of the last full index file; 0 before there is one."""
    master_flushed_offset: int | None = None
    confirm_phy_offset: int | None = None
    logics_physical_offset: int | None = None
    """Start of the last record whose queue units are on the disk: accelerated recovery (5.5.0 and
    later) begins there."""

    @classmethod
    def from_bytes(cls, data: bytes) -> StoreCheckpoint:
        """Decode the file's content, however short it is."""
        held = len(data[: CHECKPOINT.size]) // 8  # numbers of eight bytes
        row = CHECKPOINT.unpack(data[: CHECKPOINT.size].ljust(CHECKPOINT.size, b"\0"))
        return cls(*(value if i < held else None for i, value in enumerate(row)))

    @property
    def min_timestamp(self) -> int:
        """Store time from which a crashed store is dispatched again (``getMinTimestamp``)."""
        known = min(self.physic_msg_timestamp or 0, self.logics_msg_timestamp or 0)
        return max(0, known - _MARGIN_MS)


def load_checkpoint(directory: StoreDirectory) -> StoreCheckpoint | None:
    """Read a store's checkpoint; None if it has none.

    Raises
    ------
    StoreReadError
        The file cannot be read.
    """
    data = directory.read_head(directory.resolve(CHECKPOINT_FILE), CHECKPOINT.size)
    return None if data is None else StoreCheckpoint.from_bytes(data)
