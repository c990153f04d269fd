# SPDX-License-Identifier: Apache-2.0
"""Sending messages that could not be consumed back to the broker for a later retry.

Source: RocketMQ ``DefaultMQPushConsumerImpl.sendMessageBack``,
``ConsumeMessageOrderlyService.sendMessageBack`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING

from rmqnet.client.heartbeat_data import CLIENT_INNER_PRODUCER
from rmqnet.client.route_table import AUTO_CREATE_TOPIC
from rmqnet.client.topic_route import MASTER_ID
from rmqnet.errors import BrokerError, ClientError, RemotingError
from rmqnet.remoting.headers import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from store_core.codec.compression import deflate
from store_core.codec.message_codec import properties_to_bytes
from store_core.layout import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    PROPERTY_DELAY,
    PROPERTY_TRANSACTION_PREPARED,
)
from store_core.topics import ORIGIN_MESSAGE_ID, RETRY_PREFIX, RETRY_TOPIC

if TYPE_CHECKING:
    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.consumer.group_brokers import GroupBrokers
    from rmqnet.client.message_queue import MessageQueue
    from store_core.message import Message

logger = logging.getLogger(__name__)

_BACK_TIMEOUT_S = 5.0
_ATTEMPTS = 3
_DEFAULT_QUEUES = 4
_FIRST_RETRY_LEVEL = 3
_RECONSUME_TIME, _MAX_RECONSUME_TIMES = "RECONSUME_TIME", "MAX_RECONSUME_TIMES"


class RetrySender:
    """Sends messages to the group's retry topic; its coroutines run in the event loop."""

    def __init__(
        self, client: ClientInstance, brokers: GroupBrokers, max_reconsume_times: int
    ) -> None:
        self._client = client
        self._brokers = brokers
        self._max_reconsume_times = max_reconsume_times
        self._retry_topic = RETRY_PREFIX + brokers.group

    async def send_back(self, message: Message, delay_level: int, queue: MessageQueue) -> bool:
        """Have the message's broker redeliver it; if that fails, send it as a new message.

        A message of an inner batch is always sent as a new one, because brokers know only the whole
        batch and refuse.

        Parameters
        ----------
        delay_level
            The broker's delay level; 0 lets the broker choose, -1 sends it to the dead letters.
        """
        if message.sys_flag & INNER_BATCH_FLAG:
            return await self.send_anew(message, delay_level)
        try:
            await self._to_its_broker(message, delay_level, queue)
        except (RemotingError, BrokerError, ClientError) as err:
            self._client.outages.report(
                logger,
                err,
                "the broker does not take back offset %d of %s; sending it again: %s",
                message.queue_offset,
                queue,
                err,
            )
            return await self.send_anew(message, delay_level)
        return True

    async def send_anew(self, message: Message, delay_level: int = 0) -> bool:
        """Send a copy to the retry topic; False if no broker accepts it.

        Parameters
        ----------
        delay_level
            As in `send_back`; 0 means a delay that grows with each retry.
        """
        try:
            await self._as_new_message(message, delay_level)
        except (RemotingError, BrokerError, ClientError) as err:
            self._client.outages.report(
                logger,
                err,
                "offset %d of topic %s cannot be sent to %s: %s",
                message.queue_offset,
                message.topic,
                self._retry_topic,
                err,
            )
            return False
        except Exception:  # a message that the listener has changed must not stop the queue
            logger.exception(
                "offset %d of topic %s cannot be sent to %s",
                message.queue_offset,
                message.topic,
                self._retry_topic,
            )
            return False
        return True

    async def _to_its_broker(self, message: Message, delay_level: int, queue: MessageQueue) -> None:
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.commit_log_offset,
            group=self._brokers.group,
            delay_level=delay_level,
            origin_msg_id=message.unique_key or message.message_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=self._max_reconsume_times,
            bname=queue.broker_name,
        )
        address = (await self._brokers.find(queue)).address
        await self._client.broker.send_message_back(address, header, timeout_s=_BACK_TIMEOUT_S)

    async def _as_new_message(self, message: Message, delay_level: int) -> None:
        route = await self._client.route(self._retry_topic)
        queues = route.publish_queues()
        if not queues:
            raise ClientError(f"no broker takes messages of topic {self._retry_topic} at present")
        random.shuffle(queues)
        for attempt in range(_ATTEMPTS):
            queue = queues[attempt % len(queues)]
            address = route.brokers[queue.broker_name][MASTER_ID]
            try:
                await self._client.broker.send_message(
                    address,
                    *self._request(message, queue, delay_level),
                    message_id=message.unique_key or "",
                )
            except (RemotingError, BrokerError):
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _request(
        self, message: Message, queue: MessageQueue, delay_level: int
    ) -> tuple[SendMessageRequestHeaderV2, bytes]:
        reconsume_times = message.reconsume_times + 1
        if delay_level < 0:  # makes the broker count too many retries
            reconsume_times = max(reconsume_times, self._max_reconsume_times + 1)
        body, sys_flag = message.body, 0
        if message.sys_flag & COMPRESSED_FLAG:
            sys_flag = COMPRESSED_FLAG  # zlib, which every release supports
            body = deflate(body, sys_flag)
        header = SendMessageRequestHeaderV2(
            producer_group=CLIENT_INNER_PRODUCER,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=_DEFAULT_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=message.flag,
            properties=properties_to_bytes(self._properties(message, delay_level).items()).decode(),
            reconsume_times=reconsume_times,
            unit_mode=False,
            batch=False,
            max_reconsume_times=self._max_reconsume_times,
            bname=queue.broker_name,
        )
        return header, body

    def _properties(self, message: Message, delay_level: int) -> dict[str, str]:
        properties = {
            ORIGIN_MESSAGE_ID: message.unique_key or message.message_id or "",
            **message.properties,
            RETRY_TOPIC: message.topic,
            _RECONSUME_TIME: str(message.reconsume_times + 1),
            _MAX_RECONSUME_TIMES: str(self._max_reconsume_times),
            PROPERTY_DELAY: str(
                delay_level if delay_level > 0 else _FIRST_RETRY_LEVEL + message.reconsume_times
            ),
        }
        properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
        return properties
