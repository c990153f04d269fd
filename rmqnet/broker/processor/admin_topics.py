# SPDX-License-Identifier: Apache-2.0
"""Topics for administrators: 17, 18, 21, 202, 215, 305, 316, 351."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqnet.broker.processor.admin_broker import AdminProcessor
from rmqnet.broker.processor.bodies import body_of, json_answer
from rmqnet.broker.processor.message_checks import RefusedError, open_store
from rmqnet.broker.processor.queue_offsets import queue_begin
from rmqnet.broker.state.attributes import MESSAGE_TYPE_ATTRIBUTE, parse_attribute_changes
from rmqnet.client.admin_results import QueueStats
from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.names import check_topic_name
from rmqnet.errors import ClientError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.config_ranges import check_count, check_topic_ranges
from rmqnet.remoting.current_request import check_wanted
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
)
from rmqnet.remoting.request_processor import answers
from store_core.config.config_files import TopicConfig, config_json, parse_topic_config
from store_core.config.data_version import DataVersion
from store_core.config.lenient_json import json_object
from store_core.layout import LMQ_PREFIX
from store_core.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqnet.broker.broker import Broker
    from rmqnet.remoting.remoting_command import RemotingCommand
    from store_core.queue.readable_queue import ReadableQueue

_MIXED = "MIXED"
_POP_RETRY_SEPARATORS = ("+", "_")  # of releases from 5.1.4 on, and of earlier ones
_MOST_UNITS = 10_000


class AdminTopics(AdminProcessor):
    """Creates, changes, deletes and describes topics."""

    @answers(RequestCode.UPDATE_AND_CREATE_TOPIC)
    def update(self, request: RemotingCommand) -> RemotingCommand:
        """Create or change a topic (17)."""
        header = decode_header(CreateTopicRequestHeader, request.ext_fields)
        self._check(header.topic)
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            header.order,
        )
        check_topic_ranges(config, self._broker.config.max_queues_per_topic)
        changes = parse_attribute_changes(header.attributes)
        self._check_message_type(changes)
        if changes or config != self._broker.topics.select(header.topic):
            self._broker.topics.update(config, changes)
        return request.success()

    @answers(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
    def update_all(self, request: RemotingCommand) -> RemotingCommand:
        """Create or change several topics (18)."""
        with body_of(request) as data:
            items = [
                json_object(each, "topicConfigList") for each in data.get("topicConfigList") or []
            ]
            configs = [parse_topic_config(str(each.get("topicName", "")), each) for each in items]
        check_count("topics", len(configs), self._broker.config.max_topics_per_request)
        for config in configs:
            check_topic_ranges(config, self._broker.config.max_queues_per_topic)
            self._check(config.topic_name)
            self._check_message_type(config.attributes)
        self._broker.topics.update_all((config, config.attributes) for config in configs)
        return request.success()

    @answers(RequestCode.GET_ALL_TOPIC_CONFIG)
    def all_configs(self, request: RemotingCommand) -> RemotingCommand:
        """Return all topics (21), also for slaves."""
        # There are no static topics: the version of their table never changes.
        mapping = {
            "mappingDataVersion": DataVersion().to_json(),
            "topicQueueMappingDetailMap": {},
        }
        # All topics, regardless of the requested page, as in 5.5 without enableSplitMetadata.
        topics = self._broker.topics.to_json()
        header = GetAllTopicConfigResponseHeader(len(topics["topicConfigTable"]))
        return json_answer(request, {**topics, **mapping}, header)

    @answers(RequestCode.GET_TOPIC_CONFIG)
    def config(self, request: RemotingCommand) -> RemotingCommand:
        """Return one topic (351)."""
        header = decode_header(GetTopicConfigRequestHeader, request.ext_fields)
        config = self._broker.topics.select(header.topic)
        if config is None:
            remark = f"No topic in this broker. topic: {header.topic}"
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, remark)
        return json_answer(request, config_json(config))

    @answers(RequestCode.GET_TOPIC_STATS_INFO)
    def stats(self, request: RemotingCommand) -> RemotingCommand:
        """Return offsets and times of a topic's queues (202)."""
        topic = decode_header(GetTopicStatsInfoRequestHeader, request.ext_fields).topic
        config = known_topic(self._broker, topic)
        count = max(config.read_queue_nums, config.write_queue_nums)
        _ = self._broker.dispatched_store
        table = {
            queue_of(self._broker, topic, queue_id): config_json(self._queue_stats(topic, queue_id))
            for queue_id in range(count)
        }
        return json_answer(request, {"offsetTable": table})

    @answers(RequestCode.DELETE_TOPIC_IN_BROKER)
    def delete(self, request: RemotingCommand) -> RemotingCommand:
        """Delete a topic and its queues (215)."""
        topic = decode_header(DeleteTopicRequestHeader, request.ext_fields).topic
        if not topic.strip():
            refusal = ResponseCode.INVALID_PARAMETER
            raise RefusedError(refusal, "The specified topic is blank.")
        self._check_no_system_topic(topic)
        for name in [topic, *self._pop_retry_topics(topic)]:
            self._delete(name)
        return request.success()

    @answers(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def system_topics(self, request: RemotingCommand) -> RemotingCommand:
        """Return the names of the broker's own topics (305)."""
        return json_answer(request, {"topicList": self._broker.topics.system_topics()})

    @answers(RequestCode.CLEAN_UNUSED_TOPIC)
    def clean_unused(self, request: RemotingCommand) -> RemotingCommand:
        """Delete the queues of topics that no longer exist (316)."""
        broker, written = self._broker, open_store(self._broker)
        with written.reading() as store:
            found = {topic for topic, _ in [*store.queue_paths, *store.batch_queue_paths]}
        for topic in sorted(found):
            is_own = broker.topics.is_system_topic(topic) or topic.startswith(LMQ_PREFIX)
            if not is_own and broker.topics.select(topic) is None:
                written.delete_topic(topic)
        return request.success()

    def _check(self, topic: str) -> None:
        try:
            check_topic_name(topic)
        except ClientError as err:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, str(err)) from err
        self._check_no_system_topic(topic)

    def _check_no_system_topic(self, topic: str) -> None:
        is_checked = self._broker.config.validate_system_topic_when_update_topic
        if is_checked and self._broker.topics.is_system_topic(topic):
            remark = f"The topic[{topic}] is conflict with system topic."
            raise RefusedError(ResponseCode.INVALID_PARAMETER, remark)

    def _check_message_type(self, changes: Mapping[str, str]) -> None:
        is_mixed = changes.get(f"+{MESSAGE_TYPE_ATTRIBUTE}") == _MIXED
        if is_mixed and not self._broker.config.enable_mixed_message_type:
            remark = "MIXED message type is not supported."
            raise RefusedError(ResponseCode.INVALID_PARAMETER, remark)

    def _queue_stats(self, topic: str, queue_id: int) -> QueueStats:
        check_wanted()
        store = self._broker.store
        end = store.get_max_offset_in_queue(topic, queue_id)
        timestamp = store.get_message_store_timestamp(topic, queue_id, end - 1) if end > 0 else 0
        return QueueStats(queue_begin(self._broker, topic, queue_id), end, timestamp)

    def _pop_retry_topics(self, topic: str) -> Iterator[str]:
        broker = self._broker
        if broker.config.clear_retry_topic_when_delete_topic:
            for group in sorted(broker.offsets.groups_of(topic)):
                for separator in _POP_RETRY_SEPARATORS:
                    name = f"{RETRY_PREFIX}{group}{separator}{topic}"
                    if broker.topics.select(name) is not None:
                        yield name

    def _delete(self, topic: str) -> None:
        store = open_store(self._broker)
        self._broker.topics.delete(topic)
        self._broker.offsets.remove_topic(topic)
        store.delete_topic(topic)


def known_topic(broker: Broker, topic: str) -> TopicConfig:
    """Return the settings of a topic; raise RefusedError if it does not exist."""
    config = broker.topics.select(topic)
    if config is None:
        raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    return config


def queue_of(broker: Broker, topic: str, queue_id: int) -> MessageQueue:
    """Return the name of a queue of this broker."""
    return MessageQueue(topic, broker.config.broker_name, queue_id)


class AdminQueues(AdminProcessor):
    """Shows the content of queues."""

    @answers(RequestCode.QUERY_CONSUME_QUEUE)
    def units(self, request: RemotingCommand) -> RemotingCommand:
        """Return units of a queue, and a group's filter on them (321)."""
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
    """Return up to ``count`` units from an index on; fewer if a file ends."""
    run = None
    if queue.min_offset <= index < queue.max_offset:
        run = queue.units_from(index, min(count, _MOST_UNITS))
    if run is None:
        return []
    return [
        {"physicOffset": offset, "physicSize": size, "tagsCode": code}
        for (_, _, offset, size), code in zip(run.rows(), run.tags_code.tolist())
    ]
