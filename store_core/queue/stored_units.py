"""What reading needs of the units of a simple queue, wherever a store keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from store_core.queue.consume_queue import Units


class StoredUnits(Protocol):
    """The units of one topic and queue id: in files (`ConsumeQueue`), or in a database.

    Attributes
    ----------
    topic, queue_id
        What it belongs to.
    units_per_file
        Units of a whole file; 0 where there are no files.
    """

    topic: str
    queue_id: int
    units_per_file: int

    def held_open(self) -> AbstractContextManager[StoredUnits]:
        """Give the same queue for several calls in one thread, which need not open files anew."""

    def read_units(self, start_queue_offset: int, stop_queue_offset: int) -> Units:
        """Return the units ``[start, stop)``, clipped to what is held; zeros where one is not."""

    def place_of(self, queue_offset: int) -> tuple[int, int]:
        """Return offset and size of one unit, which is held."""

    def exact_units(self, start_queue_offset: int, stop_queue_offset: int) -> Units:
        """Return the units ``[start, stop)``, all of them, of which the caller knew."""

    def end_of_units(self) -> int:
        """Return the queue offset after the last unit."""

    def stored_end(self) -> int:
        """Return the queue offset after the last for which there is room, written or not."""

    def first_unit_offset(self) -> int:
        """Return the queue offset of the first unit."""

    def correct_min_offset(self, min_phy_offset: int, max_queue_offset: int) -> int:
        """Return the first queue offset whose record lies at or after ``min_phy_offset``."""

    def file_stop(self, queue_offset: int) -> int | None:
        """Return the queue offset after the units of the file that holds one; None without it."""

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the first queue offset of the next file."""

    def file_boundaries(self) -> tuple[int, ...]:
        """Return the first queue offset of each file."""
