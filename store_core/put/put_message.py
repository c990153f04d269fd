# SPDX-License-Identifier: Apache-2.0
"""Put messages one by one, or as a plain batch.

Source: RocketMQ ``DefaultMessageStore.asyncPutMessage``, ``CommitLog.asyncPutMessage`` (release
5.3.3).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.codec.record_encoder import CRC_NAME, EncodedRecords, reserve_property_crc
from store_core.config.message_store_config import SYNC_FLUSH
from store_core.errors import StoreWriteError
from store_core.layout import (
    HEADERS,
    INNER_BATCH_FLAG,
    INNER_ITEM,
    IPV6_HOST_BYTES,
    NOT_QUEUED_BIT,
    PROPERTIES_LENGTH_BYTES,
    PROPERTY_INNER_BASE,
)
from store_core.put.put_checks import (
    Refusal,
    TopicFacts,
    batch_refusal,
    illegal,
    inner_count,
    light_record_refusal,
    message_refusal,
    size_refusal,
)
from store_core.put.put_context import FlushHandler, NotePut, PutContext, PutStats, append_failure
from store_core.put.put_properties import (
    INNER_MARK,
    property_string,
    queue_names,
    reserved_fault,
    set_property,
    waits_for_flush,
    with_light_offsets,
)
from store_core.put.put_record_batch import RecordBatchPutter
from store_core.put.put_schedule import DELAY_MARK, TIMER_MARK, scheduled_message
from store_core.put.record_template import host_bytes, new_template, plain_template
from store_core.results import (
    AppendBatchResult,
    AppendMessageResult,
    AppendMessageStatus,
    PutMessageResult,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.arrow_types import RecordBatch
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.log.commit_log_appender import AppendedRecord, CommitLogAppender
    from store_core.log.recent_appends import RecentAppends
    from store_core.message import Message
    from store_core.put.timer_rules import TimerRules
    from store_core.queue.consume_queue_store import QueueOffsetTable

_APPENDED = AppendMessageStatus.PUT_OK
_MARKS = (DELAY_MARK, TIMER_MARK, INNER_MARK, CRC_NAME)  # of properties that the store reads
_BODY_CRC_AT = HEADERS[False, False].at("body_crc")
_ITEM_BYTES = INNER_ITEM.size + PROPERTIES_LENGTH_BYTES


class MessagePutter:
    """Gives messages their queue offsets and appends them; any number of threads may call it.

    The checks and their order are a broker's. A refused message changes nothing; the result's
    ``reason`` says why it was refused.

    Parameters
    ----------
    store_host
        8 or 20 raw bytes, for messages without a host of their own.
    refusal
        Returns why nothing can be put now, or None; called first.
    clock
        Returns ms since the epoch.
    timer_rules
        What happens to messages that name their delivery time; if None, they are stored as they
        are.
    recent
        Gets the columns of appended batches, for their dispatch; None if they are not dispatched.
    """

    def __init__(  # noqa: PLR0913 (collaborators)
        self,
        config: MessageStoreConfig,
        appender: CommitLogAppender,
        offsets: QueueOffsetTable,
        flush: FlushHandler,
        *,
        store_host: bytes,
        refusal: Callable[[], Refusal | None],
        is_batch_topic: Callable[[str], bool],
        stats: PutStats,
        clock: Callable[[], int],
        handle_schedule_message: bool = False,
        timer_rules: TimerRules | None = None,
        note_put: NotePut | None = None,
        recent: RecentAppends | None = None,
    ) -> None:
        self._max_level = len(config.delay_levels_ms) if handle_schedule_message else 0
        self._context = PutContext(
            config=config,
            appender=appender,
            offsets=offsets,
            flush=flush,
            store_host=store_host,
            refused_now=refusal,
            is_batch_topic=is_batch_topic,
            stats=stats,
            clock=clock,
            max_delay_level=self._max_level,
            timer_rules=timer_rules,
            note_put=note_put,
            recent=recent,
        )
        self._timer_rules, self._note_put = timer_rules, note_put
        self.config, self._appender, self._offsets = config, appender, offsets
        self._flush, self._store_host, self._clock = flush, store_host, clock
        self._is_batch_topic, self._stats = is_batch_topic, stats
        self._crc = config.enabled_append_prop_crc
        self._max_message_size = config.max_message_size
        self._may_wait = config.flush_disk_type == SYNC_FLUSH or config.waits_for_replicas
        self._facts = self._context.facts
        self._columnar = RecordBatchPutter(self._context)

    def put_message(self, message: Message, *, is_raw: bool = False) -> PutMessageResult:
        """Put one message.

        ``properties_raw`` is stored if the message has it, without the CRC of another record at its
        end; otherwise its properties in their order. The default birth time is now, the default
        hosts are the store's. If the store handles delay levels, a message with one (property DELAY
        above 0) is stored in the schedule topic until it is due, its properties in RocketMQ 5.3.3's
        order; if the store has timer rules, so is a timer message in the timer's topic.

        Parameters
        ----------
        is_raw
            The caller has handled the delay: the message goes to its own topic.

        Raises
        ------
        TypeError
            A name or a value of a property is not a string.
        ValueError
            A host is not ``ip:port`` or ``[ipv6]:port``.
        """
        begin = self._clock()
        context = self._context
        topic, body, queue_id = message.topic, message.body, message.queue_id
        facts = self._facts.get(topic) or context.facts_of(topic)
        refusal = context.refused_now() or facts.refusal
        if refusal is None and (body is None or queue_id < 0 or self._appender.begin_time_in_lock):
            refusal = message_refusal(body, queue_id) or context.busy(begin)
        if refusal is not None:
            return self._refused(refusal)
        hosts = host_bytes(message.born_host, message.store_host, self._store_host)
        record = None
        if not (self._crc or facts.is_special):
            most_body = self._max_message_size
            record = plain_template(message, facts.encoded, hosts, _MARKS, most_body, begin)
        if record is None:
            return self._put_by_parts(message, facts, hosts, begin, is_raw=is_raw)
        try:
            done = self._append_record(message, record, hosts)
        except (StoreWriteError, ValueError, struct.error) as err:
            return self._refused(append_failure(err))
        waits = self._may_wait and waits_for_flush(property_string(message))
        return self._acknowledged(message, done, waits, begin)

    def put_messages(self, messages: Sequence[Message]) -> PutMessageResult:
        """Put messages of one queue into one segment: all of them, or none.

        The result's ``append_result`` is for the whole batch.

        Raises
        ------
        ValueError
            There is no message, or a host is malformed.
        TypeError
            A name or a value of a property is not a string.
        """
        return put_plain_batch(self._context, messages)

    def append_batch(self, batch: RecordBatch, *, is_raw: bool = False) -> AppendBatchResult:
        """Put the rows of a ``pa.RecordBatch``; see `RecordBatchPutter.append_batch`."""
        return self._columnar.append_batch(batch, is_raw=is_raw)

    def _put_by_parts(
        self,
        message: Message,
        facts: TopicFacts,
        hosts: tuple[bytes, bytes],
        begin: int,
        *,
        is_raw: bool,
    ) -> PutMessageResult:
        """Put any message, also one that has to wait, and those that are refused now."""
        properties = property_string(message)
        if not is_raw and (DELAY_MARK in properties or TIMER_MARK in properties):
            waiting = self._waiting(message, properties)
            if isinstance(waiting, Refusal):
                return self._refused(waiting)
            if waiting is not None:
                message, properties = waiting, waiting.properties_raw or b""
                facts = self._context.facts_of(message.topic)
        try:
            done = self._append(message, facts, properties, hosts, begin)
        except (StoreWriteError, ValueError, struct.error) as err:
            done = append_failure(err)
        if isinstance(done, Refusal):
            return self._refused(done)
        waits = self._may_wait and waits_for_flush(properties)
        return self._acknowledged(message, done, waits, begin)

    def _acknowledged(
        self, message: Message, done: AppendMessageResult, waits: bool, begin: int
    ) -> PutMessageResult:
        """Make an appended message as safe as configured, and count it."""
        status = self._flush.handle(done.commit_log_offset + done.store_size, waits)
        if self._note_put is not None:
            self._note_put(message.topic, message.queue_id)
        self._stats.record_put(done.message_num, done.store_size, self._clock() - begin)
        return tuple.__new__(PutMessageResult, (status, done, ""))

    def _waiting(self, message: Message, properties: bytes) -> Message | Refusal | None:
        """Return the message in the form stored until it is due; None if it is not delayed."""
        found = None
        if self._timer_rules is not None and TIMER_MARK in properties:
            found = self._timer_rules.timed_message(message, properties)
        if found is None and self._max_level and DELAY_MARK in properties:
            found = scheduled_message(message, properties, self._max_level)
        return found

    def _append(
        self,
        message: Message,
        facts: TopicFacts,
        properties: bytes,
        hosts: tuple[bytes, bytes],
        now: int,
    ) -> AppendMessageResult | Refusal:
        is_inner = INNER_MARK in properties or message.sys_flag & INNER_BATCH_FLAG
        if is_inner or facts.is_special:
            return self._append_special(message, facts, properties, hosts, now)
        if self._crc:
            properties = reserve_property_crc(properties)
        refusal = size_refusal(len(properties), len(message.body), self.config)
        if refusal is not None:
            return refusal
        record = new_template(message, facts.encoded, properties, hosts, now)
        return self._append_record(message, record, hosts)

    def _append_record(
        self, message: Message, record: bytearray, hosts: tuple[bytes, bytes]
    ) -> AppendMessageResult:
        queue, offsets = (message.topic, message.queue_id), self._offsets
        counters = offsets.batch if self._is_batch_topic(message.topic) else offsets.simple
        counted = not message.sys_flag & NOT_QUEUED_BIT
        with offsets.lock(queue):
            queue_offset = counters.get(queue, 0) if counted else 0
            appended = self._appender.append(record, queue_offset, property_crc=self._crc)
            if counted:
                counters[queue] = queue_offset + 1
        return _appended(appended, queue_offset, 1, hosts)

    def _append_special(
        self,
        message: Message,
        facts: TopicFacts,
        properties: bytes,
        hosts: tuple[bytes, bytes],
        now: int,
    ) -> AppendMessageResult | Refusal:
        """Append an inner batch, or a message of or for light queues."""
        offsets = self._offsets
        is_batch = self._is_batch_topic(message.topic)
        count, refusal = inner_count(message.topic, message.sys_flag, properties, is_batch)
        if refusal is not None:
            return refusal
        counted = not message.sys_flag & NOT_QUEUED_BIT
        names = queue_names(properties) if facts.may_fan_out and counted else []
        queue = (message.topic, message.queue_id)
        light: list[str] = []
        counters = offsets.counters(is_batch)
        with offsets.locks([queue], light=bool(names) or facts.is_light):
            queue_offset = counters.get(queue, 0) if counted else 0
            if counted and message.sys_flag & INNER_BATCH_FLAG:
                properties = set_property(properties, PROPERTY_INNER_BASE, str(queue_offset))
            if names:
                properties, light = with_light_offsets(properties, names, offsets.next_light)
                fault = reserved_fault(message.topic, properties)
                if fault is not None:
                    return illegal(fault)
            if self._crc:
                properties = reserve_property_crc(properties)
            refusal = size_refusal(len(properties), len(message.body), self.config)
            if refusal is not None:
                return illegal(refusal.reason) if names else refusal
            record = new_template(message, facts.encoded, properties, hosts, now)
            refusal = light_record_refusal(len(record), self.config) if names else None
            if refusal is not None:
                return refusal
            appended = self._appender.append(record, queue_offset, property_crc=self._crc)
            if counted:
                counters[queue] = queue_offset + count
            offsets.advance_light(light)
        return _appended(appended, queue_offset, count, hosts)

    def _refused(self, refusal: Refusal) -> PutMessageResult:
        self._stats.record_put_failure()
        return PutMessageResult(refusal.status, None, refusal.reason)


def _appended(
    appended: AppendedRecord, queue_offset: int, count: int, hosts: tuple[bytes, bytes]
) -> AppendMessageResult:
    offset, size, store_timestamp = appended
    # On every put: the class's own constructor would be one more Python call.
    return tuple.__new__(
        AppendMessageResult,
        (_APPENDED, offset, size, queue_offset, store_timestamp, count, ((hosts[1], offset),)),
    )


# Source: RocketMQ ``CommitLog.asyncPutMessages``, ``MessageExtEncoder.encode(MessageExtBatch)``
# (release 5.3.3).
def put_plain_batch(context: PutContext, messages: Sequence[Message]) -> PutMessageResult:
    """Put messages of one topic and queue; see ``MessagePutter.put_messages``."""
    if not messages:
        raise ValueError("a batch needs at least one message")
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
            f"{context.config.max_message_size}: put fewer messages in a batch"
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
        new_template(message, facts.encoded, reserve_property_crc(raw) if crc else raw, own, now)
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
