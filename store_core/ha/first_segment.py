"""Searches for the first segment that a master has: the protocol does not tell."""

from __future__ import annotations

import asyncio

from store_core.errors import HAError
from store_core.ha.master_probe import probe

_PROBES_AT_ONCE = 16


async def first_segment(address: str, size: int, answer_s: float) -> int:
    """Return the offset of the first segment of a master's log.

    A master answers at once where it has something, and with its heartbeat where it has not: so
    some connections at a time ask for segments all over the log.

    Parameters
    ----------
    address
        ``HOST:PORT``.
    size
        Bytes of a segment.
    answer_s
        A master sends something within this time.

    Raises
    ------
    HAError
        Its last segment does not begin at a multiple of that.
    ConnectionLostError
        It does not answer.
    """
    last = (await probe(address, 0, answer_s)).offset
    if last % size:
        raise HAError(
            f"the last segment of {address} begins at {last}, and mappedFileSizeCommitLog is "
            f"{size} here: take the master's value"
        )
    low, high = 0, last // size  # it has the latter; none before the former
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
