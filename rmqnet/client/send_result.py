# SPDX-License-Identifier: Apache-2.0
"""Results of sends and pulls, as brokers report them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.request_calls import header_of
from rmqnet.remoting.codes import ResponseCode
from rmqnet.remoting.headers import SendMessageResponseHeader

if TYPE_CHECKING:
    from rmqnet.remoting.remoting_command import RemotingCommand


class SendStatus(Enum):
    """How safely a message was stored (RocketMQ ``SendStatus``)."""

    SEND_OK = "SEND_OK"
    """Stored as safely as the broker is configured to wait for."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Not flushed to disk in time: a crash of the machine may lose it."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Not replicated to a slave in time: the loss of the master may lose it."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """No slave is close enough to the master: the loss of the master may lose it."""


@dataclass(frozen=True)
class SendResult:
    """The place where a message was stored.

    Parameters
    ----------
    status
        How safely it was stored.
    message_id
        Id assigned by the client (property ``UNIQ_KEY``); for a batch, the ids of all its
        messages, separated by commas.
    offset_message_id
        Id assigned by the broker: its address and the offset in its log; for a batch, as above.
        With a delay level above the maximum, it names the waiting record.
    queue
        Queue in which the message was stored.
    queue_offset
        Offset in that queue; for a half message, the offset in the queue of half messages.
    transaction_id
        The broker's name for ``message_id``; None from brokers before 5.
    region_id, trace_on
        The broker's settings for tracing.
    recall_handle
        Handle for recalling a timer message; None for others and from older brokers.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    recall_handle: str | None = None


SEND_STATUS: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


"""Response codes that mean the message was stored."""


def send_result_of(
    answer: RemotingCommand,
    address: str,
    queue: MessageQueue,
    message_id: str,
) -> SendResult:
    """Return a broker's result for a message that it stored.

    Raises
    ------
    RemotingFormatError
        A field is missing; the text names it and the broker.
    """
    fields = header_of(SendMessageResponseHeader, answer, address)
    if fields.queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, fields.queue_id)
    return SendResult(
        SEND_STATUS[answer.code],
        message_id,
        fields.msg_id,
        queue,
        fields.queue_offset,
        fields.transaction_id,
        fields.msg_region or SendResult.region_id,
        fields.trace_on is not False,
        fields.recall_handle,
    )


class PullStatus(Enum):
    """Outcome of a pull (RocketMQ ``PullStatus``)."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    """No message is available yet, even after the time that the broker waited."""
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    """The broker skipped messages, none of which match: pull from the next offset immediately."""
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    """The offset is outside the queue or was reset: continue at the next offset."""


@dataclass(frozen=True)
class PullResult:
    """Answer to one pull from one queue.

    Parameters
    ----------
    status
        Outcome of the pull.
    next_begin_offset
        Offset to continue at.
    min_offset, max_offset
        First offset of the queue and its end (exclusive).
    suggest_which_broker_id
        Broker to ask next: 0 for the master, otherwise a slave's id.
    body
        Consecutive records; empty unless FOUND. See `received_messages`.
    remark
        The broker's remark, such as ``OFFSET_RESET``.
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
