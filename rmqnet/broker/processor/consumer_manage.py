# SPDX-License-Identifier: Apache-2.0
"""Offsets, members and locks of consumer groups: 14, 15, 38, 41, 42.

Source: RocketMQ ``ConsumerManageProcessor``, ``AdminBrokerProcessor.lockBatchMQ`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqnet.broker.processor.bodies import body_of, json_answer
from rmqnet.broker.processor.broker_processor import BrokerProcessor
from rmqnet.broker.state.consumer_offset_manager import NO_OFFSET
from rmqnet.client.queue_json import queue_from_json, queue_json
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.config_ranges import check_int
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    GetConsumerListByGroupRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import answers

if TYPE_CHECKING:
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.remoting.server_connection import ServerConnection


class ConsumerManageProcessor(BrokerProcessor):
    """Answers the members of consumer groups."""

    pool = "client"

    @answers(RequestCode.QUERY_CONSUMER_OFFSET)
    def query_consumer_offset(self, request: RemotingCommand) -> RemotingCommand:
        """Return a group's next offset in a queue (14)."""
        header = decode_header(QueryConsumerOffsetRequestHeader, request.ext_fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offset = self._broker.offsets.query(group, topic, queue_id)
        if offset == NO_OFFSET:
            if header.set_zero_if_not_found is False:
                remark = "Not found, do not set to zero, maybe this group boot first"
                return request.refusal(ResponseCode.QUERY_NOT_FOUND, remark)
            if not self._has_first_message(topic, queue_id):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                return request.refusal(ResponseCode.QUERY_NOT_FOUND, remark)
            offset = 0
        return request.success(QueryConsumerOffsetResponseHeader(offset))

    @answers(RequestCode.UPDATE_CONSUMER_OFFSET, with_peer=True)
    def update_consumer_offset(
        self, connection: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Record a group's next offset in a queue (15)."""
        header = decode_header(UpdateConsumerOffsetRequestHeader, request.ext_fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        broker = self._broker
        if queue_id < 0:
            remark = f"queueId[{queue_id}] is illegal, topic:[{topic}]"
            return request.refusal(ResponseCode.INVALID_PARAMETER, remark)
        if broker.groups.get(group) is None:
            remark = f"Group {group} not exist!"
            return request.refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if broker.topics.select(topic) is None:
            return request.refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if broker.config.use_server_side_reset_offset and broker.offsets.has_reset(
            group, topic, queue_id
        ):
            remark = "Offset has been previously reset"
            return RemotingCommand.response_to(request, ResponseCode.SUCCESS, remark)
        address = connection.address
        broker.offsets.commit(group, topic, queue_id, header.commit_offset, address)
        return request.success()

    @answers(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    def consumer_list(self, request: RemotingCommand) -> RemotingCommand:
        """Return the ids of a group's members (38)."""
        header = decode_header(GetConsumerListByGroupRequestHeader, request.ext_fields)
        info = self._broker.consumers.group_info(header.consumer_group)
        ids = [] if info is None else info.client_ids
        if not ids:
            remark = f"no consumer for this group, {header.consumer_group}"
            return request.refusal(ResponseCode.SYSTEM_ERROR, remark)
        return json_answer(request, {"consumerIdList": ids})

    @answers(RequestCode.LOCK_BATCH_MQ)
    def lock_queues(self, request: RemotingCommand) -> RemotingCommand:
        """Lock queues for a member of a group (41)."""
        group, client_id, queues = _locks_of(request)
        locked = self._broker.locks.lock(group, queues, client_id)
        return json_answer(request, {"lockOKMQSet": [queue_json(each) for each in sorted(locked)]})

    @answers(RequestCode.UNLOCK_BATCH_MQ)
    def unlock_queues(self, request: RemotingCommand) -> RemotingCommand:
        """Release the locks of a member (42)."""
        group, client_id, queues = _locks_of(request)
        self._broker.locks.unlock(group, queues, client_id)
        return request.success()

    def _has_first_message(self, topic: str, queue_id: int) -> bool:
        store = self._broker.dispatched_store
        is_from_zero = bool(store.get_min_offset_in_queue(topic, queue_id) <= 0)
        return is_from_zero and bool(store.get_max_offset_in_queue(topic, queue_id) > 0)


def _locks_of(request: RemotingCommand) -> tuple[str, str, list[MessageQueue]]:
    with body_of(request) as data:
        queues: Any = data.get("mqSet") or []
        try:
            found = [queue_from_json(each) for each in queues]
            for each in found:
                check_int("mqSet: queueId", each.queue_id)
        except (KeyError, TypeError, ValueError) as err:
            raise ValueError(f"mqSet: queues were expected, not {queues!r:.200}") from err
        return str(data.get("consumerGroup", "")), str(data.get("clientId", "")), found
