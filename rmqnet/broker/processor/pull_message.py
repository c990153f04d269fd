# SPDX-License-Identifier: Apache-2.0
"""Pulls of consumers, answered immediately or when messages come.

Source: RocketMQ ``PullMessageProcessor``, ``DefaultPullMessageResultHandler`` (release 5.3.3).
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqnet.broker.processor.broker_processor import REJECTED, BrokerProcessor
from rmqnet.broker.processor.message_checks import PERM_READ, RefusedError
from rmqnet.broker.processor.pull_advice import Advice, advise
from rmqnet.broker.pull_request_hold import PullRequestHold
from rmqnet.broker.state.subscription_group_manager import READ_FORBIDDEN
from rmqnet.client.heartbeat_data import TAG, SubscriptionData
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import PullMessageRequestHeader, PullMessageResponseHeader
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import answers
from store_core.errors import FilterSyntaxError, StoreConfigError, StoreError
from store_core.filter.sql_filter import SqlFilter
from store_core.filter.tag_filter import TagFilter
from store_core.read.pull_records import PulledRecords
from store_core.results import GetMessageStatus

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.broker.pools import Pools
    from rmqnet.broker.pull_request_hold import HeldPull
    from rmqnet.remoting.remoting_server import RemotingServer
    from rmqnet.remoting.server_connection import ServerConnection
    from store_core.config.config_files import SubscriptionGroupConfig, TopicConfig
    from store_core.filter.message_filter import AnyFilter

logger = logging.getLogger(__name__)

_COMMIT_FLAG, _SUSPEND_FLAG, _SUBSCRIPTION_FLAG = 1, 2, 4
_MAX_HELD = 50_000
_MAX_BYTES = 128 << 20
_RESUMED_AT_ONCE = 16

_BROKER_FORBIDDEN, _GROUP_FORBIDDEN, _TOPIC_FORBIDDEN = 1, 2, 3
_BROADCASTING_FORBIDDEN, _SUBSCRIPTION_FORBIDDEN = 4, 5

_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class ForbiddenError(RefusedError):
    """A pull that is not allowed; clients check its kind."""

    def __init__(self, kind: int, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.kind = kind

    def answer_to(self, request: RemotingCommand) -> RemotingCommand:
        """Return the answer to a pull that is refused."""
        answer = PullMessageResponseHeader(0, 0, 0, 0, forbidden_type=self.kind)
        return RemotingCommand.response_to(request, self.code, self.remark, answer)


@dataclass
class AllowedPull:
    """A pull that is allowed.

    Attributes
    ----------
    wanted
        The filter; None for all messages.
    deadline_ms
        End of its wait, ms since the epoch.
    """

    connection: ServerConnection
    request: RemotingCommand
    header: PullMessageRequestHeader
    topic: TopicConfig
    group: SubscriptionGroupConfig
    wanted: AnyFilter | None
    offset: int
    deadline_ms: int

    @property
    def queue(self) -> tuple[str, int]:
        """Topic and queue id."""
        return self.header.topic, self.header.queue_id

    @property
    def may_wait(self) -> bool:
        """Whether the client asks to wait for messages, and expects an answer."""
        return bool(self.header.sys_flag & _SUSPEND_FLAG) and not self.request.is_oneway


class PullMessageProcessor(BrokerProcessor):
    """Answers pulls, and holds those that wait."""

    pool = "pull"

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.holds = broker.holds = PullRequestHold(self._resume_soon, broker.clock, _MAX_HELD)

    def register(self, server: RemotingServer, pools: Pools) -> None:
        """Register for the requests, and for connections that end."""
        super().register(server, pools)
        server.on_close(self._forget)

    @answers(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, with_peer=True)
    def process(
        self, connection: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Return messages from an offset on; None if the client waits for some."""
        header = decode_header(PullMessageRequestHeader, request.ext_fields)
        pull = self._allowed(connection, request, header)
        try:
            return self._answer(pull)
        except StoreError as err:
            return _damaged(pull, err)

    # Permission and filter.

    def _allowed(
        self,
        connection: ServerConnection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
    ) -> AllowedPull:
        config = self._broker.config
        if self._broker.store.config.is_slave and not config.slave_read_enable:
            raise RefusedError(*REJECTED)
        if not config.broker_permission & PERM_READ:
            raise ForbiddenError(
                _BROKER_FORBIDDEN, f"the broker[{config.broker_ip1}] pulling message is forbidden"
            )
        is_lite = request.code == RequestCode.LITE_PULL_MESSAGE
        if is_lite and not config.lite_pull_message_enable:
            raise ForbiddenError(
                _BROKER_FORBIDDEN,
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden",
            )
        group = self._group(header.consumer_group)
        topic = self._topic(header, connection)
        wanted = self._wanted(header, group)
        suspend_ms = header.suspend_timeout_millis
        if not config.long_polling_enable:
            suspend_ms = config.short_polling_time_mills
        return AllowedPull(
            connection,
            request,
            header,
            topic,
            group,
            wanted,
            header.queue_offset,
            self._broker.clock() + suspend_ms,
        )

    def _group(self, name: str) -> SubscriptionGroupConfig:
        group = self._broker.groups.find(name)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist",
            )
        if not group.consume_enable:
            raise ForbiddenError(_GROUP_FORBIDDEN, f"subscription group no permission, {name}")
        return group

    def _topic(self, header: PullMessageRequestHeader, connection: ServerConnection) -> TopicConfig:
        topic = self._broker.topics.select(header.topic)
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        if not topic.perm & PERM_READ:
            raise ForbiddenError(
                _TOPIC_FORBIDDEN, f"the topic[{header.topic}] pulling message is forbidden"
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[{connection.address}]",
            )
        return topic

    def _wanted(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> AnyFilter | None:
        if header.sys_flag & _SUBSCRIPTION_FLAG:
            kind, expression = header.expression_type or TAG, header.subscription or "*"
            wanted = self._filter(kind, expression)
            told = SubscriptionData(
                header.topic, expression, sub_version=header.sub_version, expression_type=kind
            )
            self._broker.consumers.compensate(header.consumer_group, told)
            return wanted
        subscription = self._subscription(header, group)
        if subscription.expression_type != TAG:
            self._check_registered(header)
        return self._filter(subscription.expression_type, subscription.sub_string)

    def _subscription(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> SubscriptionData:
        """Return the group's subscription to the topic, from its heartbeats."""
        name, topic = header.consumer_group, header.topic
        info = self._broker.consumers.group_info(name)
        if info is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
            )
        if not group.consume_broadcast_enable and info.is_broadcasting:
            raise ForbiddenError(
                _BROADCASTING_FORBIDDEN,
                f"the consumer group[{name}] can not consume by broadcast way",
            )
        if self._broker.groups.forbidden(name, topic) & READ_FORBIDDEN:
            raise ForbiddenError(
                _SUBSCRIPTION_FORBIDDEN,
                f"the consumer group[{name}] is forbidden for topic[{topic}]",
            )
        found = info.find_subscription(topic)
        if found is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist"
            )
        if found.sub_version < header.sub_version:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        return found

    def _check_registered(self, header: PullMessageRequestHeader) -> None:
        registered = self._broker.filters.get(header.topic, header.consumer_group)
        if registered is None:
            raise RefusedError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if registered.data.client_version < header.sub_version:
            raise RefusedError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )

    def _filter(self, kind: str, expression: str) -> AnyFilter | None:
        if kind == TAG:
            try:
                return _tag_filter(expression)
            except StoreConfigError as err:
                raise RefusedError(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                    f"parse the consumer's subscription failed: {err}",
                ) from err
        if not self._broker.config.enable_property_filter:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}",
            )
        try:
            return _sql_filter(expression)
        except FilterSyntaxError as err:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {err}",
            ) from err

    # The answer.

    def _answer(self, pull: AllowedPull) -> RemotingCommand | None:
        """Return the answer; None if the pull waits."""
        found = self._read(pull)
        advice = self._advice(pull, found)
        self._note_offsets(pull, found, is_new=True)
        if pull.may_wait and advice.code is ResponseCode.PULL_NOT_FOUND and self._hold(pull):
            return None
        return self._response(pull, found, advice)

    def _hold(self, pull: AllowedPull) -> bool:
        if not self.holds.hold(pull):
            return False
        # Messages that came between the read and the hold had no effect: their dispatch saw no
        # pull to resume, and their put saw no pull to dispatch for.
        store = self._broker.store
        if store.get_max_offset_in_queue(*pull.queue) > pull.offset:
            self.holds.notify(pull.queue)
        else:
            store.dispatch_soon()
        return True

    def _read(self, pull: AllowedPull) -> PulledRecords:
        header, store = pull.header, self._broker.store
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offsets = self._broker.offsets
        if self._broker.config.use_server_side_reset_offset:
            reset = offsets.take_reset(group, topic, queue_id)
            if reset is not None:
                first = store.get_min_offset_in_queue(topic, queue_id)
                end = store.get_max_offset_in_queue(topic, queue_id)
                return PulledRecords(GetMessageStatus.OFFSET_RESET, reset, first, end)
        most_bytes = header.max_msg_bytes or _MAX_BYTES
        return store.pull_records(  # type: ignore[no-any-return]
            group, topic, queue_id, pull.offset, header.max_msg_nums, pull.wanted, most_bytes
        )

    @staticmethod
    def _code(pull: AllowedPull, found: PulledRecords) -> ResponseCode:
        code = _CODES.get(found.status)
        if code is not None:
            return code
        # The queue does not exist, but may be written later.
        if pull.header.queue_offset:
            return ResponseCode.PULL_OFFSET_MOVED
        return ResponseCode.PULL_NOT_FOUND

    def _advice(self, pull: AllowedPull, found: PulledRecords) -> Advice:
        return advise(self._broker, pull.group, found, self._code(pull, found))

    def _note_offsets(self, pull: AllowedPull, found: PulledRecords, *, is_new: bool) -> None:
        header, offsets = pull.header, self._broker.offsets
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offsets.commit_pull(group, topic, queue_id, found.next_begin_offset)
        if is_new and header.sys_flag & _COMMIT_FLAG:
            address = pull.connection.address
            offsets.commit(group, topic, queue_id, header.commit_offset, address)

    def _response(self, pull: AllowedPull, found: PulledRecords, advice: Advice) -> RemotingCommand:
        if found.messages:
            topic, group = pull.header.topic, pull.header.consumer_group
            self._broker.traffic.pulled(topic, group, found.messages, len(found.body))
        header = PullMessageResponseHeader(
            suggest_which_broker_id=advice.broker_id,
            next_begin_offset=found.next_begin_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            topic_sys_flag=pull.topic.topic_sys_flag,
            group_sys_flag=pull.group.group_sys_flag,
        )
        return RemotingCommand.response_to(
            pull.request, advice.code, found.status.value, header, found.body
        )

    # Pulls that wait.

    def _forget(self, connection: ServerConnection) -> None:
        for held in self.holds.drop(connection):
            assert isinstance(held, AllowedPull)
            self._broker.server.release(connection, held.request)

    def _resume_soon(self, held: list[HeldPull]) -> None:
        """Run pulls again, several per thread, as waking a thread costs more."""
        for at in range(0, len(held), _RESUMED_AT_ONCE):
            part = held[at : at + _RESUMED_AT_ONCE]
            if not self._pools.pull.submit(functools.partial(self._resume, part)):
                self._refuse_busy(part)

    def _refuse_busy(self, held: list[HeldPull]) -> None:
        for pull in held:
            assert isinstance(pull, AllowedPull)
            code, remark = ResponseCode.SYSTEM_BUSY, "too many pulls wait for a thread"
            response = pull.request.refusal(code, remark)
            self._broker.server.answer(pull.connection, pull.request, response)

    def _resume(self, held: list[HeldPull]) -> None:
        for pull in held:
            assert isinstance(pull, AllowedPull)
            self._resume_one(pull)

    def _resume_one(self, pull: AllowedPull) -> None:
        """Read again; if nothing matches and there is time, keep waiting."""
        if not pull.connection.is_open:  # it must not take another member's reset
            self._broker.server.release(pull.connection, pull.request)
            return
        try:
            response = self._looked_again(self._renewed(pull))
        except RefusedError as err:
            response = err.answer_to(pull.request)
        except StoreError as err:
            response = _damaged(pull, err)
        except Exception as err:  # else the client would wait forever
            remark = f"{type(err).__name__}: {err}"
            response = pull.request.refusal(ResponseCode.SYSTEM_ERROR, remark)
        if response is not None:
            self._broker.server.answer(pull.connection, pull.request, response)

    def _renewed(self, held: AllowedPull) -> AllowedPull:
        """Check a pull again, as its topic, group or subscription may have changed."""
        pull = self._allowed(held.connection, held.request, held.header)
        pull.deadline_ms = held.deadline_ms
        if pull.wanted is held.wanted:  # with another filter, skipped messages may match
            pull.offset = held.offset
        return pull

    def _looked_again(self, pull: AllowedPull) -> RemotingCommand | None:
        has_time = self._broker.clock() < pull.deadline_ms
        found = self._read(pull)
        code, broker_id = self._advice(pull, found)
        waits_on = code in {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY}
        if has_time and waits_on:
            pull.offset = found.next_begin_offset
            if self._hold(pull):
                return None
        if code is ResponseCode.PULL_NOT_FOUND and pull.offset > pull.header.queue_offset:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY  # nothing matched up to here
        self._note_offsets(pull, found, is_new=False)
        return self._response(pull, found, Advice(code, broker_id))


def _damaged(pull: AllowedPull, err: StoreError) -> RemotingCommand:
    """Return the answer that names the unreadable data and its location."""
    logger.warning("queue %s/%d at %d: %s", *pull.queue, pull.offset, err)
    return pull.request.refusal(ResponseCode.SYSTEM_ERROR, str(err))


@functools.lru_cache(maxsize=1024)
def _tag_filter(expression: str) -> TagFilter | None:
    found = TagFilter(expression)
    return None if found.tags is None else found


@functools.lru_cache(maxsize=1024)
def _sql_filter(expression: str) -> SqlFilter:
    return SqlFilter.without_warning(expression)
