"""Records that need not be read for a SQL filter, as bitmaps of extension units prove.

The bits are those of consumer groups that were registered with the same expression; which of them
are believed is decided where pulls decide it (``SqlMessageFilter``). They speak of the properties
of records; records that hold several messages are in batch queues, which have no such units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import StoreFormatError, StoreReadError
from store_core.layout.consume_queue import CQ_EXT_UNIT
from store_core.queue.consume_queue_ext import is_ext_address
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.filter.message_filter import SqlMessageFilter
    from store_core.filter.sql_filter import SqlFilter
    from store_core.queue.consume_queue_ext import ConsumeQueueExt
    from store_core.store_snapshot import StoreSnapshot

_BLOCK_BYTES = 4 << 20
"""Extension units of so many bytes are looked at together."""


class UnitBitmaps:
    """Leaves out units of messages that do not match, and knows how many.

    Parameters
    ----------
    snapshot
        The store.
    sql_filter
        What messages must satisfy; None: nothing is left out.
    """

    def __init__(self, snapshot: StoreSnapshot, sql_filter: SqlFilter | None) -> None:
        self._snapshot, self._filter = snapshot, sql_filter
        self._by_topic: dict[str, tuple[SqlMessageFilter, ...]] = {}
        self._left_out: int | None = None
        self._doubt = ""

    def kept(self, topic: str, queue_id: int, units: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Return the units of a queue whose messages may match."""
        if self._filter is None or not is_ext_address(units["tags_code"]).any():
            return units
        filters = self._filters(topic)
        if not filters:
            return units
        try:
            ext = self._snapshot.consume_queue_ext(topic, queue_id)
            if ext is None:
                return units
            may_match = _may_match(ext, units["tags_code"], filters)
        except (StoreFormatError, StoreReadError) as err:  # the records themselves tell, too
            self._doubt = str(err)
            return units
        kept = units[may_match]
        self._left_out = (self._left_out or 0) + len(units) - len(kept)
        return kept

    def told(self) -> str:
        """Return in words what bitmaps proved of the units so far, or why nothing.

        Empty: there is no filter, or no unit has an extension unit.
        """
        told = []
        if self._left_out is not None:
            records = f"{self._left_out} record{'s'[: self._left_out != 1]}"
            told.append(f"bitmaps of extension units leave out {records} more")
        if self._doubt:
            told.append(f"bitmaps of extension units are not used: {self._doubt}")
        return "; ".join(told)

    def _filters(self, topic: str) -> tuple[SqlMessageFilter, ...]:
        if topic not in self._by_topic:
            self._by_topic[topic] = self._find_filters(topic)
        return self._by_topic[topic]

    def _find_filters(self, topic: str) -> tuple[SqlMessageFilter, ...]:
        # Few reads have a filter.
        from store_core.filter.message_filter import proving_filters  # noqa: PLC0415

        known = self._snapshot.bitmap_filters(topic)
        if known is None or self._filter is None:
            is_stopped = self._snapshot.state is StoreState.STOPPED
            why = "they are in a database" if is_stopped else "the store was not stopped cleanly"
            self._doubt = f"what groups registered is not known, as {why}"
            return ()
        found = proving_filters(self._filter, known)
        if not found:
            self._doubt = f"no group's bits speak of this expression (topic {topic})"
        return found


def _may_match(
    ext: ConsumeQueueExt, tags_codes: npt.NDArray[np.int64], filters: tuple[SqlMessageFilter, ...]
) -> npt.NDArray[np.bool_]:
    """Return which messages none of the filters excludes."""
    size = filters[0].bitmap_bytes  # of all groups of a store
    at_once = max(_BLOCK_BYTES // (CQ_EXT_UNIT.size + size), 1)
    may_match = np.ones(len(tags_codes), np.bool_)
    for start in range(0, len(tags_codes), at_once):
        block = slice(start, start + at_once)
        units = ext.read(np.ascontiguousarray(tags_codes[block]), bitmap_bytes=size)
        for each in filters:
            may_match[block] &= each.matches_units(units.tags_code, units)
    return may_match
