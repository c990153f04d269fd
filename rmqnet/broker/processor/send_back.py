# SPDX-License-Identifier: Apache-2.0
"""Messages that a consumer sends back, for a later retry or as dead letters.

Source: RocketMQ ``AbstractSendMessageProcessor.consumerSendMsgBack`` (release 5.3.3).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from rmqnet.broker.processor.broker_processor import BrokerProcessor
from rmqnet.broker.processor.message_checks import (
    PERM_WRITE,
    UNIT_SUB_FLAG,
    RefusedError,
)
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import ConsumerSendMsgBackRequestHeader
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import answers
from store_core.codec.java_hash_map import hash_map_string
from store_core.layout import PROPERTY_DELAY
from store_core.message import Message
from store_core.results import PutMessageStatus
from store_core.topics import DLQ_PREFIX, ORIGIN_MESSAGE_ID, RETRY_PREFIX, RETRY_TOPIC

if TYPE_CHECKING:
    from store_core.config.config_files import SubscriptionGroupConfig, TopicConfig

_V3_4_9 = 121
_FIRST_LEVEL = 3
_PROPERTY_WAIT = "WAIT"


class SendBackProcessor(BrokerProcessor):
    """Puts messages that a consumer did not finish into its group's retry topic."""

    pool = "send"

    @answers(RequestCode.CONSUMER_SEND_MSG_BACK)
    def process(self, request: RemotingCommand) -> RemotingCommand:
        """Put the message at an offset of the log again."""
        header = decode_header(ConsumerSendMsgBackRequestHeader, request.ext_fields)
        self._send_back(header, request.version)
        return request.success()

    def _send_back(self, header: ConsumerSendMsgBackRequestHeader, version: int) -> None:
        group = self._group(header.group)
        if group.retry_queue_nums <= 0:
            return
        topic = self._retry_topic(header, group)
        message = self._broker.store.look_stored_message(header.offset)
        if message is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}"
            )
        most = group.retry_max_times
        if version >= _V3_4_9 and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        properties = message.properties
        properties.setdefault(RETRY_TOPIC, message.topic)
        properties[_PROPERTY_WAIT] = "false"
        queue_id = random.randrange(group.retry_queue_nums)
        if message.reconsume_times >= most or header.delay_level < 0:
            topic = self._broker.topics.create_in_send_message_back(DLQ_PREFIX + header.group, 1)
            queue_id, level = 0, 0
            self._broker.traffic.died(header.origin_topic or message.topic, header.group)
        else:
            level = header.delay_level or _FIRST_LEVEL + message.reconsume_times
        properties[PROPERTY_DELAY] = str(level)
        properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id or "")
        self._put(message, topic.topic_name, queue_id)
        self._broker.traffic.sent_back_by(properties[RETRY_TOPIC], header.group)

    def _group(self, name: str) -> SubscriptionGroupConfig:
        group = self._broker.groups.find(name)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        if not self._broker.config.broker_permission & PERM_WRITE:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker.config.broker_ip1}] sending message is forbidden",
            )
        return group

    def _retry_topic(
        self, header: ConsumerSendMsgBackRequestHeader, group: SubscriptionGroupConfig
    ) -> TopicConfig:
        topic = self._broker.topics.create_in_send_message_back(
            RETRY_PREFIX + header.group,
            group.retry_queue_nums,
            sys_flag=UNIT_SUB_FLAG if header.unit_mode else 0,
        )
        if not topic.perm & PERM_WRITE:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic.topic_name}] sending message is forbidden",
            )
        return topic

    def _put(self, message: Message, topic: str, queue_id: int) -> None:
        again = Message(
            topic,
            message.body,  # as stored, still compressed if it was
            queue_id=queue_id,
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times + 1,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            properties_raw=hash_map_string(message.properties),
        )
        result = self._broker.store.put_message(again)
        if result.status is not PutMessageStatus.PUT_OK:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, result.status.value)
