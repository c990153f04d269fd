# SPDX-License-Identifier: Apache-2.0
"""One check of the open half messages.

Source: RocketMQ ``TransactionalMessageServiceImpl.check`` (release 5.3.3). RocketMQ reads op
messages 32 at a time, as needed; here all are read first, so that no half message that has an op
message is checked.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.codec.message_codec import string_to_properties
from store_core.errors import TransactionError
from store_core.transaction.end_results import CheckResult
from store_core.transaction.open_halves import HalfPlace, read_ops, read_places
from store_core.transaction_forms import (
    checked_half,
    discarded_half,
    half_facts,
    immune_half,
    transaction_key,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.message import Message
    from store_core.message_store import MessageStore
    from store_core.transaction.half_table import HalfTable
    from store_core.transaction.open_halves import Ops
    from store_core.transaction_forms import HalfFacts

    Int64s = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)
_MAX_PROCESS_TIME_MS = 60_000
_HOUR_MS = 3_600_000


class TransactionChecker:
    """Goes through the half messages once, in order."""

    def __init__(
        self,
        store: MessageStore,
        table: HalfTable,
        ask: Callable[[Message], object],
        on_discard: Callable[[str], object],
    ) -> None:
        self._store, self._table = store, table
        self._ask, self._on_discard = ask, on_discard

    def run(self) -> CheckResult:
        """Check the half messages that are due, force the log to the disk, then move the offsets.

        Raises
        ------
        TransactionError
            A copy was refused: the check stops there, and the next one begins there.
        StoreWriteError
            The log cannot be forced to the disk; the offsets stay.
        """
        clock, table = self._store.clock, self._table
        start, result = clock(), CheckResult()
        ops = read_ops(self._store, table.op_offset)
        with table.lock:
            table.end(ops.named[ops.named >= table.half_offset].tolist())
        offsets, places = read_places(self._store, table.half_offset)
        done_to = table.half_offset
        failure: TransactionError | None = None
        rows = np.flatnonzero(table.not_done(offsets)).tolist()
        for row in rows:
            done_to = place_offset = int(offsets[row])
            if clock() - start > _MAX_PROCESS_TIME_MS:
                break
            try:
                if not self._step(HalfPlace(place_offset, int(places[row])), start, result):
                    break
            except TransactionError as err:
                failure = err
                break
        else:
            done_to = int(offsets[-1]) + 1 if len(offsets) else done_to
        self._move(ops, done_to, result)
        if failure is not None:
            raise failure
        return result

    def _step(self, place: HalfPlace, start: int, result: CheckResult) -> bool:
        """Check one half message; False if it is too early for this one and all that follow."""
        asked = None
        with self._table.lock:
            if self._table.is_done(place.queue_offset):
                return True
            half = self._store.look_stored_message(place.commit_log_offset)
            if half is None:
                logger.warning("no half message can be read at %d", place.commit_log_offset)
                return True
            key = transaction_key(half)
            decision = decide(half, start, self._store.clock(), self._store.config)
            if decision is Decision.STOP:
                return False
            if key in self._store.open_blocks:
                decision = Decision.IMMUNE
            if decision is Decision.DISCARD:
                self._put(discarded_half(half))
                self._table.give_up(place.queue_offset)
                self._on_discard(half_facts(half.properties).topic or "")
                result.discarded += 1
                return True
            checks = checks_so_far(half, half_facts(half.properties), self._store.config)
            if decision is Decision.IMMUNE:
                copied = self._put(immune_half(half, None))
                result.immune += 1
            else:
                copied = asked = self._put(checked_half(half, (checks or 0) + 1))
                result.asked += 1
            after = HalfPlace(copied.queue_offset, copied.commit_log_offset)
            self._table.supersede(place, after)
        if asked is not None:
            self._ask(_as_sent(asked))
        return True

    def _put(self, message: Message) -> Message:
        result = self._store.raw_put_message(message)
        if result.append_result is None or not result.is_appended:
            raise TransactionError(
                f"the check stops: a copy of a half message was refused: {result.status.name}, "
                f"{result.reason}"
            )
        message.queue_offset = result.append_result.queue_offset
        message.commit_log_offset = result.append_result.commit_log_offset
        return message

    def _move(self, ops: Ops, done_to: int, result: CheckResult) -> None:
        """Move the offsets, after the copies of half messages before them are on the disk."""
        table = self._table
        if done_to > table.half_offset:
            self._store.flush()
        with table.lock:
            table.advance(done_to, _done_ops(ops, table.op_offset, done_to), ops.named)
            result.half_offset, result.op_offset = table.half_offset, table.op_offset


def _done_ops(ops: Ops, op_offset: int, half_offset: int) -> int:
    """Return the op offset, after the leading op messages whose half messages are all done."""
    # Op messages 5, 6, 7 that name [1, 9], [2], [3] have rows 0 0 1 2. With half offset 4, row 0
    # has one left, and the offset stays at 5; with half offset 10 it moves to 8.
    left = np.bincount(ops.row, ops.named >= half_offset, len(ops.queue_offset)) > 0
    first = int(np.argmax(left)) if left.any() else len(left)
    return int(ops.queue_offset[first - 1]) + 1 if first else op_offset


def _as_sent(half: Message) -> Message:
    """Return a half message in the form for its producer: with its own topic and queue."""
    half.properties = string_to_properties(half.properties_raw or b"")
    facts = half_facts(half.properties)
    half.topic, half.queue_id = facts.topic or "", facts.queue_id or 0
    return half


# Source: RocketMQ ``TransactionalMessageServiceImpl.check``, ``needDiscard``, ``needSkip``,
# ``getImmunityTime``; ``EndTransactionProcessor.rejectCommitOrRollback``,
# ``TransactionalMessageUtil.getImmunityTime`` (release 5.3.3).
class Decision(Enum):
    """What a check does with a half message."""

    DISCARD = "discard"
    """Copy it to the topic for messages that were checked too often or are too old."""
    STOP = "stop"
    """Stop: it and all that follow are too young."""
    IMMUNE = "immune"
    """Put a copy, and do not ask the producer yet."""
    ASK = "ask"
    """Put a copy with a check count one higher, and ask the producer."""


def decide(half: Message, start_ms: int, now_ms: int, config: MessageStoreConfig) -> Decision:
    """Decide what a check does with an open half message."""
    facts = half_facts(half.properties)
    age_ms = now_ms - half.born_timestamp
    checks = checks_so_far(half, facts, config)
    if checks is not None and checks >= config.transaction_check_max:
        return Decision.DISCARD
    if age_ms > config.file_reserved_time * _HOUR_MS:
        return Decision.DISCARD
    if half.store_timestamp >= start_ms:
        return Decision.STOP
    immunity_ms = _immunity_ms(facts, config)
    if facts.immunity_s is not None:
        if age_ms < immunity_ms:
            return Decision.IMMUNE
    elif 0 <= age_ms < immunity_ms:
        return Decision.STOP
    # Once all op messages are read, RocketMQ asks if the half message is older than its immunity or
    # born in the future; otherwise it waits and tries again.
    return Decision.ASK if age_ms > immunity_ms or age_ms <= -1 else Decision.STOP


def checks_so_far(half: Message, facts: HalfFacts, config: MessageStoreConfig) -> int | None:
    """Return how often the producer was asked; None if never.

    RocketMQ also counts the copies that it puts of an immune half message, and can discard the
    message as checked too often without ever asking the producer. A copy that was stored while the
    message was immune proves that its producer was not asked.
    """
    age_then_ms = half.store_timestamp - half.born_timestamp
    if facts.immunity_s is not None and age_then_ms < _immunity_ms(facts, config):
        return None
    return facts.check_times


def is_too_late(half: Message, now_ms: int, config: MessageStoreConfig) -> bool:
    """Return whether an answer without a check comes after the time that the producer set.

    Then only a check can end the half message.
    """
    facts = half_facts(half.properties)
    if facts.immunity_s is None:
        return False
    allowed_ms = max(facts.immunity_s * 1000, config.transaction_time_out)
    return now_ms - half.born_timestamp > allowed_ms


def _immunity_ms(facts: HalfFacts, config: MessageStoreConfig) -> int:
    if facts.immunity_s is None or facts.immunity_s == -1:
        return config.transaction_time_out
    return facts.immunity_s * 1000
