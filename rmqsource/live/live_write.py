# SPDX-License-Identifier: Apache-2.0
"""Write to a cluster without Spark: send the rows of a partition to brokers, at least once."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from rmqnet.client.route_table import AUTO_CREATE_TOPIC
from rmqnet.client.send_result import SendStatus
from rmqnet.errors import BrokerError, ClientError, TopicNotFoundError
from rmqnet.remoting.codes import RequestCode
from rmqnet.remoting.headers import SendMessageRequestHeaderV2
from rmqsource.live.cluster import Cluster
from rmqsource.live.duplicates import repeat_values
from rmqsource.live.errors import ClusterError
from rmqsource.live.send_batches import (
    requests_of,
    too_long,
    with_repeat_property,
    without_transaction,
)
from rmqsource.sink.bad_rows import Check
from rmqsource.sink.local_host import message_ids, now_ms
from rmqsource.sink.queues import QueueChooser
from rmqsource.sink.rows import RowConverter
from rmqsource.sink.write_plan import SinkPlan
from store_core.arrow import pa
from store_core.config.message_store_config import MessageStoreConfig
from store_core.layout import MAX_PROPERTIES_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Future

    import numpy.typing as npt

    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.send_result import SendResult
    from rmqsource.live.live_options import LiveSinkOptions
    from rmqsource.live.send_batches import SendRequest
    from rmqsource.sink.columns import SinkColumns
    from rmqsource.sink.rows import RecordRows
    from store_core.arrow_types import Array, RecordBatch

    Int32s = npt.NDArray[np.int32]
    QueuesOf = Callable[[str], Sequence[MessageQueue]]

logger = logging.getLogger(__name__)
_SLICE_BYTES = 8 << 20
_NO_HOST = bytes(8)
_ANY_RECORD_BYTES = 1 << 30
NEW_TOPIC_QUEUES = 4
"""Queues that a producer requests for a topic that does not exist (``defaultTopicQueueNums``)."""


@dataclass(frozen=True)
class LiveWritePlan:
    """The plan of one write; plain values only, so that it can be pickled."""

    options: LiveSinkOptions
    rows: SinkPlan
    job: str


class Sent(NamedTuple):
    """How many messages a task sent, and how many rows it dropped, by the column at fault."""

    messages: int
    dropped: tuple[tuple[str, int], ...] = ()


def plan_live_write(options: LiveSinkOptions, columns: SinkColumns) -> LiveWritePlan:
    """Return the plan of one write without contacting a server."""
    levels = MessageStoreConfig(store_path_root_dir="").delay_levels_ms
    rows = SinkPlan(
        options.sink,
        columns,
        "",
        store_host=_NO_HOST,
        segment_bytes=_ANY_RECORD_BYTES,
        delay_levels_ms=tuple(levels),
        by_broker=True,
    )
    return LiveWritePlan(options, rows, uuid.uuid4().hex)


def send_part(
    batches: Iterable[RecordBatch], plan: LiveWritePlan, partition_id: int, prefix: str
) -> Sent:
    """Send the rows of a partition; all are stored when it returns.

    Raises
    ------
    SinkRowError
        A row cannot be a message, and ``badRows`` is ``fail``.
    ClusterError
        A broker did not answer within ``retryTimeout``, or refused a request.
    """
    with Cluster(plan.options.connection) as cluster:
        task = _Task(plan, LiveSender(cluster, plan.options.group), partition_id, prefix)
        for batch in _slices(batches):
            task.send(batch)
        return task.finish()


class _Task:
    """Converts and sends the batches of one partition."""

    def __init__(
        self, plan: LiveWritePlan, sender: LiveSender, partition_id: int, prefix: str
    ) -> None:
        self._sender, self._prefix = sender, prefix
        self._most_bytes = plan.options.send_batch_bytes
        chooser = LiveQueueChooser(sender.queues_of, partition_id)
        self._converter = RowConverter(plan.rows, partition_id, message_ids(), now_ms, chooser)
        self._first_row = 0
        self._messages = 0

    def send(self, batch: RecordBatch) -> None:
        rows = self._converter.convert(batch)
        if rows is not None:
            rows = self._sendable(rows)
        if rows is not None:
            self._messages += rows.batch.num_rows
            self._sender.send(list(requests_of(rows, self._most_bytes)))

    def finish(self) -> Sent:
        self._sender.finish()
        return Sent(self._messages, tuple(sorted(self._converter.bad_rows.dropped.items())))

    def _sendable(self, rows: RecordRows) -> RecordRows | None:
        """Return the rows with all properties, except rows that cannot be sent."""
        batch = rows.batch
        values = repeat_values(self._prefix, self._first_row, batch.num_rows)
        self._first_row += batch.num_rows
        properties = without_transaction(batch.column("properties_raw"))
        properties = with_repeat_property(properties, values)
        at = batch.schema.get_field_index("properties_raw")
        rows = rows._replace(
            batch=batch.set_column(at, pa.field("properties_raw", pa.binary()), properties)
        )
        good = self._converter.bad_rows.good_rows(self._checks(rows), batch)
        if good is None:
            return rows
        return rows.filter(good) if good.any() else None

    def _checks(self, rows: RecordRows) -> Iterator[Check]:
        counts = [len(self._sender.queues_of(topic)) for topic in rows.topics]
        most = pa.array(counts).take(pa.array(rows.topic_code)).to_numpy()
        yield Check(
            "queue_id",
            rows.queue_id >= most,
            lambda row: f"is not a writable queue of topic {rows.topics[rows.topic_code[row]]!r}",
        )
        yield Check(
            "properties",
            too_long(rows.batch.column("properties_raw")),
            lambda _: f"with __SPARK_BATCH__ have more than {MAX_PROPERTIES_BYTES} bytes",
        )


def _slices(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield batches of bounded size, so that one is encoded while the previous one is sent."""
    for batch in batches:
        parts = max(-(-batch.nbytes // _SLICE_BYTES), 1)
        step = max(-(-batch.num_rows // parts), 1)
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


class LiveQueueChooser(QueueChooser):
    """Assigns every row the number of its queue among all queues of its topic.

    Rows without a queue id go by the hash of their sharding key, as in Java's producers, or round
    robin. If several brokers have a queue id, its remainder chooses one, so that rows of one queue
    id stay in order; an id that no broker has gets the number after the last.
    """

    def __init__(self, queues: QueuesOf, first: int) -> None:
        super().__init__(None, {}, first)
        self._all = queues

    def queues_of(self, topic: str) -> int:
        """Return the number of queues of a topic on all brokers."""
        return len(self._all(topic))

    def choose(
        self,
        topics: Sequence[str],
        topic_code: Int32s,
        queue_id: Array | None,
        sharding_key: Array | None,
    ) -> Int32s:
        """Return the number of every row's queue; parameters as in `QueueChooser.choose`."""
        if queue_id is not None:
            numbers = queue_id.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            for code, topic in enumerate(topics):
                rows = np.flatnonzero((topic_code == code) & (numbers >= 0))
                numbers[rows] = self._numbered(topic, numbers[rows])
            queue_id = pa.array(numbers)
        return super().choose(topics, topic_code, queue_id, sharding_key)

    def _numbered(self, topic: str, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        queues = self._all(topic)
        by_id: dict[int, list[int]] = {}
        for number, queue in enumerate(queues):
            by_id.setdefault(queue.queue_id, []).append(number)
        table = np.full(max(by_id, default=0) + 2, len(queues), np.int64)
        for queue_id, numbers in by_id.items():
            table[queue_id] = numbers[queue_id % len(numbers)]
        return table[np.minimum(ids, len(table) - 1)]


class LiveSender:
    """Sends the requests of one task."""

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
            The topic does not exist and brokers do not create it, or none of its queues is
            writable.
        """
        if topic not in self._queues:
            self._queues[topic] = self._cluster.call(self._publish_queues(topic))
        return self._queues[topic]

    def send(self, requests: Iterable[SendRequest]) -> None:
        """Wait until the previous requests are stored, then start sending these.

        Raises
        ------
        ClusterError
            A broker did not answer within ``retryTimeout``, or refused a request.
        """
        by_queue: dict[tuple[str, int], list[SendRequest]] = {}
        for request in requests:
            by_queue.setdefault((request.topic, request.queue_number), []).append(request)
        self.finish()
        self._sending = self._cluster.thread.submit(self._send_all(list(by_queue.values())))

    def finish(self) -> None:
        """Wait until all requests are stored; raises like `send`."""
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
                    # Name servers forget topics with their last broker, which may come back.
                    raise ClientError(f"{err}. No broker is available at present") from err
            return await self._publish_queues_now(topic)  # it may have been created in between

        queues = await self._cluster.patiently(f"route of topic {topic!r}", topic, ask)
        if not queues:
            raise ClientError(f"topic {topic!r} has no writable queue, or no broker with a master")
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
        """Send the requests of one queue, each after the previous one is stored."""
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
