"""Which rights a request needs.

Source: RocketMQ ``PlainAccessValidator``, ``Permission`` (release 4.9.7). There only sends by 10
and 310, pulls, queries by key, send-backs, heartbeats and commits are looked at, and five codes
need an administrator: all else any account may do. Here also what else puts or hands out messages,
or changes what others see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqnet.client.heartbeat_data import parse_heartbeat
from rmqnet.remoting.codes import RequestCode
from store_core.config.lenient_json import json_object, parse_lenient_json
from store_core.topics import (
    DISCARD_TOPIC,
    HALF_TOPICS,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.remoting.remoting_command import RemotingCommand

DENY, PUB, SUB = 1, 4, 8
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

ADMIN_CODES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        # So far RocketMQ; what follows changes a broker no less.
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.TRIGGER_DELETE_FILES,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        # Of a name server.
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    }
)
"""Requests that only administrators may make."""

READ_ALL_CODES = frozenset({RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUME_MESSAGE_DIRECTLY})
"""Requests that name a place in the log, which may hold a message of any topic."""

MIXED_TOPICS = frozenset({SCHEDULE_TOPIC, *HALF_TOPICS, TIMER_TOPIC, DISCARD_TOPIC})
"""Topics where messages of any other one lie, or wait to be put there."""

_SENDS = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_REPLY_MESSAGE: "topic",
    RequestCode.RECALL_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
    RequestCode.SEND_REPLY_MESSAGE_V2: "b",
}


class _Read(NamedTuple):
    """The fields of a request that name a topic and a group."""

    topic: str | None
    group: str | None


_READS = {
    RequestCode.PULL_MESSAGE: _Read("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: _Read("topic", "consumerGroup"),
    RequestCode.QUERY_MESSAGE: _Read("topic", None),
    RequestCode.UPDATE_CONSUMER_OFFSET: _Read("topic", "consumerGroup"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _Read(None, "group"),
    RequestCode.UNREGISTER_CLIENT: _Read(None, "consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _Read(None, "consumerGroup"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _Read(None, "consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _Read(None, "consumerGroup"),
}
_LOCKS = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)


def wanted_permissions(command: RemotingCommand) -> Mapping[str, int]:
    """Return what a request wants to do with which topics, `PUB` or `SUB`.

    A group is named by its retry topic.

    Raises
    ------
    ValueError
        The body, which names them, is not understood.
    """
    code, fields = command.code, command.ext_fields
    if code == RequestCode.HEART_BEAT:
        return _of_heartbeat(command.body)
    if code in _LOCKS:
        data = json_object(parse_lenient_json(command.body.decode()), "body")
        return {RETRY_PREFIX + str(data.get("consumerGroup", "")): SUB}
    if code in _SENDS:
        topic = fields.get(_SENDS[RequestCode(code)], "")
        return {topic: SUB if topic.startswith(RETRY_PREFIX) else PUB}
    if code not in _READS:
        return {}
    topic_field, group_field = _READS[RequestCode(code)]
    wanted = {}
    if topic_field is not None:
        wanted[fields.get(topic_field, "")] = SUB
    if group_field is not None and group_field in fields:
        wanted[RETRY_PREFIX + fields[group_field]] = SUB
    return wanted


def _of_heartbeat(body: bytes) -> Mapping[str, int]:
    wanted = {}
    for consumer in parse_heartbeat(body).consumers:
        wanted[RETRY_PREFIX + consumer.group_name] = SUB
        for subscription in consumer.subscriptions:
            wanted[subscription.topic] = SUB
    return wanted
