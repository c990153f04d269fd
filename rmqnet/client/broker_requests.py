# SPDX-License-Identifier: Apache-2.0
"""Handlers of the requests that brokers send to a client.

Source: RocketMQ ``ClientRemotingProcessor`` (releases 5.3.3 and 4.9.7).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING, Any, Callable

from rmqnet.client.queue_json import queue_from_json, queue_table, to_queue_json
from rmqnet.client.received_messages import messages_from_body
from rmqnet.errors import RemotingFormatError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    CheckTransactionStateRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ReplyMessageRequestHeader,
    ResetOffsetRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import RequestProcessor, answers
from store_core.codec.compression import inflate
from store_core.codec.message_codec import string_to_properties
from store_core.config.lenient_json import json_object, parse_lenient_json
from store_core.layout import COMPRESSED_FLAG
from store_core.message import Message
from store_core.topics import PRODUCER_GROUP

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from rmqnet.client.heartbeats import Heartbeats
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.remoting.remoting_client import RemotingClient

logger = logging.getLogger(__name__)

_ARRIVE_TIME = "ARRIVE_TIME"


class BrokerRequests(RequestProcessor):
    """Answers brokers' requests; work that may block runs in a thread pool.

    Parameters
    ----------
    pool
        Returns the thread pool; first called when a thread is needed.
    """

    def __init__(self, groups: Heartbeats, pool: Callable[[], Executor]) -> None:
        self._groups = groups
        self._pool = pool

    def register(self, remoting: RemotingClient) -> None:
        """Start handling the requests of brokers."""
        for code, handler in self.handlers().items():
            remoting.register_processor(code, handler)

    @answers(RequestCode.CHECK_TRANSACTION_STATE, with_peer=True)
    async def _check_transaction(self, address: str, request: RemotingCommand) -> None:
        header = decode_header(CheckTransactionStateRequestHeader, request.ext_fields)
        message = _message_of(request, address)
        group = message.properties.get(PRODUCER_GROUP)
        producer = self._groups.producers.get(group or "")
        if producer is None:
            logger.warning(
                "%s asks about a transaction of group %s, which has no transaction producer here",
                address,
                group,
            )
        else:
            await self._in_pool(producer.check_transaction, message, header, address)

    @answers(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, with_peer=True)
    async def _ids_changed(self, address: str, request: RemotingCommand) -> None:
        header = decode_header(NotifyConsumerIdsChangedRequestHeader, request.ext_fields)
        logger.info("%s: the members of group %s changed", address, header.consumer_group)
        consumer = self._groups.consumers.get(header.consumer_group)
        if consumer is not None:
            consumer.on_consumer_ids_changed()

    @answers(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, with_peer=True)
    async def _reset_offsets(self, address: str, request: RemotingCommand) -> None:
        header = decode_header(ResetOffsetRequestHeader, request.ext_fields)
        consumer = self._groups.consumers.get(header.group)
        if consumer is None:
            logger.warning(
                "%s resets offsets of group %s, which has no consumer here", address, header.group
            )
            return
        offsets = _offsets_of(request, address)
        await self._in_pool(consumer.reset_offsets, header.topic, offsets)

    @answers(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
    async def _consumer_status(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(GetConsumerStatusRequestHeader, request.ext_fields)
        consumer = self._groups.consumers.get(header.group)
        if consumer is None:
            return request.success(body=b'{"messageQueueTable":{}}')
        offsets = await self._in_pool(consumer.consumer_offsets, header.topic)
        return request.success(body=to_queue_json({"messageQueueTable": offsets}).encode())

    @answers(RequestCode.GET_CONSUMER_RUNNING_INFO)
    async def _running_info(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(GetConsumerRunningInfoRequestHeader, request.ext_fields)
        consumer = self._groups.consumers.get(header.consumer_group)
        if consumer is None:
            return _not_here(request, header.consumer_group)
        info = await self._in_pool(consumer.running_info)
        return request.success(body=to_queue_json(info).encode())

    @answers(RequestCode.CONSUME_MESSAGE_DIRECTLY, with_peer=True)
    async def _consume_directly(self, address: str, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(ConsumeMessageDirectlyResultRequestHeader, request.ext_fields)
        consumer = self._groups.consumers.get(header.consumer_group)
        if consumer is None:
            return _not_here(request, header.consumer_group)
        message = _message_of(request, address)
        broker_name = header.broker_name or ""
        result = await self._in_pool(consumer.consume_directly, message, broker_name)
        return request.success(body=json.dumps(result).encode())

    @answers(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, with_peer=True)
    async def _reply(self, address: str, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(ReplyMessageRequestHeader, request.ext_fields)
        message = _reply_message(header, request.body)
        # Not in the pool: listeners there may take long or wait for this reply.
        if not any(producer.on_reply(message) for producer in self._groups.producers.values()):
            logger.warning("%s sent a reply that no request waits for", address)
        return request.success()

    async def _in_pool(self, function: Callable[..., Any], *args: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool(), function, *args)


def _message_of(request: RemotingCommand, address: str) -> Message:
    messages = messages_from_body(request.body, address)
    if len(messages) != 1:
        raise RemotingFormatError(
            f"{address}: its request contains {len(messages)} messages, not one"
        )
    return messages[0]


def _offsets_of(request: RemotingCommand, address: str) -> dict[MessageQueue, int]:
    if not request.body:
        return {}
    data = json_object(parse_lenient_json(request.body.decode()), f"offsets from {address}")
    table = data.get("offsetTable")
    if isinstance(table, list):  # sent by C++ administration tools
        return {queue_from_json(each): int(each["offset"]) for each in table}
    return {queue: int(offset) for queue, offset in queue_table(data, "offsetTable").items()}


def _reply_message(header: ReplyMessageRequestHeader, body: bytes) -> Message:
    if header.sys_flag & COMPRESSED_FLAG:
        body = inflate(body, header.sys_flag)
    properties = string_to_properties((header.properties or "").encode())
    properties[_ARRIVE_TIME] = str(int(time.time() * 1000))
    return Message(
        header.topic,
        body,
        properties=properties,
        queue_id=header.queue_id,
        flag=header.flag,
        sys_flag=header.sys_flag,
        reconsume_times=header.reconsume_times or 0,
        born_timestamp=header.born_timestamp,
        store_timestamp=header.store_timestamp,
        born_host=header.born_host,
        store_host=header.store_host,
    )


def _not_here(request: RemotingCommand, group: str) -> RemotingCommand:
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    return request.refusal(ResponseCode.SYSTEM_ERROR, remark)
