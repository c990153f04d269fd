"""What a broker answers to a pull."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PullStatus(Enum):
    """What came of a pull (RocketMQ ``PullStatus``)."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    """Nothing is there yet, also after the time that the broker waited."""
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    """Messages were passed over, none matches: go on at the next offset at once."""
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    """The offset is before the first or after the last, or was reset: go on at the next offset."""


@dataclass(frozen=True)
class PullResult:
    """Answer to one pull from one queue.

    Parameters
    ----------
    status
        What came of it.
    next_begin_offset
        Where to go on.
    min_offset, max_offset
        First offset of the queue, and the end (exclusive).
    suggest_which_broker_id
        Who is to be asked next: 0 the master, else a slave.
    body
        Records, one after the other; empty unless FOUND. See `received_messages`.
    remark
        The broker's own words, such as ``OFFSET_RESET``.
    """

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int = 0
    body: bytes = b""
    remark: str = ""

    def __repr__(self) -> str:
        return (
            f"PullResult({self.status.value}, next_begin_offset={self.next_begin_offset}, "
            f"min_offset={self.min_offset}, max_offset={self.max_offset}, "
            f"suggest_which_broker_id={self.suggest_which_broker_id}, "
            f"body={len(self.body)} bytes)"
        )
