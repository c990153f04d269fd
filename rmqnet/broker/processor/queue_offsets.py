# SPDX-License-Identifier: Apache-2.0
"""Offsets and times of queues.

Source: RocketMQ ``AdminBrokerProcessor`` (release 5.3.3), which answers consumers, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.broker.processor.broker_processor import BrokerProcessor
from rmqnet.remoting.codes import RequestCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import answers
from store_core.queue.readable_queue import LOWER, UPPER

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker


class QueueOffsetProcessor(BrokerProcessor):
    """Answers with starts, ends and offsets by time of queues."""

    pool = "admin"

    @answers(RequestCode.GET_MAX_OFFSET)
    def max_offset(self, request: RemotingCommand) -> RemotingCommand:
        """Return the end of a queue; 0 if it was never written."""
        header = decode_header(GetMaxOffsetRequestHeader, request.ext_fields)
        offset = self._broker.dispatched_store.get_max_offset_in_queue(
            header.topic, header.queue_id
        )
        return request.success(GetMaxOffsetResponseHeader(offset))

    @answers(RequestCode.GET_MIN_OFFSET)
    def min_offset(self, request: RemotingCommand) -> RemotingCommand:
        """Return the start of a queue; if never written 0, or -1 for a batch queue."""
        header = decode_header(GetMinOffsetRequestHeader, request.ext_fields)
        offset = queue_begin(self._broker, header.topic, header.queue_id)
        return request.success(GetMinOffsetResponseHeader(offset))

    @answers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    def search_offset(self, request: RemotingCommand) -> RemotingCommand:
        """Return the offset at a time."""
        header = decode_header(SearchOffsetRequestHeader, request.ext_fields)
        # As in RocketMQ, any other text means the lower boundary.
        boundary = UPPER if (header.boundary_type or "").lower() == UPPER else LOWER
        offset = self._broker.dispatched_store.get_offset_in_queue_by_time(
            header.topic, header.queue_id, header.timestamp, boundary
        )
        return request.success(SearchOffsetResponseHeader(offset))

    @answers(RequestCode.GET_EARLIEST_MSG_STORETIME)
    def earliest_time(self, request: RemotingCommand) -> RemotingCommand:
        """Return the store time of the first message of a queue, ms; -1 without one."""
        header = decode_header(GetEarliestMsgStoretimeRequestHeader, request.ext_fields)
        time_ms = self._broker.store.get_earliest_message_time(header.topic, header.queue_id)
        return request.success(GetEarliestMsgStoretimeResponseHeader(time_ms))


def queue_begin(broker: Broker, topic: str, queue_id: int) -> int:
    """Return the start of a queue as brokers report it: -1 for an empty batch queue."""
    begin = int(broker.store.get_min_offset_in_queue(topic, queue_id))
    config = broker.topics.select(topic)
    if begin or config is None or not config.has_batch_queues:
        return begin
    return begin if broker.store.get_max_offset_in_queue(topic, queue_id) else -1
