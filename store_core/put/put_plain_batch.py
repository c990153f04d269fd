"""Put messages of one queue together: all in one segment, or none.

Source: RocketMQ ``CommitLog.asyncPutMessages``, ``MessageExtEncoder.encode(MessageExtBatch)``
(release 5.3.3).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.encoded_records import EncodedRecords, reserve_property_crc
from store_core.errors import StoreWriteError
from store_core.layout.message import (
    HEADERS,
    INNER_ITEM,
    IPV6_HOST_BYTES,
    PROPERTIES_LENGTH_BYTES,
)
from store_core.put.put_checks import (
    Refusal,
    TopicFacts,
    batch_refusal,
    illegal,
    inner_count,
    message_refusal,
    size_refusal,
)
from store_core.put.put_context import append_failure
from store_core.put.put_draft import draft_record, host_bytes
from store_core.put.put_properties import property_string, waits_for_flush
from store_core.results import AppendMessageResult, AppendMessageStatus, PutMessageResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.message import Message
    from store_core.put.put_context import PutContext

_BODY_CRC_AT = HEADERS[False, False].at("body_crc")
_ITEM_BYTES = INNER_ITEM.size + PROPERTIES_LENGTH_BYTES


def put_plain_batch(context: PutContext, messages: Sequence[Message]) -> PutMessageResult:
    """Put messages of one topic and queue; see ``MessagePutter.put_messages``."""
    if not messages:
        raise ValueError("a batch has at least one message")
    begin = context.clock()
    first = messages[0]
    facts = context.facts_of(first.topic)
    own = context.store_host
    hosts = [host_bytes(message.born_host, message.store_host, own) for message in messages]
    properties = [property_string(message) for message in messages]
    refusal = (
        context.refused_now()
        or facts.refusal
        or _first_refusal(context, messages, properties)
        or context.busy(begin)
    )
    done: AppendMessageResult | Refusal
    try:
        done = refusal or _append(context, messages, facts, properties, hosts, begin)
    except (StoreWriteError, ValueError, struct.error) as err:
        done = append_failure(err)
    if isinstance(done, Refusal):
        context.stats.record_put_failure()
        return PutMessageResult(done.status, None, done.reason)
    status = context.flush.handle(
        done.commit_log_offset + done.store_size, waits_for_flush(properties[0])
    )
    if context.note_put is not None:
        context.note_put(first.topic, first.queue_id)
    context.stats.record_put(done.message_num, done.store_size, context.clock() - begin)
    return PutMessageResult(status, done)


def _first_refusal(
    context: PutContext, messages: Sequence[Message], properties: list[bytes]
) -> Refusal | None:
    total = 0
    is_batch_topic = context.is_batch_topic(messages[0].topic)
    crc = context.config.enabled_append_prop_crc
    for number, (message, raw) in enumerate(zip(messages, properties)):
        refusal = message_refusal(message.body, message.queue_id)
        if refusal is None:
            refusal = batch_refusal(message, raw, messages[0])
        if refusal is None:
            _, refusal = inner_count(message.topic, message.sys_flag, raw, is_batch_topic)
        if refusal is None:
            properties_bytes = len(reserve_property_crc(raw)) if crc else len(raw)
            refusal = size_refusal(properties_bytes, len(message.body), context.config)
        if refusal is not None:
            return Refusal(refusal.status, f"message {number} of the batch: {refusal.reason}")
        total += _ITEM_BYTES + len(message.body) + len(raw)
    if total > context.config.max_message_size:
        return illegal(
            f"the messages of the batch have {total} bytes, maxMessageSize is "
            f"{context.config.max_message_size}: put fewer at once"
        )
    return None


def _append(
    context: PutContext,
    messages: Sequence[Message],
    facts: TopicFacts,
    properties: list[bytes],
    hosts: list[tuple[bytes, bytes]],
    now: int,
) -> AppendMessageResult:
    crc = context.config.enabled_append_prop_crc
    drafts = [
        draft_record(message, facts.encoded, reserve_property_crc(raw) if crc else raw, own, now)
        for message, raw, own in zip(messages, properties, hosts)
    ]
    records = _records(drafts, [born for born, _ in hosts], crc)
    queue, count = (messages[0].topic, messages[0].queue_id), len(messages)
    counters = context.offsets.counters(context.is_batch_topic(queue[0]))
    with context.offsets.locks([queue], light=facts.is_light):
        queue_offset = counters.get(queue, 0)
        numbers = np.arange(queue_offset, queue_offset + count)
        done = context.appender.append_records(records, numbers, one_segment=True)
        counters[queue] = queue_offset + count
    places = done.commit_log_offsets.tolist()
    return AppendMessageResult(
        status=AppendMessageStatus.PUT_OK,
        commit_log_offset=places[0],
        store_size=len(records.block),
        queue_offset=queue_offset,
        store_timestamp=done.store_timestamp,
        message_num=count,
        places=tuple((own[1], place) for own, place in zip(hosts, places)),
    )


def _records(drafts: list[bytearray], born_hosts: list[bytes], crc: bool) -> EncodedRecords:
    sizes = np.array([len(draft) for draft in drafts], np.int64)
    starts = np.cumsum(sizes) - sizes
    block = np.frombuffer(bytearray().join(drafts), np.uint8)
    times = [HEADERS[len(h) == IPV6_HOST_BYTES, False].at("store_timestamp") for h in born_hosts]
    crcs = np.ndarray((len(block) - 3,), ">i4", block, strides=(1,))[starts + _BODY_CRC_AT]
    return EncodedRecords(
        block=block,
        starts=starts,
        sizes=sizes,
        body_crc=crcs.astype(np.int32),
        store_timestamp_at=starts + np.array(times, np.int64),
        property_crc=crc,
    )
