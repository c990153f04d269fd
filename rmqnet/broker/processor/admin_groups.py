# SPDX-License-Identifier: Apache-2.0
"""Consumer groups for administrators and slaves: 200, 201, 207, 225, 352, 353, 402."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rmqnet.broker.processor.admin_broker import AdminProcessor
from rmqnet.broker.processor.bodies import body_of, json_answer
from rmqnet.broker.processor.message_checks import RefusedError
from rmqnet.broker.state.subscription_group_manager import READ_FORBIDDEN
from rmqnet.errors import RemotingError, RemotingTimeoutError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.config_ranges import check_count, check_group_ranges
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from rmqnet.remoting.request_processor import answers
from store_core.codec.message_id import parse_message_id
from store_core.config.config_files import (
    SubscriptionGroupConfig,
    config_json,
    load_config_file,
    parse_group_config,
)
from store_core.config.lenient_json import json_object
from store_core.files.store_directory import StoreDirectory

if TYPE_CHECKING:
    from rmqnet.broker.clients.client_channel_info import ClientChannelInfo
    from rmqnet.remoting.remoting_command import RemotingCommand

logger = logging.getLogger(__name__)


class AdminGroups(AdminProcessor):
    """Creates, changes, deletes and describes consumer groups."""

    @answers(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    def update(self, request: RemotingCommand) -> RemotingCommand:
        """Create or change a group (200)."""
        with body_of(request) as data:
            change = self._parsed(data)
        self._broker.groups.update(*change)
        return request.success()

    @answers(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
    def update_all(self, request: RemotingCommand) -> RemotingCommand:
        """Create or change several groups (225)."""
        with body_of(request) as data:
            items = data.get("groupConfigList") or []
            check_count("groups", len(items), self._broker.config.max_groups_per_request)
            changes = [self._parsed(json_object(each, "groupConfigList")) for each in items]
        self._broker.groups.update_all(changes)
        return request.success()

    @answers(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def all_configs(self, request: RemotingCommand) -> RemotingCommand:
        """Return all groups (201), also for slaves."""
        groups = self._broker.groups.to_json()
        header = GetAllSubscriptionGroupResponseHeader(len(groups["subscriptionGroupTable"]))
        return json_answer(request, groups, header)

    @answers(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
    def config(self, request: RemotingCommand) -> RemotingCommand:
        """Return one group, created if allowed (352)."""
        group = decode_header(GetSubscriptionGroupConfigRequestHeader, request.ext_fields).group
        self._broker.groups.find(group)
        found = self._broker.groups.json_of(group)
        if found is None:
            refusal = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            raise RefusedError(refusal, "No group in this broker")
        return json_answer(request, found)

    @answers(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    def delete(self, request: RemotingCommand) -> RemotingCommand:
        """Delete a group, and its offsets if requested (207)."""
        header = decode_header(DeleteSubscriptionGroupRequestHeader, request.ext_fields)
        self._broker.groups.delete(header.group_name)
        if header.clean_offset or header.remove_offset:
            self._broker.offsets.remove_group(header.group_name)
        return request.success()

    @answers(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
    def forbid(self, request: RemotingCommand) -> RemotingCommand:
        """Return, after setting it if requested, whether a group may read a topic (353)."""
        header = decode_header(UpdateGroupForbiddenRequestHeader, request.ext_fields)
        group, topic, groups = header.group, header.topic, self._broker.groups
        if header.readable is not None:
            bits = groups.forbidden(group, topic) & ~READ_FORBIDDEN
            groups.set_forbidden(group, topic, bits if header.readable else bits | READ_FORBIDDEN)
        is_readable = not groups.forbidden(group, topic) & READ_FORBIDDEN
        return json_answer(request, {"group": group, "readable": is_readable, "topic": topic})

    @answers(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def request_modes(self, request: RemotingCommand) -> RemotingCommand:
        """Return the groups that pop messages (402), for slaves, from the file if there is one.

        This broker serves no pops; one that takes over the directory may have groups that pop.
        """
        directory = StoreDirectory(self._broker.groups.root)
        found = load_config_file(directory, "messageRequestMode.json", dict)
        return json_answer(request, found or {"messageRequestModeMap": {}})

    def _parsed(self, item: dict[str, Any]) -> tuple[SubscriptionGroupConfig, dict[str, Any]]:
        name, groups = str(item.get("groupName") or ""), self._broker.groups
        if groups.get(name) is None:
            groups.check_new_name(name)
        config = parse_group_config(name, item)
        check_group_ranges(config, self._broker.config.max_queues_per_topic)
        return config, item


class AdminClients(AdminProcessor):
    """Describes clients, and forwards requests of administrators to them."""

    @answers(RequestCode.GET_CONSUMER_CONNECTION_LIST)
    def consumer_connections(self, request: RemotingCommand) -> RemotingCommand:
        """Return the members of a group and their subscriptions (203)."""
        header = decode_header(GetConsumerConnectionListRequestHeader, request.ext_fields)
        info = self._broker.consumers.group_info(header.consumer_group)
        if info is None:
            remark = f"the consumer group[{header.consumer_group}] not online"
            raise RefusedError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        subscriptions = dict(info.subscriptions)
        data = {
            "connectionSet": _connections(list(info.members.values())),
            "consumeFromWhere": info.consume_from_where.value,
            "consumeType": info.consume_type.value,
            "messageModel": info.message_model.value,
            "subscriptionTable": {topic: each.to_json() for topic, each in subscriptions.items()},
        }
        return json_answer(request, data)

    @answers(RequestCode.GET_PRODUCER_CONNECTION_LIST)
    def producer_connections(self, request: RemotingCommand) -> RemotingCommand:
        """Return the members of a producer group (204)."""
        header = decode_header(GetProducerConnectionListRequestHeader, request.ext_fields)
        members = self._broker.producers.members(header.producer_group)
        if not members:
            remark = f"the producer group[{header.producer_group}] not exist"
            raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
        return json_answer(request, {"connectionSet": _connections(members)})

    @answers(RequestCode.GET_ALL_PRODUCER_INFO)
    def all_producers(self, request: RemotingCommand) -> RemotingCommand:
        """Return all producers by group (328)."""
        groups = self._broker.producers.all()
        data = {group: [_producer(each) for each in clients] for group, clients in groups.items()}
        return json_answer(request, {"data": data})

    @answers(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    def consumer_status(self, request: RemotingCommand) -> RemotingCommand:
        """Return the offsets that the members of a group report (223)."""
        header = decode_header(GetConsumerStatusRequestHeader, request.ext_fields)
        info = self._broker.consumers.group_info(header.group)
        if info is None:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
        table = {}
        for client in list(info.members.values()):
            if header.client_addr in {None, "", client.client_id}:
                offsets = self._status_of(client, header)
                if offsets is not None:
                    table[client.client_id] = offsets
        return json_answer(request, {"consumerTable": table})

    @answers(RequestCode.GET_CONSUMER_RUNNING_INFO)
    def running_info(self, request: RemotingCommand) -> RemotingCommand:
        """Return the state that a consumer reports (307)."""
        header = decode_header(GetConsumerRunningInfoRequestHeader, request.ext_fields)
        return self._call(request, header.consumer_group, header.client_id)

    @answers(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    def consume_directly(self, request: RemotingCommand) -> RemotingCommand:
        """Make a consumer consume one message now (309)."""
        header = decode_header(ConsumeMessageDirectlyResultRequestHeader, request.ext_fields)
        broker, fields = self._broker, request.ext_fields
        fields["brokerName"] = broker.config.broker_name
        topic = broker.topics.select(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = broker.groups.find(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        _, commit_log_offset = parse_message_id(header.msg_id or "")
        record = broker.store.look_record(commit_log_offset)
        if record is None:
            remark = f"there is no message with the id {header.msg_id}"
            raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
        return self._call(request, header.consumer_group, header.client_id or "", record)

    def _status_of(self, client: ClientChannelInfo, header: GetConsumerStatusRequestHeader) -> Any:
        """Return the offsets that a client reports; None if it does not, which is logged."""
        try:
            return self._broker.to_client.consumer_status(
                client.connection, header.group, header.topic
            )
        except (RemotingError, ValueError) as err:
            logger.warning("%s does not report its offsets: %s", client.client_id, err)
            return None

    def _call(
        self, request: RemotingCommand, group: str, client_id: str, body: bytes | None = None
    ) -> RemotingCommand:
        client = self._broker.consumers.find_client(group, client_id)
        if client is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
        try:
            return self._broker.to_client.call(
                client.connection,
                request.code,
                request.ext_fields,
                request.body if body is None else body,
            )
        except RemotingTimeoutError as err:
            remark = f"consumer <{group}> <{client_id}> Timeout: {err}"
            raise RefusedError(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from err
        except RemotingError as err:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {err}"
            raise RefusedError(ResponseCode.SYSTEM_ERROR, remark) from err


def _connections(clients: list[ClientChannelInfo]) -> list[dict[str, Any]]:
    return [config_json(each) for each in sorted(client.to_connection() for client in clients)]


def _producer(client: ClientChannelInfo) -> dict[str, Any]:
    connection = config_json(client.to_connection())
    address = connection.pop("clientAddr")
    return {
        **connection,
        "lastUpdateTimestamp": client.last_update_timestamp,
        "remoteIP": f"/{address}",  # as Java writes an address
    }
