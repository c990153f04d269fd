# SPDX-License-Identifier: Apache-2.0
"""Requests that producers, consumers and readers send to brokers, one method per request code.

Source: RocketMQ ``MQClientAPIImpl`` (releases 5.3.3 and 4.9.7).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.queue_json import queue_from_json, queue_json
from rmqnet.client.request_calls import BrokerCalls, checked, header_of, json_of
from rmqnet.client.send_result import SEND_STATUS, PullResult, PullStatus, send_result_of
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.headers import (
    GetConsumerListByGroupRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqnet.client.heartbeat_data import SubscriptionData
    from rmqnet.client.send_result import SendResult
    from rmqnet.remoting.header_fields import H, RequestHeader
    from rmqnet.remoting.headers import (
        ConsumerSendMsgBackRequestHeader,
        EndTransactionRequestHeader,
        PullMessageRequestHeader,
        QueryMessageRequestHeader,
        SendMessageRequestHeaderV2,
    )
    from rmqnet.remoting.remoting_client import RemotingClient

LITE_PULL_FLAG = 16
"""Bit of a pull's sysFlag: send it as LITE_PULL_MESSAGE (``PullSysFlag``)."""

_PULL_STATUS = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


@dataclass(frozen=True)
class QueryResult:
    """Records that a broker located through its index (RocketMQ ``QueryResult``).

    Parameters
    ----------
    index_last_update_timestamp, index_last_update_phyoffset
        How far the broker's index reaches: time in ms and byte offset in its log; 0 if no record
        matched.
    """

    body: bytes
    index_last_update_timestamp: int = 0
    index_last_update_phyoffset: int = 0


