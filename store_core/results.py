"""Statuses and results of reading, with RocketMQ's names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store_core.message import Message


class GetMessageStatus(Enum):
    """What ``get_message`` found. Source: RocketMQ ``GetMessageStatus`` (release 5.3.3)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


@dataclass(frozen=True)
class GetMessageResult:
    """Answer of ``get_message``.

    Parameters
    ----------
    status
        What was found.
    next_begin_offset
        Queue offset to ask for next.
    min_offset, max_offset
        Queue offsets of the queue; max is exclusive.
    messages
        In queue order.
    buffer_total_size
        Bytes of the found records.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[Message, ...] = ()
    buffer_total_size: int = 0


@dataclass(frozen=True)
class QueryMessageResult:
    """Answer of ``query_message``.

    Parameters
    ----------
    messages
        Oldest first.
    index_last_update_timestamp
        Store time of the newest indexed record, ms.
    index_last_update_phy_offset
        Commit log offset of that record.
    """

    messages: tuple[Message, ...] = ()
    index_last_update_timestamp: int = 0
    index_last_update_phy_offset: int = 0
