"""Why a master sends nothing where it must have something, by what it says of its last segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.errors import HAError
from store_core.ha.end_comparison import DivergedError, segment_size

if TYPE_CHECKING:
    from store_core.ha.end_comparison import EndComparison
    from store_core.ha.master_probe import ProbeResult
    from store_core.message_store import MessageStore


def require_common_end(
    store: MessageStore,
    address: str,
    comparison: EndComparison,
    last: ProbeResult,
    *,
    has_answered: bool,
) -> None:
    """Raise unless the master has more than was compared with this copy.

    Parameters
    ----------
    store
        The copy.
    address
        Of the master.
    comparison
        Nothing came any more at its position.
    last
        The beginning of the master's last segment, and what it has there at least.
    has_answered
        It sent heartbeats when it was asked for that position: so it does not have it. Else the
        connection may have ended before it could answer.

    Raises
    ------
    DivergedError
        The master's log ends before this copy does, or begins later.
    HAError
        The master's segments have another size.
    """
    at, end, common = comparison.at, comparison.end, (comparison.start, comparison.at)
    _require_size(store, address, last)
    if last.offset > at and has_answered:
        raise _gone(address, at, end, last, common)
    if last.end > at:
        return
    known = f"it ends at {at}" if at > comparison.start else f"it has nothing at {at}"
    raise DivergedError(
        f"this copy is ahead of {address}, or of another master: it ends at {end}, and the "
        f"master has less, {known}. Begin with an empty directory, copy the master's files, "
        "or cut this copy where the master ends (cut, --cut; what is cut off is kept)",
        common,
        may_cut=True,
    )


def require_first(
    store: MessageStore, address: str, first: int, last: ProbeResult, *, has_answered: bool
) -> None:
    """Raise unless the master may yet send what an empty copy begins with.

    Parameters
    ----------
    store, address, last, has_answered
        As in `require_common_end`.
    first
        The offset that was asked for; 1 stands for 0.

    Raises
    ------
    DivergedError
        The master's log begins later.
    HAError
        It ends before that segment, or its segments have another size.
    """
    _require_size(store, address, last)
    segment = first - first % segment_size(store)
    if last.offset > segment and has_answered:
        raise _gone(address, segment, segment, last, (segment, segment))
    if last.offset < segment:
        raise HAError(
            f"{address} has nothing at offset {segment}: its last segment begins at {last.offset}"
        )


def _gone(
    address: str, at: int, end: int, last: ProbeResult, common: tuple[int, int]
) -> DivergedError:
    return DivergedError(
        f"{address} no longer has offset {at}, its log begins later (its last segment begins at "
        f"{last.offset}), and this copy ends at {end}. Begin with an empty directory, or copy the "
        "master's files",
        common,
        may_cut=False,
    )


def _require_size(store: MessageStore, address: str, last: ProbeResult) -> None:
    size = segment_size(store)
    if last.offset % size:
        raise HAError(
            f"the last segment of {address} begins at {last.offset}, and mappedFileSizeCommitLog "
            f"is {size} here: take the master's value, and an empty directory"
        )
