"""How far the delivery of each delay level has come, as ``config/delayOffset.json`` has it.

Source: RocketMQ ``ScheduleMessageService.load``, ``correctDelayOffset``, ``persist`` (release
5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.config.config_files import load_delay_offsets
from store_core.config.config_writing import require_delay_offsets, write_delay_offsets
from store_core.errors import StoreFormatError
from store_core.files.file_writing import replace_file
from store_core.files.store_directory import StoreDirectory
from store_core.layout.message import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from store_core.read.readable_store import ReadableStore

_ADVICE = "Without this file all that the schedule topic has would be delivered once more"


class DelayOffsets:
    """The next queue offset to deliver, by delay level; level 1 has queue 0.

    Parameters
    ----------
    root
        Of the store.

    Attributes
    ----------
    table
        Level -> queue offset; levels that were never looked at are missing.
    """

    def __init__(self, root: str) -> None:
        self.table: dict[int, int] = {}
        self._root = root
        self._saved: dict[int, int] = {}

    @property
    def is_changed(self) -> bool:
        """The file does not say this."""
        return self.table != self._saved

    def load(self, store: ReadableStore, levels: int, *, again: bool = False) -> None:
        """Read the file, and bring each level into the range of its queue.

        Without the file, and without its ``.bak``, every level begins with the first message that
        its queue still has.

        Parameters
        ----------
        store
            Has the queues.
        levels
            How many there are.
        again
            The store was closed and opened meanwhile. Where the file says what it said before,
            nobody has delivered between, and what is known here holds.

        Raises
        ------
        StoreFormatError
            The file is not what a broker writes. RocketMQ would deliver everything again.
        StoreReadError
            A file cannot be read.
        """
        try:
            require_delay_offsets(self._root)
            found = load_delay_offsets(StoreDirectory(self._root)) or {}
        except StoreFormatError as err:
            raise StoreFormatError(f"{err.reason}. {_ADVICE}", err.path) from err
        if again and found == self._saved:
            found = self.table
        else:
            self._saved = dict(found)
        self.table = dict(found)
        for level in range(1, levels + 1):
            if level in found:
                queue = store.queue(SCHEDULE_TOPIC, level - 1)
                low, high = (queue.min_offset, queue.max_offset) if queue else (0, 0)
                self.table[level] = min(max(found[level], low), high)

    def save(self, now: int) -> None:
        """Write the file, whole or not at all; the one before becomes ``.bak``.

        What it says as delivered has to be on the disk before.

        Raises
        ------
        StoreFormatError
            The file that is there is not what a broker writes.
        StoreWriteError
            It cannot be written.
        """
        table = dict(self.table)
        write_delay_offsets(self._root, table, now, replace_file)
        self._saved = table
