"""Headers of send requests: what is the same for each message of a queue is made once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rmqnet.remoting.header_fields import encode_header
from rmqnet.remoting.headers import SendMessageRequestHeaderV2

if TYPE_CHECKING:
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.producer.outgoing_message import OutgoingMessage

_MOST_QUEUES = 10_000

_NAMES = {
    field.name: str(field.metadata["short_name"])
    for field in dataclasses.fields(SendMessageRequestHeaderV2)
}
_SYS_FLAG = _NAMES["sys_flag"]
_BORN_TIMESTAMP = _NAMES["born_timestamp"]
_FLAG = _NAMES["flag"]
_PROPERTIES = _NAMES["properties"]
_RECONSUME_TIMES = _NAMES["reconsume_times"]
_MAX_RECONSUME_TIMES = _NAMES["max_reconsume_times"]
_BATCH = _NAMES["batch"]


class SendHeaders:
    """Makes the fields of ``SendMessageRequestHeaderV2``. Not thread-safe.

    Parameters
    ----------
    group
        Of the producer.
    default_topic
        Whose queues a broker copies for a topic that it creates (``createTopicKey``).
    default_topic_queue_nums
        How many queues such a topic has at most.
    """

    def __init__(self, group: str, default_topic: str, default_topic_queue_nums: int) -> None:
        self._group = group
        self._default_topic = default_topic
        self._default_topic_queue_nums = default_topic_queue_nums
        self._same: dict[MessageQueue, dict[str, str]] = {}

    def fields(
        self, message: OutgoingMessage, queue: MessageQueue, born_timestamp: int
    ) -> dict[str, str]:
        """Return the fields as they travel; the time is in milliseconds since the epoch."""
        fields = dict(self._same.get(queue) or self._make_same(queue))
        fields[_BORN_TIMESTAMP] = str(born_timestamp)
        fields[_PROPERTIES] = message.properties
        if message.flag:
            fields[_FLAG] = str(message.flag)
        if message.sys_flag:
            fields[_SYS_FLAG] = str(message.sys_flag)
        if message.batch:
            fields[_BATCH] = "true"
        if message.reconsume_times:
            fields[_RECONSUME_TIMES] = str(message.reconsume_times)
        if message.max_reconsume_times is not None:
            fields[_MAX_RECONSUME_TIMES] = str(message.max_reconsume_times)
        return fields

    def _make_same(self, queue: MessageQueue) -> dict[str, str]:
        if len(self._same) >= _MOST_QUEUES:  # of topics long out of use
            self._same.clear()
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=queue.topic,
            default_topic=self._default_topic,
            default_topic_queue_nums=self._default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            properties="",
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            bname=queue.broker_name,
        )
        same = self._same[queue] = encode_header(header)
        return same
