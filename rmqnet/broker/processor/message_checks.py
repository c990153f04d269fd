# SPDX-License-Identifier: Apache-2.0
"""Checks of a broker before it accepts a client's message.

Source: RocketMQ ``AbstractSendMessageProcessor.msgCheck``, ``TopicValidator`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.client.names import check_topic_name
from rmqnet.errors import ClientError
from rmqnet.remoting.codes import ResponseCode
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.message_store import MessageStore
from store_core.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.remoting.headers import SendMessageRequestHeader
    from store_core.config.config_files import TopicConfig

PERM_WRITE = 2
PERM_READ = 4
UNIT_FLAG, UNIT_SUB_FLAG = 1, 2


class RefusedError(Exception):
    """A request that a broker refuses."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark

    def answer_to(self, request: RemotingCommand) -> RemotingCommand:
        """Return the answer that refuses a request."""
        return request.refusal(self.code, self.remark)


def open_store(broker: Broker) -> MessageStore:
    """Return the broker's store; raise RefusedError if it is only read.

    For requests that change the store, or need more than its queries.
    """
    store = broker.store
    if not isinstance(store, MessageStore):
        raise RefusedError(ResponseCode.NO_PERMISSION, "this broker only reads its store")
    return store


def sendable_topic(broker: Broker, header: SendMessageRequestHeader, peer: str) -> TopicConfig:
    """Return the topic of a message, created if allowed, after checking that it may be sent.

    Raises
    ------
    RefusedError
        The message may not be sent; the remark says why.
    """
    topic = header.topic
    if not broker.config.broker_permission & PERM_WRITE and broker.topics.is_order_topic(topic):
        raise RefusedError(
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.config.broker_ip1}] sending message is forbidden",
        )
    try:
        check_topic_name(topic)
    except ClientError as err:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, str(err)) from err
    if not broker.topics.is_sending_allowed(topic):
        raise RefusedError(
            ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
        )
    config = broker.topics.select(topic) or _created_topic(broker, header, peer)
    queues = max(config.write_queue_nums, config.read_queue_nums)
    if header.queue_id >= queues:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{header.queue_id}] is illegal: topic {topic} has {queues} queues. "
            f"Producer: {peer}",
        )
    return config


def _created_topic(broker: Broker, header: SendMessageRequestHeader, peer: str) -> TopicConfig:
    topic, is_retry = header.topic, header.topic.startswith(RETRY_PREFIX)
    sys_flag = 0
    if header.unit_mode:
        sys_flag = UNIT_SUB_FLAG if is_retry else UNIT_FLAG
    config = broker.topics.create_in_send_message(
        topic, header.default_topic, peer, header.default_topic_queue_nums, sys_flag
    )
    if config is None and is_retry:
        config = broker.topics.create_in_send_message_back(topic, 1, sys_flag=sys_flag)
    if config is None:
        raise RefusedError(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
        )
    return config
