"""Producers whose messages appear only if a local transaction is committed.

Source: RocketMQ ``TransactionMQProducer``, ``DefaultMQProducerImpl.sendMessageInTransaction``,
``checkTransactionState``, ``endTransaction`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from rmqnet.client.producer.producer import Client, Producer
from rmqnet.client.send_result import SendResult, SendStatus
from rmqnet.errors import BrokerError, ClientError, RemotingError
from rmqnet.remoting.headers import EndTransactionRequestHeader
from store_core.codec.message_id import parse_message_id
from store_core.layout import (
    PROPERTY_DELAY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from store_core.topics import PRODUCER_GROUP

if TYPE_CHECKING:
    from rmqnet.remoting.headers import CheckTransactionStateRequestHeader
    from store_core.message import Message

logger = logging.getLogger(__name__)

_DELAYS = (
    PROPERTY_DELAY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
)


class LocalTransactionState(Enum):
    """How a local transaction ended; the value is what the broker is told."""

    COMMIT_MESSAGE = TRANSACTION_COMMIT_TYPE
    """Deliver the message."""
    ROLLBACK_MESSAGE = TRANSACTION_ROLLBACK_TYPE
    """Drop it."""
    UNKNOWN = TRANSACTION_NOT_TYPE
    """Not known yet: the broker asks again (RocketMQ spells it ``UNKNOW``)."""


class TransactionListener(Protocol):
    """Runs local transactions, and remembers how they ended."""

    def execute_local_transaction(self, message: Message, argument: Any) -> LocalTransactionState:
        """Run the transaction that belongs to a message; called in the thread that sends it.

        The message's ``unique_key`` is the transaction's id.
        """

    def check_local_transaction(self, message: Message) -> LocalTransactionState:
        """Say how the transaction of a message ended; called in threads of the client.

        Asked about messages of all producers of the group, also of those that are gone, so the
        answer must come from what all of them share.
        """


@dataclass(frozen=True)
class TransactionSendResult(SendResult):
    """What became of a half message, and of its local transaction.

    Parameters
    ----------
    local_transaction_state
        What the broker was told. Of a message that was stored less safely than the broker wants
        (status other than ``SEND_OK``) no transaction was run: it is rolled back.
    local_error
        What the listener raised; the state is then unknown, and the broker will ask.
    """

    local_transaction_state: LocalTransactionState = LocalTransactionState.UNKNOWN
    local_error: Exception | None = None


class TransactionProducer(Producer):
    """Sends messages that others see once a local transaction was committed.

    Parameters
    ----------
    group
        All producers that can say how the transactions ended have this name.
    client
        As of `Producer`.
    listener
        Runs transactions and answers for them.
    **settings
        Those of `ProducerConfig`, by their names.
    """

    def __init__(
        self, group: str, client: Client, listener: TransactionListener, **settings: Any
    ) -> None:
        super().__init__(group, client, **settings)
        self.listener = listener

    def send_in_transaction(
        self, message: Message, argument: Any = None, *, timeout_s: float | None = None
    ) -> TransactionSendResult:
        """Send a message that nobody sees, run its transaction, and tell the broker the outcome.

        If the broker does not learn the outcome, it asks a producer of the group later.

        Parameters
        ----------
        message
            What is to appear.
        argument
            Handed to the listener.
        timeout_s
            For sending, as of `send`, whose errors this has, too.

        Raises
        ------
        ClientError
            The message names a delay or a time of delivery: brokers would lose one or the other.
        """
        named = [name for name in _DELAYS if name in message.properties]
        if named:
            raise ClientError(
                "transactional messages do not support delayed delivery: property "
                f"{', '.join(named)} of the message to topic {message.topic!r} must not be set"
            )
        half = {PROPERTY_TRANSACTION_PREPARED: "true", PRODUCER_GROUP: self.group}
        sender = self._running_sender()
        outgoing = self._outgoing(message, half)
        result = self._send_and_wait(sender, outgoing, timeout_s, None, None)
        state, error = LocalTransactionState.ROLLBACK_MESSAGE, None
        if result.status is SendStatus.SEND_OK:
            state, error = self._execute(message, argument)
        self._end(_end_of_sent(message.topic, self.group, result, state))
        return TransactionSendResult(
            **vars(result), local_transaction_state=state, local_error=error
        )

    def check_transaction(
        self, message: Message, header: CheckTransactionStateRequestHeader, broker_address: str
    ) -> None:
        """Ask the listener how a transaction ended, and tell the broker; called by the client."""
        state = LocalTransactionState.UNKNOWN
        try:
            state = _state(self.listener.check_local_transaction(message))
        except Exception:
            logger.exception("transaction %s of group %s", message.unique_key, self.group)
        logger.info("transaction %s of group %s: %s", message.unique_key, self.group, state.name)
        end = EndTransactionRequestHeader(
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state.value,
            msg_id=message.unique_key or message.message_id or "",
            topic=header.topic,
            from_transaction_check=True,
            transaction_id=header.transaction_id,
            bname=header.bname,
        )
        self._end(end, broker_address)

    def _execute(
        self, message: Message, argument: Any
    ) -> tuple[LocalTransactionState, Exception | None]:
        try:
            return _state(self.listener.execute_local_transaction(message, argument)), None
        except Exception as err:
            logger.exception("transaction %s of group %s", message.unique_key, self.group)
            return LocalTransactionState.UNKNOWN, err

    def _end(self, header: EndTransactionRequestHeader, address: str | None = None) -> None:
        """Tell a broker the outcome; where that fails it asks later."""
        instance = self._instance
        try:
            if address is None:
                address = instance.broker_address(header.bname or "")
            instance.call(instance.broker.end_transaction(address, header))
        except (BrokerError, ClientError, RemotingError) as err:
            text = "the broker was not told how transaction %s ended: %s"
            instance.outages.report(logger, err, text, header, err)


def _end_of_sent(
    topic: str, group: str, result: SendResult, state: LocalTransactionState
) -> EndTransactionRequestHeader:
    _, commit_log_offset = parse_message_id(result.offset_message_id)
    return EndTransactionRequestHeader(
        producer_group=group,
        tran_state_table_offset=result.queue_offset,
        commit_log_offset=commit_log_offset,
        commit_or_rollback=state.value,
        msg_id=result.message_id,
        topic=topic,
        from_transaction_check=False,
        transaction_id=result.transaction_id,
        bname=result.queue.broker_name,
    )


def _state(answer: object) -> LocalTransactionState:
    """Return what a listener answered; None, as of a function without an answer, is unknown."""
    if answer is None:
        return LocalTransactionState.UNKNOWN
    if not isinstance(answer, LocalTransactionState):
        raise TypeError(f"a LocalTransactionState is expected of the listener, not {answer!r}")
    return answer
