"""The ``checkpoint`` file: how far log, queues and index were flushed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store_core.layout.checkpoint import CHECKPOINT
from store_core.layout.store_paths import CHECKPOINT_FILE

if TYPE_CHECKING:
    from store_core.files.store_directory import StoreDirectory

_MARGIN_MS = 3_000


@dataclass(frozen=True)
class StoreCheckpoint:
    """Content of the file; times in ms. A field that a short file does not hold is None.

    4.x writes the first three fields only, releases from 5.0.0 to 5.4.0 all but the last: their
    files have zeros in the others.
    """

    physic_msg_timestamp: int | None = None
    """Store time up to which the commit log is flushed."""
    logics_msg_timestamp: int | None = None
    """Store time of the last record that was dispatched."""
    index_msg_timestamp: int | None = None
    """End of the last full index file; 0 before there is one."""
    master_flushed_offset: int | None = None
    confirm_phy_offset: int | None = None
    logics_physical_offset: int | None = None
    """Start of the last record whose queue units are on the disk: accelerated recovery of 5.5.0 and
    later begins there."""

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
    """Read the checkpoint of a store; None when it has none.

    Raises
    ------
    StoreReadError
        The file cannot be read.
    """
    data = directory.read_head(directory.resolve(CHECKPOINT_FILE), CHECKPOINT.size)
    return None if data is None else StoreCheckpoint.from_bytes(data)
