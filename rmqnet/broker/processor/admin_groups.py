"""Consumer groups for administrators and slaves: 200, 201, 207, 225, 352, 353, 402."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqnet.broker.processor.bodies import body_of, json_answer, success
from rmqnet.broker.processor.message_checks import RefusedError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.config_ranges import check_count, check_group_ranges
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from store_core.config.config_files import (
    SubscriptionGroupConfig,
    load_config_file,
    parse_group_config,
)
from store_core.config.lenient_json import json_object
from store_core.files.store_directory import StoreDirectory

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.broker.processor.admin_broker import AdminHandler
    from rmqnet.remoting.remoting_command import RemotingCommand

_FORBIDDEN_TO_READ = 1


class AdminGroups:
    """Makes, changes, deletes and describes consumer groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[RequestCode, AdminHandler]:
        """Return what works on which requests."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_all,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_configs,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.config,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.request_modes,
        }

    def update(self, request: RemotingCommand) -> RemotingCommand:
        """Make or change a group (200)."""
        with body_of(request) as data:
            change = self._parsed(data)
        self._broker.groups.update(*change)
        return success(request)

    def update_all(self, request: RemotingCommand) -> RemotingCommand:
        """Make or change several groups (225)."""
        with body_of(request) as data:
            items = data.get("groupConfigList") or []
            check_count("groups", len(items), self._broker.config.max_groups_per_request)
            changes = [self._parsed(json_object(each, "groupConfigList")) for each in items]
        self._broker.groups.update_all(changes)
        return success(request)

    def all_configs(self, request: RemotingCommand) -> RemotingCommand:
        """Return all groups (201), for slaves, too."""
        groups = self._broker.groups.to_json()
        header = GetAllSubscriptionGroupResponseHeader(len(groups["subscriptionGroupTable"]))
        return json_answer(request, groups, header)

    def config(self, request: RemotingCommand) -> RemotingCommand:
        """Return one group, made if that is allowed (352)."""
        group = decode_header(GetSubscriptionGroupConfigRequestHeader, request.ext_fields).group
        self._broker.groups.find(group)
        found = self._broker.groups.json_of(group)
        if found is None:
            refusal = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            raise RefusedError(refusal, "No group in this broker")
        return json_answer(request, found)

    def delete(self, request: RemotingCommand) -> RemotingCommand:
        """Delete a group, and if that is wanted where it is in its queues (207)."""
        header = decode_header(DeleteSubscriptionGroupRequestHeader, request.ext_fields)
        self._broker.groups.delete(header.group_name)
        if header.clean_offset or header.remove_offset:
            self._broker.offsets.remove_group(header.group_name)
        return success(request)

    def forbid(self, request: RemotingCommand) -> RemotingCommand:
        """Say, or decide, whether a group may read a topic (353)."""
        header = decode_header(UpdateGroupForbiddenRequestHeader, request.ext_fields)
        group, topic, groups = header.group, header.topic, self._broker.groups
        if header.readable is not None:
            bits = groups.forbidden(group, topic) & ~_FORBIDDEN_TO_READ
            groups.set_forbidden(
                group, topic, bits if header.readable else bits | _FORBIDDEN_TO_READ
            )
        is_readable = not groups.forbidden(group, topic) & _FORBIDDEN_TO_READ
        return json_answer(request, {"group": group, "readable": is_readable, "topic": topic})

    def request_modes(self, request: RemotingCommand) -> RemotingCommand:
        """Return which groups pop messages (402), for slaves: as the file has it, if there is one.

        Nobody pops messages here; a broker that takes the directory over may know groups that do.
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
