# SPDX-License-Identifier: Apache-2.0
"""The first report of a slave: the offset from which its master sends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple, Union

from store_core.errors import HAError, StoreConfigError
from store_core.ha.end_comparison import overlap_start, segment_size
from store_core.ha.master_probe import probe

if TYPE_CHECKING:
    from store_core.ha.follow_state import FollowSettings
    from store_core.message_store import MessageStore

EARLIEST: Literal["earliest"] = "earliest"
FirstOffset = Union[int, Literal["earliest"], None]
_PROBES_AT_ONCE = 16


class FirstReport(NamedTuple):
    """The first report to a master.

    Attributes
    ----------
    offset
        The master sends from here; 0 = from the start of its last segment; 1 = from the start of
        the log, whose byte 0 is reconstructed.
    next_offset
        Offset of the first byte that the master must send; if None, the start of any segment.
    """

    offset: int
    next_offset: int | None


def require_segment(store: MessageStore, first_offset: FirstOffset) -> None:
    """Raise `StoreConfigError` unless an offset is the beginning of a segment."""
    size = segment_size(store)
    if isinstance(first_offset, int) and (first_offset < 0 or first_offset % size):
        raise StoreConfigError(
            f"first_offset={first_offset}: segments begin at multiples of {size} "
            "(mappedFileSizeCommitLog)"
        )


def report_of_copy(store: MessageStore, overlap_bytes: int, unproven: int | None) -> FirstReport:
    """Return the report of a log with data: it requests its end again, and all unproven bytes."""
    start = overlap_start(store, overlap_bytes)
    if unproven is not None:
        start = min(start, max(unproven, store.min_phy_offset, 1))
    return FirstReport(start, start)


async def report_of_empty(
    store: MessageStore, settings: FollowSettings, first: FirstOffset, *, was_refused: bool
) -> FirstReport:
    """Return the report of an empty log.

    Parameters
    ----------
    was_refused
        Whether the master closed the last connection immediately: an empty master refuses 1, and
        begins at 0 if it is asked for 0.

    Raises
    ------
    ConnectionLostError
        The master does not answer the search for its first segment.
    HAError
        The master's segments have another size.
    """
    if store.min_phy_offset >= 0:
        first = store.min_phy_offset
    if first is None:
        return FirstReport(0, None)
    if first == EARLIEST:
        first = await first_segment(settings.address, segment_size(store), settings.answer_s)
    if first == 0 and was_refused:
        return FirstReport(0, 0)
    return FirstReport(max(first, 1), max(first, 1))


async def first_segment(address: str, size: int, answer_s: float) -> int:
    """Return the offset of the first segment of a master's log.

    A master answers immediately if it has data at an offset, otherwise only with its heartbeat: so
    several connections at a time ask for segments all over the log.

    Raises
    ------
    HAError
        The master's last segment does not begin at a multiple of ``size``.
    ConnectionLostError
        The master does not answer.
    """
    last = (await probe(address, 0, answer_s)).offset
    if last % size:
        raise HAError(
            f"the last segment of {address} begins at {last}, but mappedFileSizeCommitLog is "
            f"{size} here: use the master's value"
        )
    low, high = 0, last // size  # it has segment high, and none before low
    while low < high:
        step = -(-(high - low) // _PROBES_AT_ONCE)
        asked = range(low, high, step)
        has = await asyncio.gather(*(_has(address, at * size, answer_s) for at in asked))
        first = has.index(True) if any(has) else len(asked)
        if first < len(asked):
            high = asked[first]
        if first > 0:
            low = asked[first - 1] + 1
    return low * size


async def _has(address: str, offset: int, answer_s: float) -> bool:
    found = await probe(address, max(offset, 1), answer_s)  # 0: the last segment
    return found.size > 0
