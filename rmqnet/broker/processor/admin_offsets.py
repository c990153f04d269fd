# SPDX-License-Identifier: Apache-2.0
"""Offsets of groups for administrators and slaves: 43, 45, 208, 300, 303, 314, 317, 343, 345."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqnet.broker.processor.admin_broker import AdminProcessor
from rmqnet.broker.processor.admin_topics import known_topic, queue_of
from rmqnet.broker.processor.bodies import json_answer
from rmqnet.broker.processor.message_checks import RefusedError
from rmqnet.broker.state.consumer_offset_manager import NO_OFFSET
from rmqnet.client.admin_results import QueueConsumption
from rmqnet.client.queue_json import queue_json
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.current_request import check_wanted
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    ResetOffsetRequestHeader,
)
from rmqnet.remoting.request_processor import answers
from store_core.config.config_files import config_json, load_delay_offsets
from store_core.files.store_directory import StoreDirectory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.remoting.remoting_command import RemotingCommand
    from store_core.config.config_files import TopicConfig

_TOPIC_SEPARATOR = ";"
_ALL_QUEUES = -1


class AdminOffsets(AdminProcessor):
    """Describes offsets of groups."""

    @answers(RequestCode.GET_ALL_CONSUMER_OFFSET)
    def all_offsets(self, request: RemotingCommand) -> RemotingCommand:
        """Return all offsets of groups (43)."""
        return json_answer(request, self._broker.offsets.to_json())

    @answers(RequestCode.GET_ALL_DELAY_OFFSET)
    def delay_offsets(self, request: RemotingCommand) -> RemotingCommand:
        """Return the offset of the delivery of each delay level (45)."""
        delays = self._broker.delays
        if delays is None:
            directory = StoreDirectory(self._broker.offsets.root)
            offsets = load_delay_offsets(directory) or {}
        else:
            offsets = delays.offsets
        return json_answer(request, {"offsetTable": dict(sorted(offsets.items()))})

    @answers(RequestCode.GET_CONSUME_STATS)
    def consume_stats(self, request: RemotingCommand) -> RemotingCommand:
        """Return a group's progress in each queue (208)."""
        header = decode_header(GetConsumeStatsRequestHeader, request.ext_fields)
        table: dict[MessageQueue, Any] = {}
        for topic in self._topics_of(header):
            table.update(self._consumption(header.consumer_group, topic))
        return json_answer(request, {"offsetTable": _json_table(table)})

    @answers(RequestCode.GET_BROKER_CONSUME_STATS)
    def broker_consume_stats(self, request: RemotingCommand) -> RemotingCommand:
        """Return the progress of all groups in their topics (317)."""
        is_order = decode_header(GetConsumeStatsInBrokerHeader, request.ext_fields).is_order
        broker, total, found = self._broker, 0, []
        for group in sorted(broker.groups.all()):
            stats = []
            for topic in sorted(self._subscribed(group, broker.offsets.topics_of(group))):
                config = broker.topics.select(topic)
                if config is not None and (config.order or not is_order):
                    table = self._consumption(group, topic)
                    total += sum(each.lag for each in table.values())
                    stats.append({"offsetTable": _json_table(table)})
            found.append({group: stats})
        address = f"{broker.config.broker_ip1}:{broker.config.listen_port}"
        data = {"brokerAddr": address, "consumeStatsList": found, "totalDiff": total}
        return json_answer(request, data)

    @answers(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    def groups_of_topic(self, request: RemotingCommand) -> RemotingCommand:
        """Return the groups that read a topic, or have read it (300)."""
        topic = decode_header(QueryTopicConsumeByWhoRequestHeader, request.ext_fields).topic
        broker = self._broker
        groups = broker.consumers.groups_of_topic(topic) | broker.offsets.groups_of(topic)
        return json_answer(request, {"groupList": sorted(groups)})

    @answers(RequestCode.QUERY_TOPICS_BY_CONSUMER)
    def topics_of_group(self, request: RemotingCommand) -> RemotingCommand:
        """Return the topics in which a group has offsets (343)."""
        group = decode_header(QueryTopicsByConsumerRequestHeader, request.ext_fields).group
        return json_answer(request, {"topicList": sorted(self._broker.offsets.topics_of(group))})

    @answers(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
    def subscription(self, request: RemotingCommand) -> RemotingCommand:
        """Return a group's current subscription to a topic (345)."""
        header = decode_header(QuerySubscriptionByConsumerRequestHeader, request.ext_fields)
        group, topic = header.group, header.topic or ""
        found = self._broker.consumers.find_subscription(group, topic)
        data: dict[str, Any] = {"group": group, "topic": topic}
        if found is not None:
            data["subscriptionData"] = found.to_json()
        return json_answer(request, data)

    @answers(RequestCode.QUERY_CONSUME_TIME_SPAN)
    def time_span(self, request: RemotingCommand) -> RemotingCommand:
        """Return the time range of a topic's messages, and a group's position in it (303)."""
        header = decode_header(QueryConsumeTimeSpanRequestHeader, request.ext_fields)
        config = known_topic(self._broker, header.topic)
        spans = [
            self._span(header.group, header.topic, queue_id)
            for queue_id in range(config.write_queue_nums)
        ]
        return json_answer(request, {"consumeTimeSpanSet": spans})

    @answers(RequestCode.CLONE_GROUP_OFFSET)
    def clone(self, request: RemotingCommand) -> RemotingCommand:
        """Copy a group's offsets to another group (314)."""
        header = decode_header(CloneGroupOffsetRequestHeader, request.ext_fields)
        broker, source = self._broker, header.src_group
        topics = {header.topic} if header.topic else broker.offsets.topics_of(source)
        for topic in topics:
            is_unsubscribed = broker.consumers.is_unsubscribed(source, topic)
            if broker.topics.select(topic) and (header.offline or not is_unsubscribed):
                broker.offsets.clone(source, header.dest_group, topic)
        return request.success()

    def _topics_of(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        """Return the requested topics; unless listed, without those that members do not want."""
        if header.topic_list and header.topic_list.strip():
            return [each for each in header.topic_list.split(_TOPIC_SEPARATOR) if each]
        group, offsets = header.consumer_group, self._broker.offsets
        topics = {header.topic} if header.topic else offsets.topics_of(group)
        return sorted(self._subscribed(group, topics))

    def _subscribed(self, group: str, topics: Iterable[str]) -> list[str]:
        consumers = self._broker.consumers
        return [topic for topic in topics if not consumers.is_unsubscribed(group, topic)]

    def _consumption(self, group: str, topic: str) -> dict[MessageQueue, QueueConsumption]:
        config = self._broker.topics.select(topic)
        count = 0 if config is None else config.read_queue_nums
        _ = self._broker.dispatched_store
        return {
            queue_of(self._broker, topic, queue_id): self._queue_consumption(group, topic, queue_id)
            for queue_id in range(count)
        }

    def _queue_consumption(self, group: str, topic: str, queue_id: int) -> QueueConsumption:
        check_wanted()
        store, offsets = self._broker.store, self._broker.offsets
        end = store.get_max_offset_in_queue(topic, queue_id)
        offset = max(offsets.query(group, topic, queue_id), 0)
        pulled = max(offsets.query_pull(group, topic, queue_id), offset)
        timestamp = 0
        if offset > 0:
            timestamp = max(store.get_message_store_timestamp(topic, queue_id, offset - 1), 0)
        return QueueConsumption(end, offset, pulled, timestamp)

    def _span(self, group: str, topic: str, queue_id: int) -> dict[str, Any]:
        check_wanted()
        broker = self._broker
        time_of = broker.store.get_message_store_timestamp
        first = broker.store.get_earliest_message_time(topic, queue_id)
        end = broker.dispatched_store.get_max_offset_in_queue(topic, queue_id)
        offset = broker.offsets.query(group, topic, queue_id)
        delay = 0
        if offset < end:
            delay = broker.clock() - time_of(topic, queue_id, offset)
        return {
            "consumeTimeStamp": time_of(topic, queue_id, offset - 1) if offset > 0 else first,
            "delayTime": delay,
            "maxTimeStamp": time_of(topic, queue_id, end - 1),
            "messageQueue": queue_json(queue_of(broker, topic, queue_id)),
            "minTimeStamp": first,
        }


def _json_table(table: dict[MessageQueue, QueueConsumption]) -> dict[MessageQueue, dict[str, Any]]:
    return {queue: config_json(each) for queue, each in table.items()}


class AdminResets(AdminProcessor):
    """Resets offsets of groups: itself with ``useServerSideResetOffset``, else by the members."""

    @answers(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    def reset(self, request: RemotingCommand) -> RemotingCommand:
        """Reset a group's offsets (222)."""
        header = decode_header(ResetOffsetRequestHeader, request.ext_fields)
        topic = self._broker.topics.select(header.topic)
        if topic is None:
            remark = f"Topic {header.topic} does not exist"
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._broker.config.use_server_side_reset_offset:
            offsets = self._assign(header, topic)
        else:
            offsets = self._tell_members(header, topic)
        return json_answer(request, {"offsetTable": offsets})

    def _assign(
        self, header: ResetOffsetRequestHeader, topic: TopicConfig
    ) -> dict[MessageQueue, int]:
        """Record the offsets; members get them with their next pulls."""
        broker, group = self._broker, header.group
        if broker.store.config.is_slave:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        if broker.groups.get(group) is None:
            remark = f"Group {group} does not exist"
            raise RefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        queue_id = _ALL_QUEUES if header.queue_id is None else header.queue_id
        if queue_id >= 0:
            wanted = {queue_id: self._wanted(header, queue_id)}
        else:
            wanted = {each: self._by_time(header, each) for each in range(topic.read_queue_nums)}
        if not wanted:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for each, offset in wanted.items():
            broker.offsets.assign_reset(group, header.topic, each, offset)
        return {queue_of(broker, header.topic, each): at for each, at in wanted.items()}

    def _wanted(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        offset = header.offset
        if offset is None or offset == NO_OFFSET:
            return self._by_time(header, queue_id)
        store = self._broker.dispatched_store
        begin = store.get_min_offset_in_queue(header.topic, queue_id)
        end = store.get_max_offset_in_queue(header.topic, queue_id)
        if not begin <= offset <= end + 1:
            remark = f"Target offset {offset} not in consume queue range [{begin}-{end}]"
            raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
        return offset

    def _tell_members(
        self, header: ResetOffsetRequestHeader, topic: TopicConfig
    ) -> dict[MessageQueue, int]:
        """Send the members their new offsets, as brokers of 4.x do."""
        broker, group = self._broker, header.group
        offsets = {}
        for queue_id in range(topic.write_queue_nums):
            known = broker.offsets.query(group, header.topic, queue_id)
            if known == NO_OFFSET:
                remark = f"THe consumer group <{group}> not exist"
                raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
            wanted = self._by_time(header, queue_id)
            is_taken = header.is_force or wanted < known
            offsets[queue_of(broker, header.topic, queue_id)] = wanted if is_taken else known
        info = broker.consumers.group_info(group)
        if info is None:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}"
            )
            raise RefusedError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        for connection in list(info.members):
            broker.to_client.reset_offsets(connection, header, offsets)
        return offsets

    def _by_time(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        check_wanted()
        store = self._broker.dispatched_store
        if header.timestamp < 0:
            return int(store.get_max_offset_in_queue(header.topic, queue_id))
        return int(store.get_offset_in_queue_by_time(header.topic, queue_id, header.timestamp))