class BrokerClient:
    """Sends requests to brokers by address.

    Each method raises `BrokerError` for a response code that is not accepted and `RemotingError`
    if no answer arrives. If ``timeout_s`` is None, the client's default timeout applies.
    """

    def __init__(
        self,
        remoting: RemotingClient,
        timeout_s: float = 3.0,
        origin: Callable[[str], str] = str,
    ) -> None:
        self._calls = BrokerCalls(remoting, timeout_s, origin)

    async def send_message(
        self,
        address: str,
        header: SendMessageRequestHeaderV2,
        body: bytes,
        *,
        message_id: str,
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message or batch and return the broker's result.

        Parameters
        ----------
        code
            SEND_MESSAGE_V2, SEND_BATCH_MESSAGE or SEND_REPLY_MESSAGE_V2.
        """
        command = RemotingCommand.request(header, body, code)
        answer = await self._calls.ask(address, command, timeout_s)
        checked(answer, address, command, SEND_STATUS)
        queue = MessageQueue(header.topic, header.bname or address, header.queue_id)
        return send_result_of(answer, address, queue, message_id)

    async def send_oneway(
        self,
        address: str,
        header: SendMessageRequestHeaderV2,
        body: bytes,
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
    ) -> None:
        """Send a message or batch without an answer from the broker."""
        await self._calls.tell_command(address, RemotingCommand.request(header, body, code))

    async def pull(
        self, address: str, header: PullMessageRequestHeader, timeout_s: float | None = None
    ) -> PullResult:
        """Pull from a queue; the timeout must exceed the time that the broker may wait."""
        code = (
            RequestCode.LITE_PULL_MESSAGE
            if header.sys_flag & LITE_PULL_FLAG
            else RequestCode.PULL_MESSAGE
        )
        command = RemotingCommand.request(header, code=code)
        answer = await self._calls.ask(address, command, timeout_s)
        checked(answer, address, command, _PULL_STATUS)
        fields = header_of(PullMessageResponseHeader, answer, address)
        return PullResult(
            _PULL_STATUS[ResponseCode(answer.code)],
            fields.next_begin_offset,
            fields.min_offset,
            fields.max_offset,
            fields.suggest_which_broker_id or 0,
            answer.body,
            answer.remark or "",
        )

    async def query_message(
        self, address: str, header: QueryMessageRequestHeader, timeout_s: float | None = None
    ) -> QueryResult:
        """Return a topic's messages with a key or unique key, stored within a time range."""
        known = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._calls.answer(address, header, timeout_s=timeout_s, accepted=known)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return QueryResult(b"")
        fields = header_of(QueryMessageResponseHeader, answer, address)
        return QueryResult(
            answer.body, fields.index_last_update_timestamp, fields.index_last_update_phyoffset
        )

    async def view_message(
        self, address: str, topic: str, commit_log_offset: int, timeout_s: float | None = None
    ) -> bytes:
        """Return the record at an offset of a broker's log; BrokerError if there is none."""
        header = ViewMessageRequestHeader(topic=topic, offset=commit_log_offset)
        return (await self._calls.answer(address, header, timeout_s=timeout_s)).body

    async def max_offset(
        self, address: str, queue: MessageQueue, timeout_s: float | None = None
    ) -> int:
        """Return the end of a queue, which is the offset of its next message."""
        header = GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        fields = await self._fields(GetMaxOffsetResponseHeader, address, header, timeout_s)
        return fields.offset

    async def min_offset(
        self, address: str, queue: MessageQueue, timeout_s: float | None = None
    ) -> int:
        """Return the offset of the first message that the broker still has."""
        header = GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        fields = await self._fields(GetMinOffsetResponseHeader, address, header, timeout_s)
        return fields.offset

    async def search_offset(
        self,
        address: str,
        queue: MessageQueue,
        timestamp: int,
        *,
        boundary_type: str | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Return the first offset stored at or after a time (ms); the end if there is none.

        4.x brokers return the nearest offset, and the last message's instead of the end.
        """
        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp,
            boundary_type=boundary_type,
            bname=queue.broker_name,
        )
        fields = await self._fields(SearchOffsetResponseHeader, address, header, timeout_s)
        return fields.offset

    async def earliest_store_time(
        self, address: str, queue: MessageQueue, timeout_s: float | None = None
    ) -> int:
        """Return the store time (ms) of a queue's first message; -1 if the queue is empty."""
        header = GetEarliestMsgStoretimeRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        answer = GetEarliestMsgStoretimeResponseHeader
        return (await self._fields(answer, address, header, timeout_s)).timestamp

    async def query_consumer_offset(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        *,
        set_zero_if_not_found: bool | None = None,
        timeout_s: float | None = None,
    ) -> int | None:
        """Return a group's committed offset in a queue; None if the broker has none.

        Parameters
        ----------
        set_zero_if_not_found
            If False, a new queue whose first message is still in memory also gives None; otherwise
            it gives 0.
        """
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=set_zero_if_not_found,
            bname=queue.broker_name,
        )
        known = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._calls.answer(address, header, timeout_s=timeout_s, accepted=known)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return header_of(QueryConsumerOffsetResponseHeader, answer, address).offset

    async def update_consumer_offset(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        offset: int,
        *,
        oneway: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Commit a group's offset on the broker; with ``oneway`` the broker does not answer."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        if oneway:
            await self._calls.tell(address, header)
        else:
            await self._calls.answer(address, header, timeout_s=timeout_s)

    async def heartbeat(self, address: str, body: bytes, timeout_s: float | None = None) -> int:
        """Announce this client's groups and return the broker's MQVersion number."""
        answer = await self._calls.answer(
            address, RequestCode.HEART_BEAT, body, timeout_s=timeout_s
        )
        return answer.version

    async def unregister(
        self,
        address: str,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
    ) -> None:
        """Remove this client from a group on a broker."""
        header = UnregisterClientRequestHeader(
            client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        await self._calls.answer(address, header)

    async def check_client_config(
        self, address: str, client_id: str, group: str, subscription: SubscriptionData
    ) -> None:
        """Have the broker check an SQL expression; BrokerError states what is wrong."""
        data = {
            "clientId": client_id,
            "group": group,
            "subscriptionData": subscription.to_json(),
        }
        await self._calls.answer(address, RequestCode.CHECK_CLIENT_CONFIG, _json(data))

    async def consumer_ids(
        self, address: str, group: str, timeout_s: float | None = None
    ) -> list[str]:
        """Return the client ids of a group's members; BrokerError if there are none."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        answer = await self._calls.answer(address, header, timeout_s=timeout_s)
        ids = json_of(answer, address, "list of consumers").get("consumerIdList") or []
        return [str(each) for each in ids]

    async def lock_queues(
        self,
        address: str,
        group: str,
        client_id: str,
        queues: Collection[MessageQueue],
        timeout_s: float | None = None,
    ) -> set[MessageQueue]:
        """Lock queues for one member of a group and return the queues it has locked.

        A lock expires after a minute unless it is renewed.
        """
        answer = await self._calls.answer(
            address,
            RequestCode.LOCK_BATCH_MQ,
            _lock_body(group, client_id, queues),
            timeout_s=timeout_s,
        )
        locked = json_of(answer, address, "locked queues").get("lockOKMQSet") or []
        return {queue_from_json(each) for each in locked}

    async def unlock_queues(
        self,
        address: str,
        group: str,
        client_id: str,
        queues: Collection[MessageQueue],
        *,
        oneway: bool = False,
    ) -> None:
        """Unlock queues; with ``oneway`` the broker does not answer."""
        body = _lock_body(group, client_id, queues)
        if oneway:
            await self._calls.tell(address, RequestCode.UNLOCK_BATCH_MQ, body)
        else:
            await self._calls.answer(address, RequestCode.UNLOCK_BATCH_MQ, body)

    async def send_message_back(
        self,
        address: str,
        header: ConsumerSendMsgBackRequestHeader,
        timeout_s: float | None = None,
    ) -> None:
        """Have the broker redeliver a message later or move it to the dead letters."""
        await self._calls.answer(address, header, timeout_s=timeout_s)

    async def end_transaction(self, address: str, header: EndTransactionRequestHeader) -> None:
        """Commit or roll back a half message; the broker does not answer."""
        await self._calls.tell(address, header)

    async def _fields(
        self, cls: type[H], address: str, header: RequestHeader, timeout_s: float | None
    ) -> H:
        answer = await self._calls.answer(address, header, timeout_s=timeout_s)
        return header_of(cls, answer, address)


def _lock_body(group: str, client_id: str, queues: Collection[MessageQueue]) -> bytes:
    return _json(
        {
            "consumerGroup": group,
            "clientId": client_id,
            "onlyThisBroker": False,
            "mqSet": [queue_json(queue) for queue in sorted(queues)],
        }
    )


def _json(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()
