"""Clients for administrators: 203, 204, 223, 307, 309, 328."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rmqnet.broker.processor.bodies import json_answer
from rmqnet.broker.processor.message_checks import RefusedError
from rmqnet.errors import RemotingError, RemotingTimeoutError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from store_core.codec.message_id import parse_message_id
from store_core.config.config_files import config_json

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.broker.clients.client_channel_info import ClientChannelInfo
    from rmqnet.broker.processor.admin_broker import AdminHandler
    from rmqnet.remoting.remoting_command import RemotingCommand

logger = logging.getLogger(__name__)


class AdminClients:
    """Describes clients, and hands them what administrators ask of them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[RequestCode, AdminHandler]:
        """Return what works on which requests."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def consumer_connections(self, request: RemotingCommand) -> RemotingCommand:
        """Return the members of a group and what they want (203)."""
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

    def producer_connections(self, request: RemotingCommand) -> RemotingCommand:
        """Return the members of a group of producers (204)."""
        header = decode_header(GetProducerConnectionListRequestHeader, request.ext_fields)
        members = self._broker.producers.members(header.producer_group)
        if not members:
            remark = f"the producer group[{header.producer_group}] not exist"
            raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
        return json_answer(request, {"connectionSet": _connections(members)})

    def all_producers(self, request: RemotingCommand) -> RemotingCommand:
        """Return all producers by group (328)."""
        groups = self._broker.producers.all()
        data = {group: [_producer(each) for each in clients] for group, clients in groups.items()}
        return json_answer(request, {"data": data})

    def consumer_status(self, request: RemotingCommand) -> RemotingCommand:
        """Return how far the members of a group themselves say they are (223)."""
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

    def running_info(self, request: RemotingCommand) -> RemotingCommand:
        """Return what a consumer says that it does (307)."""
        header = decode_header(GetConsumerRunningInfoRequestHeader, request.ext_fields)
        return self._call(request, header.consumer_group, header.client_id)

    def consume_directly(self, request: RemotingCommand) -> RemotingCommand:
        """Have a consumer consume one message now (309)."""
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
        """Return what a client says; None, and a line in the log, where it does not."""
        try:
            return self._broker.to_client.consumer_status(
                client.connection, header.group, header.topic
            )
        except (RemotingError, ValueError) as err:
            logger.warning("%s does not say how far it is: %s", client.client_id, err)
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
