# SPDX-License-Identifier: Apache-2.0
"""Checks whether a message may be put, in RocketMQ's order.

Source: RocketMQ ``HookUtils.checkBeforePutMessage``, ``DefaultMessageStore.asyncPutMessage``,
``CommitLog.asyncPutMessages``, ``MessageExtEncoder.encode`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store_core.codec.java_string import java_integer
from store_core.layout import (
    INNER_BATCH_FLAG,
    LMQ_PREFIX,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    MAX_TOPIC_BYTES_V2,
    PROPERTY_DELAY,
    PROPERTY_INNER_NUM,
    PROPERTY_TRANSACTION_PREPARED,
    SCHEDULE_TOPIC,
    TRANSACTION_MASK,
)
from store_core.put.put_properties import INNER_MARK, delay_level, property_value, reserved_fault
from store_core.put.record_template import TopicBytes, topic_bytes
from store_core.results import PutMessageStatus

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.message import Message

RETRY_PREFIX = "%RETRY%"
_MAX_QUEUE_ID = 2**31 - 1
_NEVER_MULTI = (RETRY_PREFIX, "rmq_sys_")


class Refusal(NamedTuple):
    """Why a message is refused."""

    status: PutMessageStatus
    reason: str


def illegal(reason: str) -> Refusal:
    """Return a refusal with status MESSAGE_ILLEGAL."""
    return Refusal(PutMessageStatus.MESSAGE_ILLEGAL, reason)


class TopicFacts(NamedTuple):
    """What the name of a topic decides; worked out once per topic.

    Attributes
    ----------
    is_light
        Whether the name is a light queue's own, and light queues are enabled.
    """

    refusal: Refusal | None
    encoded: TopicBytes
    is_light: bool
    may_fan_out: bool
    is_special: bool


def topic_facts(topic: str, config: MessageStoreConfig) -> TopicFacts:
    """Return what the name of a topic decides."""
    try:
        encoded = topic.encode()
    except UnicodeEncodeError:
        return TopicFacts(
            illegal(f"topic {topic!r} is not UTF-8"), topic_bytes(b""), False, False, False
        )
    refusal = _topic_refusal(topic, len(encoded), config)
    is_light = topic.startswith(LMQ_PREFIX)
    return TopicFacts(
        refusal,
        topic_bytes(encoded if refusal is None else b""),
        config.enable_lmq and is_light,
        config.enable_lmq
        and not is_light
        and not topic.startswith(_NEVER_MULTI)
        and (topic != SCHEDULE_TOPIC),
        topic == SCHEDULE_TOPIC or (config.enable_lmq and is_light),
    )


def _topic_refusal(topic: str, size: int, config: MessageStoreConfig) -> Refusal | None:
    most = MAX_TOPIC_BYTES_V2 if topic.startswith(RETRY_PREFIX) else config.max_topic_length
    if not config.auto_message_version_on_topic_len:
        most = min(most, MAX_TOPIC_BYTES_V1)
    if size > most:
        return illegal(f"topic {topic[:80]!r} has {size} bytes, at most {most} are allowed")
    # The topic's queues are in a directory of this name. RocketMQ's store accepts every name: one
    # with a slash ends up among another topic's queues, or outside the store.
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        return illegal(f"topic {topic!r} cannot name a directory")
    return None


def inner_count(
    topic: str, sys_flag: int, properties_raw: bytes, is_batch_topic: bool
) -> tuple[int, Refusal | None]:
    """Return how many queue offsets a message takes, or why its properties are refused.

    Only an inner batch takes more than one, and only a topic with batch queues accepts it.
    """
    fault = reserved_fault(topic, properties_raw)
    if fault is not None:
        return 1, illegal(fault)
    is_inner = bool(sys_flag & INNER_BATCH_FLAG)
    if not is_inner and INNER_MARK not in properties_raw:
        return 1, None
    value = property_value(properties_raw, PROPERTY_INNER_NUM)
    if value is not None and not is_inner:
        return 1, illegal(
            f"property {PROPERTY_INNER_NUM} is set, but bit {INNER_BATCH_FLAG:#x} of the sys flag "
            "is not"
        )
    if is_inner and not is_batch_topic:
        return 1, illegal("an inner batch, but the topic's queues are not batch queues")
    if value is None:
        return 1, None
    return max(java_integer(value, 16) or 1, 1), None


def size_refusal(
    properties_bytes: int, body_bytes: int, config: MessageStoreConfig
) -> Refusal | None:
    """Return why a message is too large; the property CRC counts as part of the properties.

    RocketMQ also refuses records over ``maxMessageSize`` plus 64 KiB, which none that passes here
    reaches.
    """
    if properties_bytes > MAX_PROPERTIES_BYTES:
        return Refusal(
            PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
            f"the properties have {properties_bytes} bytes, at most {MAX_PROPERTIES_BYTES} fit",
        )
    most = config.max_message_size
    if body_bytes > most:
        return illegal(f"the body has {body_bytes} bytes, maxMessageSize is {most}")
    return None


def message_refusal(body: object, queue_id: int) -> Refusal | None:
    """Return why a message's body or queue cannot be stored."""
    if body is None:
        return illegal("the body is None; an empty one is allowed")
    if queue_id < 0:
        return illegal(f"queue id {queue_id}: the caller has to choose the queue of a message")
    if queue_id > _MAX_QUEUE_ID:
        return illegal(f"queue id {queue_id}: the largest possible one is {_MAX_QUEUE_ID}")
    return None


def light_record_refusal(record_bytes: int, config: MessageStoreConfig) -> Refusal | None:
    """Return why the record for light queues is too large; the limit is for the whole record."""
    if record_bytes <= config.max_message_size:
        return None
    return illegal(
        f"the record has {record_bytes} bytes, but maxMessageSize is {config.max_message_size}, "
        "which limits the whole record of a message for light queues"
    )


def batch_refusal(message: Message, properties_raw: bytes, first: Message) -> Refusal | None:
    """Return why a message cannot be part of a plain batch."""
    if (message.topic, message.queue_id) != (first.topic, first.queue_id):
        return illegal(
            "all messages of a batch must have the same topic and queue; put them separately"
        )
    if message.sys_flag & TRANSACTION_MASK:
        return illegal("a message of a transaction cannot be put in a batch")
    if message.sys_flag & INNER_BATCH_FLAG:
        return illegal("an inner batch cannot be put in a batch")
    level, fault = delay_level(property_value(properties_raw, PROPERTY_DELAY))
    if fault is not None or level > 0:
        return illegal(fault or "a delayed message cannot be put in a batch")
    prepared = property_value(properties_raw, PROPERTY_TRANSACTION_PREPARED)
    if prepared is not None and prepared.lower() == "true":
        return illegal("a message of a transaction cannot be put in a batch")
    return None
