"""What to do with a half message that a check comes to: RocketMQ's rules.

Source: RocketMQ ``TransactionalMessageServiceImpl.check``, ``needDiscard``, ``needSkip``,
``getImmunityTime``; ``EndTransactionProcessor.rejectCommitOrRollback``,
``TransactionalMessageUtil.getImmunityTime`` (release 5.3.3).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from store_core.transaction_forms import half_facts

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.message import Message
    from store_core.transaction_forms import HalfFacts

_HOUR_MS = 3_600_000


class Decision(Enum):
    """What a check does with a half message."""

    DISCARD = "discard"
    """Copy it to the topic of those that were checked too often, or are too old."""
    STOP = "stop"
    """It and all that follow are too young."""
    IMMUNE = "immune"
    """Put a copy that is not to be asked for yet."""
    ASK = "ask"
    """Put a copy with the counter one higher, and ask the producer."""


def decide(half: Message, start_ms: int, now_ms: int, config: MessageStoreConfig) -> Decision:
    """Return what a check does with an open half message.

    Parameters
    ----------
    half
        As it is stored.
    start_ms
        When the check began.
    now_ms
        The clock.
    config
        ``transactionTimeOut``, ``transactionCheckMax``, ``fileReservedTime``.
    """
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
    # RocketMQ asks as soon as all op messages are read, if it is older than its immunity, or born
    # in the future; else it waits and looks again.
    return Decision.ASK if age_ms > immunity_ms or age_ms <= -1 else Decision.STOP


def checks_so_far(half: Message, facts: HalfFacts, config: MessageStoreConfig) -> int | None:
    """Return how often the producer was asked; None: never.

    RocketMQ counts the copies that it makes of an immune half message, too, and throws the message
    away as checked too often before anybody was asked. A copy that was stored while it was immune
    has been asked for by nobody.
    """
    age_then_ms = half.store_timestamp - half.born_timestamp
    if facts.immunity_s is not None and age_then_ms < _immunity_ms(facts, config):
        return None
    return facts.check_times


def is_too_late(half: Message, now_ms: int, config: MessageStoreConfig) -> bool:
    """Say whether an answer that nobody asked for comes after the time that the producer set.

    Such a half message is ended by a check alone.
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
