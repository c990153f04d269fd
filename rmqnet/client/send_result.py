"""What a broker answers to a message sent."""

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
    """How far a message got; it is stored in each case (RocketMQ ``SendStatus``)."""

    SEND_OK = "SEND_OK"
    """As far as the broker is set up to wait."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Not on the disk in time: a crash of the machine may lose it."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Not at the slave in time: the loss of the master may lose it."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """No slave is near enough: the loss of the master may lose it."""


@dataclass(frozen=True)
class SendResult:
    """Where a message was stored.

    Parameters
    ----------
    status
        How far it got.
    message_id
        The id that the client gave (property ``UNIQ_KEY``); of a batch those of all its messages,
        with commas.
    offset_message_id
        The broker's id: its address and the place in its log; of a batch as above. With a delay
        level above the maximum it names the waiting record.
    queue
        The queue that took the message.
    queue_offset
        Its place there; of a half message its place in the queue of half messages.
    transaction_id
        The broker's word for ``message_id``; None from brokers before 5.
    region_id, trace_on
        What the broker says about tracing.
    recall_handle
        What recalls a timer message; None for others and from older brokers.
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


"""What the codes mean that say: it is stored."""


def send_result_of(
    answer: RemotingCommand,
    address: str,
    queue: MessageQueue,
    message_id: str,
) -> SendResult:
    """Return what a broker says of a message that it stored.

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
