# SPDX-License-Identifier: Apache-2.0
"""Decides which messages wait for the delivery time they name, and which are refused."""

from __future__ import annotations

import random
from copy import copy
from typing import TYPE_CHECKING, Callable

from store_core.codec.java_hash_map import hash_map_string
from store_core.codec.java_string import java_integer
from store_core.codec.message_codec import string_to_properties
from store_core.layout import (
    NOT_QUEUED_BIT,
    PROPERTY_DELAY,
    PROPERTY_REAL_QID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
)
from store_core.message import Message
from store_core.put.put_checks import Refusal
from store_core.put.put_properties import delay_level
from store_core.results import PutMessageStatus
from store_core.topics import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.config.message_store_config import MessageStoreConfig

_LONG_BITS = 64
_TIMES = {
    PROPERTY_TIMER_DELAY_SEC: (1000, True),
    PROPERTY_TIMER_DELAY_MS: (1, True),
    PROPERTY_TIMER_DELIVER_MS: (1, False),
}
"""Property -> its unit in ms, and whether it counts from now; the first one present is used."""


class TimerRules:
    """Rules for messages that name their delivery time.

    Parameters
    ----------
    clock
        Returns ms since the epoch.

    Attributes
    ----------
    waiting_at
        Returns how many messages already wait for a time (ms); the owner of the wheel sets it.
    refusal
        Why all messages that name a time are refused; empty if they are not.
    """

    def __init__(self, config: MessageStoreConfig, clock: Callable[[], int]) -> None:
        self._is_enabled = config.timer_wheel_enable
        self._precision_ms = config.timer_precision_ms
        self._most_ms = config.timer_max_delay_sec * 1000
        self._most_waiting = config.timer_congest_num_each_slot
        self._clock = clock
        self.waiting_at: Callable[[int], int] = nobody_waits
        self.refusal = ""

    def timed_message(self, message: Message, properties_raw: bytes) -> Message | Refusal | None:
        """Return the message in the form stored until it is due; None if it is not delayed."""
        if message.topic == TIMER_TOPIC or message.sys_flag & NOT_QUEUED_BIT:
            return None
        properties = string_to_properties(properties_raw)
        if not _names_a_time(properties):
            return None
        if not self._is_enabled:
            return Refusal(
                PutMessageStatus.WHEEL_TIMER_NOT_ENABLE,
                "the message has a delivery time, but timerWheelEnable is false",
            )
        if self.refusal:
            return Refusal(PutMessageStatus.WHEEL_TIMER_NOT_ENABLE, self.refusal)
        out_ms = self._out_ms(properties)
        if out_ms is None or isinstance(out_ms, Refusal):
            return out_ms
        properties[PROPERTY_TIMER_OUT_MS] = str(out_ms)
        properties[PROPERTY_REAL_TOPIC] = message.topic
        properties[PROPERTY_REAL_QID] = str(message.queue_id)
        found = copy(message)
        found.topic, found.queue_id = TIMER_TOPIC, 0
        found.properties_raw = hash_map_string(properties)
        return found

    def _out_ms(self, properties: Mapping[str, str]) -> int | Refusal | None:
        """Return the step (ms) after which the message is delivered; None if it is already due."""
        name = next(name for name in _TIMES if name in properties)
        now = self._clock()
        number = java_integer(properties[name], _LONG_BITS)
        if number is None:
            return _illegal(f"property {name} is {properties[name]!r:.60}, which is not a number")
        unit_ms, from_now = _TIMES[name]
        deliver_ms = _as_long(number * unit_ms + now * from_now)
        if deliver_ms <= now:
            if PROPERTY_TIMER_DEL_UNIQKEY in properties:
                return _illegal("it cancels a timer message whose delivery time has passed")
            return None
        if _as_long(deliver_ms - now) > self._most_ms:
            return _illegal(
                f"it would wait {deliver_ms - now} ms, but timerMaxDelaySec allows {self._most_ms}"
            )
        # A time exactly on a step gets the step before: slots are delivered after their step.
        out_ms = (deliver_ms - 1) // self._precision_ms * self._precision_ms
        if self._is_congested(out_ms):
            return Refusal(
                PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL,
                f"{self.waiting_at(out_ms)} messages already wait for this time "
                "(timerCongestNumEachSlot): choose another time, or send again later",
            )
        return out_ms

    def _is_congested(self, out_ms: int) -> bool:
        waiting, most = self.waiting_at(out_ms), self._most_waiting
        if waiting <= most:
            return False
        # As in RocketMQ, which refuses fewer the more there are, up to twice the limit, though it
        # means the opposite.
        return waiting >= 2 * most or random.randrange(1000) > 1000 * (waiting - most) / (
            most + 0.1
        )


def nobody_waits(_time_ms: int) -> int:
    """Return 0: without a timer wheel no message waits."""
    return 0


def _names_a_time(properties: Mapping[str, str]) -> bool:
    if PROPERTY_TIMER_OUT_MS in properties or not any(name in properties for name in _TIMES):
        return False
    level, fault = delay_level(properties.get(PROPERTY_DELAY))
    return fault is None and level <= 0


def _illegal(reason: str) -> Refusal:
    return Refusal(PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL, reason)


def _as_long(number: int) -> int:
    """Return a number wrapped to 64 bits, as in Java."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
