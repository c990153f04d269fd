"""Units of queues, for administrators: 321."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqnet.broker.processor.bodies import json_answer
from rmqnet.broker.processor.message_checks import RefusedError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import QueryConsumeQueueRequestHeader

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.broker.processor.admin_broker import AdminHandler
    from rmqnet.remoting.remoting_command import RemotingCommand
    from store_core.queue.readable_queue import ReadableQueue

_MOST_UNITS = 10_000


class AdminQueues:
    """Shows what queues hold."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[RequestCode, AdminHandler]:
        """Return what works on which requests."""
        return {RequestCode.QUERY_CONSUME_QUEUE: self.units}

    def units(self, request: RemotingCommand) -> RemotingCommand:
        """Return units of a queue, and what a group wants of them (321)."""
        header = decode_header(QueryConsumeQueueRequestHeader, request.ext_fields)
        topic, queue_id = header.topic or "", header.queue_id or 0
        with self._broker.store.reading() as store:
            queue = store.queue(topic, queue_id)
            if queue is None:
                remark = f"{queue_id}@{topic} is not exist!"
                raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
            data: dict[str, Any] = {
                "maxQueueIndex": queue.max_offset,
                "minQueueIndex": queue.min_offset,
                "queueData": _units(queue, header.index or 0, header.count or 0),
            }
        if header.consumer_group is not None:
            data.update(self._wanted(header.consumer_group, topic))
        return json_answer(request, data)

    def _wanted(self, group: str, topic: str) -> dict[str, Any]:
        subscription = self._broker.consumers.find_subscription(group, topic)
        if subscription is None:
            return {"filterData": f"{group}@{topic} is not online!"}
        found = self._broker.filters.get(topic, group)
        expression = "null" if found is None else found.data.expression
        return {"filterData": expression, "subscriptionData": subscription.to_json()}


def _units(queue: ReadableQueue, index: int, count: int) -> list[dict[str, int]]:
    """Return up to so many units from an index on; fewer where a file ends."""
    run = None
    if queue.min_offset <= index < queue.max_offset:
        run = queue.units_from(index, min(count, _MOST_UNITS))
    if run is None:
        return []
    return [
        {"physicOffset": offset, "physicSize": size, "tagsCode": code}
        for (_, _, offset, size), code in zip(run.rows(), run.tags_code.tolist())
    ]
