"""Groups that shall go on elsewhere: 222."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.broker.processor.admin_topics import queue_of
from rmqnet.broker.processor.bodies import json_answer
from rmqnet.broker.processor.message_checks import RefusedError
from rmqnet.broker.state.consumer_offset_manager import NO_OFFSET
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.current_request import check_wanted
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import ResetOffsetRequestHeader

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.broker.processor.admin_broker import AdminHandler
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.remoting.remoting_command import RemotingCommand
    from store_core.config.config_files import TopicConfig

_ALL_QUEUES = -1


class AdminResets:
    """Sets groups to other offsets, as ``useServerSideResetOffset`` says: itself, or by members."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[RequestCode, AdminHandler]:
        """Return what works on which requests."""
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset}

    def reset(self, request: RemotingCommand) -> RemotingCommand:
        """Have a group go on elsewhere (222)."""
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
        """Note the offsets; members hear of them with their next pulls."""
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
        """Tell the members to go on elsewhere, as brokers of 4.x do."""
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
