# SPDX-License-Identifier: Apache-2.0
"""Messages of producers: single, in batches, or prepared for a transaction.

Source: RocketMQ ``SendMessageProcessor``, ``AbstractSendMessageProcessor`` (release 5.3.3).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from rmqnet.broker.processor.broker_processor import BrokerProcessor
from rmqnet.broker.processor.message_checks import RefusedError, sendable_topic
from rmqnet.broker.state.traffic import message_type
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import answers
from store_core.codec.compression import CorruptBodyError
from store_core.codec.inner_columns import split_inner_batch
from store_core.codec.java_hash_map import hash_map_string
from store_core.codec.java_string import java_integer
from store_core.codec.message_codec import string_to_properties
from store_core.layout import (
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
    PROPERTY_DELAY,
    PROPERTY_INNER_NUM,
    PROPERTY_KEYS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
)
from store_core.message import Message
from store_core.results import PutMessageStatus
from store_core.topics import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from rmqnet.remoting.server_connection import ServerConnection
    from store_core.config.config_files import TopicConfig
    from store_core.results import PutMessageResult

PROPERTY_MSG_REGION = "MSG_REGION"
PROPERTY_TRACE_SWITCH = "TRACE_ON"
PROPERTY_CLUSTER = "CLUSTER"
_PROPERTY_POP_CK = "POP_CK"
_V3_4_9 = 121
_MULTI_TAGS_FLAG = 2
_MAX_BATCH_TOPIC_CHARACTERS = 127
_CLEANUP_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"
_HEADERS: dict[int, type[SendMessageRequestHeader]] = {
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE: SendMessageRequestHeader,
}
_TIMES = frozenset((PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER_MS))
_CODES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
STORED_CODES = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""Codes for stored messages; the code shows how safely they are stored."""
_REFUSED_CODES = {
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}


def send_header(request: RemotingCommand) -> SendMessageRequestHeader:
    """Return the fields of a send, with long or short names on the wire."""
    return decode_header(_HEADERS.get(request.code, SendMessageRequestHeaderV2), request.ext_fields)


