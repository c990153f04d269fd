# SPDX-License-Identifier: Apache-2.0
"""Producers whose messages become visible only if a local transaction is committed.

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
    """Outcome of a local transaction; the value is sent to the broker."""

    COMMIT_MESSAGE = TRANSACTION_COMMIT_TYPE
    """Deliver the message."""
    ROLLBACK_MESSAGE = TRANSACTION_ROLLBACK_TYPE
    """Discard the message."""
    UNKNOWN = TRANSACTION_NOT_TYPE
    """Not known yet; the broker asks again (RocketMQ spells it ``UNKNOW``)."""


class TransactionListener(Protocol):
    """Runs local transactions and remembers their outcomes."""

    def execute_local_transaction(self, message: Message, argument: Any) -> LocalTransactionState:
        """Run a message's transaction; called in the thread that sends the message.

        The message's ``unique_key`` is the transaction's id.
        """

    def check_local_transaction(self, message: Message) -> LocalTransactionState:
        """Return the outcome of a message's transaction; called in threads of the client.

        Messages may come from any producer of the group, including ones that have ended, so the
        outcome must be read from storage that all of them share.
        """


@dataclass(frozen=True)
class TransactionSendResult(SendResult):
    """Result of sending a half message and of its local transaction.

    Parameters
    ----------
    local_transaction_state
        The state sent to the broker. If the message was stored less safely than the broker's
        settings require (a status other than ``SEND_OK``), the transaction is not run and the
        message is rolled back.
    local_error
        Exception raised by the listener; the state is then unknown, and the broker will ask.
    """

    local_transaction_state: LocalTransactionState = LocalTransactionState.UNKNOWN
    local_error: Exception | None = None


class TransactionProducer(Producer):
    """Sends messages that become visible once a local transaction is committed.

    Parameters
    ----------
    group
        Name shared by all producers that can report the outcomes of the transactions.
    client
        As in `Producer`.
    listener
        Runs transactions and reports their outcomes.
    **settings
        Fields of `ProducerConfig`.
    """

    def __init__(
        self, group: str, client: Client, listener: TransactionListener, **settings: Any
    ) -> None:
        super().__init__(group, client, **settings)
        self.listener = listener

    def send_in_transaction(
        self, message: Message, argument: Any = None, *, timeout_s: float | None = None
    ) -> TransactionSendResult:
        """Send a half message, run its transaction and send the outcome to the broker.

        If the outcome does not reach the broker, the broker asks a producer of the group later.

        Parameters
        ----------
        message
            The message to deliver after a commit.
        argument
            Passed to the listener.
        timeout_s
            Timeout for sending, as in `send`, whose errors this method also raises.

        Raises
        ------
        ClientError
            The message has a delay or delivery time: brokers would lose it or the transaction.
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
        """Get a transaction's outcome from the listener and send it; called by the client."""
        state = LocalTransactionState.UNKNOWN
        try:
            state = _state(self.listener.check_local_transaction(message))
        except Exception:
            logger.exception(
                "the listener failed to check transaction %s of group %s",
                message.unique_key,
                self.group,
            )
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
            logger.exception(
                "the listener failed to execute transaction %s of group %s",
                message.unique_key,
                self.group,
            )
            return LocalTransactionState.UNKNOWN, err

    def _end(self, header: EndTransactionRequestHeader, address: str | None = None) -> None:
        """Send the outcome to a broker; if that fails, the broker asks later."""
        instance = self._instance
        try:
            if address is None:
                address = instance.broker_address(header.bname or "")
            instance.call(instance.broker.end_transaction(address, header))
        except (BrokerError, ClientError, RemotingError) as err:
            text = "cannot tell the broker how transaction %s ended: %s"
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
    """Return the listener's answer; None, from a function without ``return``, is unknown."""
    if answer is None:
        return LocalTransactionState.UNKNOWN
    if not isinstance(answer, LocalTransactionState):
        raise TypeError(f"the listener must return a LocalTransactionState, not {answer!r}")
    return answer
