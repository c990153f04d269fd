"""Send requests to brokers: in order within a queue, queues side by side, patiently."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from rmqnet.client.route_table import AUTO_CREATE_TOPIC
from rmqnet.client.send_result import SendStatus
from rmqnet.errors import BrokerError, ClientError, TopicNotFoundError
from rmqnet.remoting.codes import RequestCode
from rmqnet.remoting.headers import SendMessageRequestHeaderV2
from rmqsource.live.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future

    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.send_result import SendResult
    from rmqsource.live.cluster import Cluster
    from rmqsource.live.send_batches import SendRequest

logger = logging.getLogger(__name__)

NEW_TOPIC_QUEUES = 4
"""As a producer asks for a topic that does not exist (``defaultTopicQueueNums``)."""


class LiveSender:
    """Sends for one task.

    Parameters
    ----------
    cluster
        Open.
    group
        Names the producer to the brokers.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster, self._group = cluster, group
        self._queues: dict[str, Sequence[MessageQueue]] = {}
        self._sending: Future[None] | None = None
        self._told: set[SendStatus] = set()

    def queues_of(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues of a topic; they stay the same for the whole task.

        Raises
        ------
        ClusterError
            There is no such topic, and brokers make none; or none of its queues can be written.
        """
        if topic not in self._queues:
            self._queues[topic] = self._cluster.call(self._publish_queues(topic))
        return self._queues[topic]

    def send(self, requests: Iterable[SendRequest]) -> None:
        """Send requests after those before them; returns when those before are stored.

        Raises
        ------
        ClusterError
            A broker did not answer within ``retryTimeout``, or refuses.
        """
        by_queue: dict[tuple[str, int], list[SendRequest]] = {}
        for request in requests:
            by_queue.setdefault((request.topic, request.queue_number), []).append(request)
        self.finish()
        self._sending = self._cluster.thread.submit(self._send_all(list(by_queue.values())))

    def finish(self) -> None:
        """Wait until everything is stored; raises as `send`."""
        sending, self._sending = self._sending, None
        if sending is not None:
            self._cluster.wait_for(sending)

    async def _publish_queues(self, topic: str) -> Sequence[MessageQueue]:
        async def ask() -> Sequence[MessageQueue]:
            try:
                return await self._publish_queues_now(topic)
            except TopicNotFoundError as err:
                info = await self._cluster.name_servers.cluster_info()
                if not info.brokers:
                    # Name servers forget topics with their last broker, which may come again.
                    raise ClientError(f"{err}. There is no broker at present") from err
            return await self._publish_queues_now(topic)  # it may have come in between

        queues = await self._cluster.patiently(f"route of topic {topic!r}", topic, ask)
        if not queues:
            raise ClientError(
                f"topic {topic!r} has no queue that may be written, or no broker with a master"
            )
        return queues

    async def _publish_queues_now(self, topic: str) -> Sequence[MessageQueue]:
        routes = self._cluster.routes
        route = await routes.publish_route(topic, NEW_TOPIC_QUEUES, AUTO_CREATE_TOPIC)
        return route.publish_queues()

    async def _send_all(self, lanes: list[list[SendRequest]]) -> None:
        tasks = [asyncio.ensure_future(self._send_lane(lane)) for lane in lanes]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _send_lane(self, requests: list[SendRequest]) -> None:
        """Send the requests of one queue, the next when the one before is stored."""
        for request in requests:
            queue = self._queues[request.topic][request.queue_number]
            await self._send(queue, request)

    async def _send(self, queue: MessageQueue, request: SendRequest) -> None:
        header = self._header(queue, request)
        code = RequestCode.SEND_BATCH_MESSAGE if header.batch else RequestCode.SEND_MESSAGE_V2
        cluster = self._cluster

        async def attempt() -> SendResult:
            address = cluster.routes.find_broker(queue.broker_name).address
            return await cluster.brokers.send_message(
                address, header, request.body, message_id="", code=code
            )

        try:
            result = await cluster.patiently(str(queue), queue.topic, attempt)
        except BrokerError as err:
            raise ClusterError(
                err.address,
                f"{request.messages} messages for queue {queue.queue_id} of topic "
                f"{queue.topic!r} were refused with code {err.code}: {err.remark}",
            ) from err
        if result.status is not SendStatus.SEND_OK and result.status not in self._told:
            self._told.add(result.status)
            logger.warning("%s: messages are stored, but %s", queue, result.status.value)

    def _header(self, queue: MessageQueue, request: SendRequest) -> SendMessageRequestHeaderV2:
        properties = request.properties
        return SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=NEW_TOPIC_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            flag=request.flag,
            properties="" if properties is None else properties.decode("utf-8", "replace"),
            reconsume_times=request.reconsume_times,
            unit_mode=False,
            batch=properties is None,
            bname=queue.broker_name,
        )