class SendMessageProcessor(BrokerProcessor):
    """Puts messages that producers send."""

    pool = "send"

    @answers(*_CODES, with_peer=True)
    def process(self, connection: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        """Put a message or a batch, and return its location."""
        header = send_header(request)
        self._check_time()
        topic = sendable_topic(self._broker, header, connection.address)
        if header.batch:
            return self._send_batch(connection, request, header, topic)
        return self._send(connection, request, header, topic)

    def _refusal(self, err: RefusedError, request: RemotingCommand) -> RemotingCommand:
        response, config = super()._refusal(err, request), self._broker.config
        response.ext_fields[PROPERTY_MSG_REGION] = config.region_id
        response.ext_fields[PROPERTY_TRACE_SWITCH] = _truth(config.trace_on)
        return response

    def _check_time(self) -> None:
        begin = self._broker.config.start_accept_send_request_time_stamp
        if self._broker.clock() < begin:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {begin}"
            )

    # One message.

    def _send(
        self,
        connection: ServerConnection,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        topic: TopicConfig,
    ) -> RemotingCommand:
        properties = self._properties(header)
        queue_id = _queue_of(header, topic)
        name, queue_id, topic = self._place(header, request, topic, queue_id, properties)
        if not properties.get(PROPERTY_UNIQ_KEY):
            properties[PROPERTY_UNIQ_KEY] = self._broker.store.new_unique_key()
        is_compacted = topic.attributes.get(_CLEANUP_POLICY) == _COMPACTION
        if is_compacted and not properties.get(PROPERTY_KEYS, "").strip():
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        properties[PROPERTY_CLUSTER] = self._broker.config.broker_cluster_name
        message = self._message(connection, header, name, queue_id, request.body)
        message.sys_flag |= _filter_flag(topic)
        result = self._put(message, properties)
        return self._answer(request, result, name, queue_id, properties)

    def _put(self, message: Message, properties: dict[str, str]) -> PutMessageResult:
        if not _is_prepared(message, properties):
            message.properties_raw = hash_map_string(properties)
            return self._broker.store.put_message(message)  # type: ignore[no-any-return]
        config = self._broker.config
        if config.reject_transaction_message:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] sending transaction message is forbidden",
            )
        message.properties = properties
        return self._broker.transactions.prepare_message(message)  # type: ignore[no-any-return]

    def _place(
        self,
        header: SendMessageRequestHeader,
        request: RemotingCommand,
        topic: TopicConfig,
        queue_id: int,
        properties: dict[str, str],
    ) -> tuple[str, int, TopicConfig]:
        """Return topic and queue: those of dead letters for a message retried too often."""
        if not header.topic.startswith(RETRY_PREFIX):
            return header.topic, queue_id, topic
        group = header.topic[len(RETRY_PREFIX) :]
        config = self._broker.groups.find(group)
        if config is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}"
            )
        most = config.retry_max_times
        if request.version >= _V3_4_9 and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        # A group with locks consumes in order, and its client itself has retried often enough.
        is_orderly = not self._broker.locks.is_lock_all_expired(group)
        if (header.reconsume_times or 0) <= most and not is_orderly:
            return header.topic, queue_id, topic
        properties[PROPERTY_DELAY] = "-1"
        self._broker.traffic.died(header.topic, group)
        dead = self._broker.topics.create_in_send_message_back(DLQ_PREFIX + group, 1)
        return dead.topic_name, 0, dead

    # Many messages.

    def _send_batch(
        self,
        connection: ServerConnection,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        topic: TopicConfig,
    ) -> RemotingCommand:
        if len(header.topic) > _MAX_BATCH_TOPIC_CHARACTERS:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header.topic)}"
            )
        if header.topic.startswith(RETRY_PREFIX):
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {header.topic}",
            )
        queue_id = _queue_of(header, topic)
        properties = self._properties(header)
        properties[PROPERTY_CLUSTER] = self._broker.config.broker_cluster_name
        try:
            items = split_inner_batch(request.body)
        except CorruptBodyError as err:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, f"the batch: {err}") from err
        if not items:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, "the batch has no messages")
        common = self._message(connection, header, header.topic, queue_id, request.body)
        common.sys_flag |= _filter_flag(topic)
        key = properties.get(PROPERTY_UNIQ_KEY)
        if topic.has_batch_queues and key is not None:
            common.sys_flag |= NEED_UNWRAP_FLAG | INNER_BATCH_FLAG
            properties[PROPERTY_INNER_NUM] = str(len(items))
            common.properties_raw = hash_map_string(properties)
            result = self._broker.store.put_message(common)
            return self._answer(request, result, common.topic, queue_id, properties, batch_key=key)
        tail = hash_map_string(properties)
        messages = []
        for item in items:
            message = Message(
                common.topic,
                item.body,
                queue_id=queue_id,
                flag=item.flag,
                sys_flag=common.sys_flag,
                reconsume_times=common.reconsume_times,
                born_timestamp=common.born_timestamp,
                born_host=common.born_host,
                properties_raw=_joined(item.properties_raw, tail),
            )
            messages.append(message)
        result = self._broker.store.put_messages(messages)
        return self._answer(request, result, common.topic, queue_id, properties, is_batch=True)

    # Both.

    def _properties(self, header: SendMessageRequestHeader) -> dict[str, str]:
        """Return the client's properties, with those that the broker adds to all messages."""
        text = header.properties or ""
        properties = string_to_properties(text.encode("utf-8", "replace"))
        properties[PROPERTY_MSG_REGION] = self._broker.config.region_id
        properties[PROPERTY_TRACE_SWITCH] = _truth(self._broker.config.trace_on)
        properties.pop(_PROPERTY_POP_CK, None)
        return properties

    def _message(
        self,
        connection: ServerConnection,
        header: SendMessageRequestHeader,
        topic: str,
        queue_id: int,
        body: bytes,
    ) -> Message:
        return Message(
            topic,
            body,
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag,
            reconsume_times=header.reconsume_times or 0,
            born_timestamp=header.born_timestamp,
            born_host=connection.address,
        )

    def _answer(
        self,
        request: RemotingCommand,
        result: PutMessageResult,
        topic: str,
        queue_id: int,
        properties: dict[str, str],
        *,
        batch_key: str | None = None,
        is_batch: bool = False,
    ) -> RemotingCommand:
        code = STORED_CODES.get(result.status)
        appended = result.append_result
        if code is None or appended is None:
            refused, remark = refusal_of(result)
            if is_batch and result.status is PutMessageStatus.MESSAGE_ILLEGAL:
                refused = ResponseCode.SYSTEM_ERROR  # as in release 5; clients retry
            raise RefusedError(refused, remark)
        self._broker.traffic.put(
            topic, message_type(properties), appended.message_num, appended.store_size
        )
        config = self._broker.config
        header = SendMessageResponseHeader(
            msg_id=appended.message_id,
            queue_id=queue_id,
            queue_offset=appended.queue_offset,
            transaction_id=properties.get(PROPERTY_UNIQ_KEY),
            batch_uniq_id=batch_key,
            msg_region=config.region_id,
            trace_on=config.trace_on,
        )
        return RemotingCommand.response_to(request, code, None, header)


def _queue_of(header: SendMessageRequestHeader, topic: TopicConfig) -> int:
    """Return the queue, a random one if the client leaves it to the broker."""
    if header.queue_id >= 0:
        return header.queue_id
    return random.randrange(max(topic.write_queue_nums, 1))


def _is_prepared(message: Message, properties: dict[str, str]) -> bool:
    if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() != "true":
        return False
    level = java_integer(properties.get(PROPERTY_DELAY, ""), 32) or 0
    return not (message.reconsume_times > 0 and level > 0)  # a retry by clients before 4.6.1


def _filter_flag(topic: TopicConfig) -> int:
    return _MULTI_TAGS_FLAG if topic.topic_filter_type == "MULTI_TAG" else 0


def _joined(properties_raw: bytes, tail: bytes) -> bytes:
    """Return the properties of a message of a batch, followed by those of the batch."""
    if properties_raw and not properties_raw.endswith(b"\x02"):
        return properties_raw + b"\x02" + tail
    return properties_raw + tail


def _truth(value: object) -> str:
    return "true" if value else "false"


# Source: RocketMQ ``SendMessageProcessor.handlePutMessageResult`` (release 5.3.3).
def refusal_of(result: PutMessageResult) -> tuple[ResponseCode, str]:
    """Return code and remark for a message that was not stored."""
    code = _REFUSED_CODES.get(result.status, ResponseCode.SYSTEM_ERROR)
    return code, result.reason or result.status.value
