# SPDX-License-Identifier: Apache-2.0
"""Statuses and results of reading and putting, with RocketMQ's names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from store_core.codec.message_id import message_id

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from store_core.message import Message


class GetMessageStatus(Enum):
    """Outcome of ``get_message``. Source: RocketMQ ``GetMessageStatus`` (release 5.3.3)."""

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
        The outcome.
    next_begin_offset
        Queue offset for the next request.
    min_offset, max_offset
        Bounds of the queue's offsets; max is exclusive.
    messages
        In queue order.
    buffer_total_size
        Bytes of the messages' records.
    suggest_pulling_from_slave
        More of the log follows the inspected records than is assumed to be in memory: a slave can
        read them from its disk as well as this store.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[Message, ...] = ()
    buffer_total_size: int = 0
    suggest_pulling_from_slave: bool = False


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


class PutMessageStatus(Enum):
    """Outcome of a put. Source: RocketMQ ``PutMessageStatus`` (release 5.3.3)."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class AppendMessageStatus(Enum):
    """Outcome of an append to the log. Source: RocketMQ ``AppendMessageStatus`` (release 5.3.3)."""

    PUT_OK = "PUT_OK"
    END_OF_FILE = "END_OF_FILE"
    MESSAGE_SIZE_EXCEEDED = "MESSAGE_SIZE_EXCEEDED"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    ROCKSDB_ERROR = "ROCKSDB_ERROR"


class AppendMessageResult(NamedTuple):
    """Where a message, or a batch, was appended. A tuple, as every put makes one.

    Parameters
    ----------
    status
        PUT_OK, or why nothing was appended.
    commit_log_offset
        Offset of the first record.
    store_size
        Bytes of all records.
    queue_offset
        Queue offset of the first message; 0 for prepared and rollback messages.
    store_timestamp
        Ms since the epoch.
    message_num
        Number of queue offsets used.
    places
        Store host and commit log offset of each record.
    """

    status: AppendMessageStatus
    commit_log_offset: int = -1
    store_size: int = 0
    queue_offset: int = 0
    store_timestamp: int = 0
    message_num: int = 0
    places: tuple[tuple[bytes, int], ...] = ()

    @property
    def message_id(self) -> str:
        """The offset message id; those of a batch are separated by commas."""
        return ",".join(message_id(host, offset) for host, offset in self.places)


class PutMessageResult(NamedTuple):
    """Answer of ``put_message`` and ``put_messages``.

    Parameters
    ----------
    status
        PUT_OK; a flush or slave status: appended, but not yet as safe as configured; else refused.
    append_result
        None if the message was refused before.
    reason
        Why it was refused and what to do; empty if it was not.
    """

    status: PutMessageStatus
    append_result: AppendMessageResult | None = None
    reason: str = ""

    @property
    def is_appended(self) -> bool:
        """Whether the message is in the log, flushed or not."""
        result = self.append_result
        return result is not None and result.status is AppendMessageStatus.PUT_OK


@dataclass(frozen=True, eq=False)
class AppendBatchResult:
    """Answer of ``append_batch``.

    Parameters
    ----------
    status
        PUT_OK, or why it stopped.
    rows
        Number of appended rows: all, none if a row was refused, or those before the segment that
        could not be written.
    commit_log_offsets, queue_offsets
        One number per appended row.
    row
        The first refused row; -1 if none was.
    reason
        Why it was refused or stopped and what to do; empty if it was not.
    """

    status: PutMessageStatus
    rows: int
    commit_log_offsets: npt.NDArray[np.int64]
    queue_offsets: npt.NDArray[np.int64]
    row: int = -1
    reason: str = ""
