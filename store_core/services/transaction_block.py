# SPDX-License-Identifier: Apache-2.0
"""A transaction as a ``with`` block: commit at its end, roll back on an exception.

Source: RocketMQ ``DefaultMQProducerImpl.sendMessageInTransaction`` (release 5.3.3) for the
properties that a producer sets; ``EndTransactionProcessor`` for the order of commit and op message.
"""

from __future__ import annotations

import logging
from copy import copy
from typing import TYPE_CHECKING, Protocol

from store_core.codec.message_codec import string_to_properties
from store_core.errors import StoreError, TransactionError
from store_core.layout import PROPERTY_UNIQ_KEY
from store_core.put.put_checks import message_refusal, topic_facts
from store_core.results import PutMessageResult
from store_core.topics import PRODUCER_GROUP
from store_core.transaction_forms import (
    TRANSACTION_PREPARED,
    TransactionState,
    commit_message,
    delayed_properties,
    half_message,
    is_delayed,
    op_bodies,
    op_message,
    transaction_key,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Callable

    from store_core.message import Message
    from store_core.put.put_message import MessagePutter

logger = logging.getLogger(__name__)


class TransactionEnds(Protocol):
    """Writes the records of blocks' transactions."""

    def open_block(self, message: Message) -> Message:
        """Put the half message; return it as stored, with its offsets."""

    def end_block(self, half: Message, state: TransactionState) -> PutMessageResult | None:
        """End the transaction; return the result of the commit, None after a rollback."""


class PlainTransactions:
    """Ends the transactions of a store without a transaction service: one op message for each.

    Parameters
    ----------
    putter
        Returns the store's putter, which changes if the store is reopened.
    clock
        Returns ms since the epoch.
    """

    def __init__(self, putter: Callable[[], MessagePutter], clock: Callable[[], int]) -> None:
        self._putter, self._clock = putter, clock

    def open_block(self, message: Message) -> Message:
        """Put the half message; see `TransactionEnds`."""
        return opened_half(*put_half(self._putter(), message, self._clock()))

    def end_block(self, half: Message, state: TransactionState) -> PutMessageResult | None:
        """Put commit and op message; see `TransactionEnds`."""
        result = None
        if state is TransactionState.COMMIT_MESSAGE:
            result = put_commit(self._putter(), half)
            if not result.is_appended:
                raise not_ended(half, result)
        putter = self._putter()
        release = putter.config.transaction_op_format
        (body,), _ = op_bodies([half.queue_offset], 1, release)
        done = putter.put_message(op_message(body, 0, self._clock(), release), is_raw=True)
        if not done.is_appended:
            # A service finds the commit and writes the op message; after a rollback it asks the
            # producer.
            logger.warning(
                "cannot put the op message for the half message at %d: %s",
                half.queue_offset,
                done.reason,
            )
        return result


class TransactionBlock:
    """One transaction; a context manager that can be entered only once."""

    def __init__(
        self,
        plain: TransactionEnds,
        service: Callable[[], TransactionEnds | None],
        message: Message,
        open_keys: set[str],
    ) -> None:
        self._ends, self._service = plain, service
        self._message, self._open_keys = message, open_keys
        self._is_entered = False
        self.half: Message | None = None
        self.commit_result: PutMessageResult | None = None

    @property
    def transaction_id(self) -> str | None:
        """The message's UNIQ_KEY."""
        return self._message.unique_key

    def __enter__(self) -> TransactionBlock:
        if self._is_entered:
            raise TransactionError(
                "a block can be entered only once: create another block for another message"
            )
        self._is_entered = True
        self._ends = self._service() or self._ends
        self.half = self._ends.open_block(self._message)
        self._open_keys.add(transaction_key(self.half) or "")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.half is None:
            return
        ends = self._service() or self._ends
        try:
            if kind is None:
                self.commit_result = ends.end_block(self.half, TransactionState.COMMIT_MESSAGE)
            else:
                ends.end_block(self.half, TransactionState.ROLLBACK_MESSAGE)
        except StoreError as err:
            if kind is None:
                raise
            # The block's own error matters more; the transaction stays open.
            logger.warning(
                "transaction %s is not rolled back and stays open: %s", self.transaction_id, err
            )
        finally:
            self._open_keys.discard(transaction_key(self.half) or "")


def producer_message(message: Message, producer_group: str, unique_key: str) -> Message:
    """Return a message as a producer sends it to open a transaction."""
    sent = copy(message)
    sent.properties, sent.properties_raw = dict(message.properties), None
    sent.properties.setdefault(PROPERTY_UNIQ_KEY, unique_key)
    sent.properties[TRANSACTION_PREPARED] = "true"
    sent.properties.setdefault(PRODUCER_GROUP, producer_group)
    return sent


def put_half(
    putter: MessagePutter, message: Message, now_ms: int
) -> tuple[Message | None, PutMessageResult]:
    """Put the half message of a message; return it as stored, with its offsets; None on refusal."""
    refusal = topic_facts(message.topic, putter.config).refusal
    refusal = refusal or message_refusal(message.body, message.queue_id)
    if refusal is not None:  # as its commit would be, when the caller's work is done
        return None, PutMessageResult(refusal.status, None, refusal.reason)
    half = half_message(message, putter.config.transaction_op_format)
    half.born_timestamp = half.born_timestamp or now_ms
    result = putter.put_message(half, is_raw=True)
    if result.append_result is None or not result.is_appended:
        return None, result
    half.queue_offset = result.append_result.queue_offset
    half.commit_log_offset = result.append_result.commit_log_offset
    half.properties = string_to_properties(half.properties_raw or b"")
    return half, result


def opened_half(half: Message | None, result: PutMessageResult) -> Message:
    """Return the half message of a block.

    Raises
    ------
    TransactionError
        The half message was refused.
    """
    if half is None:
        raise TransactionError(
            f"the transaction was not opened: {result.status.name}, {result.reason}"
        )
    return half


def put_commit(putter: MessagePutter, half: Message) -> PutMessageResult:
    """Put the message that consumers get; a delayed one goes to the topic for delayed messages.

    Raises
    ------
    TransactionError
        The half message lacks its topic or queue id.
    """
    try:
        commit = commit_message(half)
    except ValueError as err:
        raise TransactionError(str(err)) from err
    properties = delayed_properties(half)
    if not is_delayed(properties):
        return putter.put_message(commit, is_raw=True)
    commit.properties, commit.properties_raw = properties, None
    return putter.put_message(commit)


def not_ended(half: Message, result: PutMessageResult) -> TransactionError:
    """Return the error for a refused commit."""
    return TransactionError(
        f"not committed; the half message at queue offset {half.queue_offset} stays open: "
        f"{result.status.name}, {result.reason}"
    )
