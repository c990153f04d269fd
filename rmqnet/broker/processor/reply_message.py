# SPDX-License-Identifier: Apache-2.0
"""Replies to requests between clients, delivered to the requester.

Source: RocketMQ ``ReplyMessageProcessor`` (release 5.3.3).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from rmqnet.broker.processor.broker_processor import REPLIES, BrokerProcessor
from rmqnet.broker.processor.message_checks import sendable_topic
from rmqnet.broker.processor.send_message import send_header
from rmqnet.errors import RemotingError
from rmqnet.remoting.codes import ResponseCode
from rmqnet.remoting.headers import ReplyMessageRequestHeader, SendMessageResponseHeader
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import answers
from store_core.codec.java_hash_map import hash_map_string
from store_core.codec.message_codec import string_to_properties
from store_core.message import Message

if TYPE_CHECKING:
    from rmqnet.remoting.headers import SendMessageRequestHeader
    from rmqnet.remoting.server_connection import ServerConnection

PROPERTY_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
_PROPERTY_PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
_ANSWER_S = 10.0


class ReplyMessageProcessor(BrokerProcessor):
    """Delivers replies to the clients that wait for them, then stores them."""

    pool = "reply"

    @answers(*REPLIES, with_peer=True)
    def process(self, connection: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        """Deliver the reply, and answer whether it arrived."""
        header = send_header(request)
        topic = sendable_topic(self._broker, header, connection.address)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = random.randrange(max(topic.write_queue_nums, 1))
        fault = self._push(connection, header, request.body)
        self._store(connection, header, queue_id, request.body)
        if fault:
            return request.refusal(ResponseCode.SYSTEM_ERROR, fault)
        config = self._broker.config
        # Placeholder ids, which clients require.
        answer = SendMessageResponseHeader(
            "0", queue_id, 0, msg_region=config.region_id, trace_on=config.trace_on
        )
        return request.success(answer)

    def _push(
        self, connection: ServerConnection, header: SendMessageRequestHeader, body: bytes
    ) -> str:
        """Deliver the reply; return why it did not arrive, empty if it did."""
        properties = string_to_properties((header.properties or "").encode("utf-8", "replace"))
        asker = properties.get(PROPERTY_REPLY_TO_CLIENT)
        if asker is None:
            return f"reply message properties[{PROPERTY_REPLY_TO_CLIENT}] is null"
        channel = self._broker.producers.find_channel(asker)
        if channel is None:
            return f"push reply message fail, channel of <{asker}> not found."
        now = self._broker.clock()
        properties[_PROPERTY_PUSH_REPLY_TIME] = str(now)
        config = self._broker.config
        push = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=connection.address,
            store_host=f"{config.broker_ip1}:{config.listen_port}",
            store_timestamp=now,
            properties=hash_map_string(properties).decode("utf-8", "replace"),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )
        command = RemotingCommand.request(push, body)
        try:
            answer = self._broker.server.ask(channel, command, _ANSWER_S)
        except RemotingError as err:
            return f"push reply message to {asker} fail: {err}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {asker} fail: {answer.remark}"
        return ""

    def _store(
        self,
        connection: ServerConnection,
        header: SendMessageRequestHeader,
        queue_id: int,
        body: bytes,
    ) -> None:
        if not self._broker.config.store_reply_message_enable:
            return
        message = Message(
            header.topic,
            body,
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag,
            reconsume_times=header.reconsume_times or 0,
            born_timestamp=header.born_timestamp,
            born_host=connection.address,
            properties_raw=(header.properties or "").encode("utf-8", "replace"),
        )
        self._broker.store.put_message(message)
