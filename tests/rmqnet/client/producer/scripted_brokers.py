# SPDX-License-Identifier: Apache-2.0
"""Brokers that store the messages sent to them, as parts of a `ScriptedCluster`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import Callable

from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import ReplyMessageRequestHeader, SendMessageRequestHeaderV2
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.codec.inner_columns import split_inner_batch
from store_core.codec.message_codec import properties_to_bytes, string_to_properties
from tests.rmqnet.scripted_cluster import ScriptedCluster, ScriptedServer, answer

SEND_CODES = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)
HOST = "7F00000100002A9F"


def sent_header(request: RemotingCommand) -> SendMessageRequestHeaderV2:
    return decode_header(SendMessageRequestHeaderV2, request.ext_fields)


def sent_properties(request: RemotingCommand) -> dict[str, str]:
    return string_to_properties((sent_header(request).properties or "").encode())


class StoringBroker:
    """Takes every message, in memory; ``codes`` are answered first, one each."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.codes: list[int] = []
        self.remark = "scripted"
        self.stored: list[RemotingCommand] = []
        self.before: Callable[[RemotingCommand], Awaitable[object] | None] | None = None
        self.status = ResponseCode.SUCCESS
        for code in SEND_CODES:
            server.answers[code] = self.take

    @property
    def bodies(self) -> list[bytes]:
        return [body for request in self.stored for body in _bodies(request)]

    async def take(self, request: RemotingCommand) -> RemotingCommand | None:
        if self.before is not None:
            waits = self.before(request)
            if waits is not None:
                await waits
        if self.codes:
            return answer(request, self.codes.pop(0), self.remark)
        offset = len(self.stored)
        self.stored.append(request)
        header = sent_header(request)
        count = len(_bodies(request))
        ids = ",".join(f"{HOST}{offset + number:016X}" for number in range(count))
        return answer(
            request,
            self.status,
            msgId=ids,
            queueId=max(header.queue_id, 0),
            queueOffset=offset,
            transactionId=sent_properties(request).get("UNIQ_KEY", ""),
            MSG_REGION="DefaultRegion",
            TRACE_ON="true",
        )


class Hold:
    """Leaves requests unanswered until it is opened."""

    def __init__(self) -> None:
        self._is_open = threading.Event()

    def open(self) -> None:
        self._is_open.set()

    def __call__(self, _: RemotingCommand) -> Awaitable[object]:
        return asyncio.get_running_loop().run_in_executor(None, self._is_open.wait, 10)


def _bodies(request: RemotingCommand) -> list[bytes]:
    if request.code == RequestCode.SEND_BATCH_MESSAGE:
        return [item.body for item in split_inner_batch(request.body)]
    return [request.body]


def storing_brokers(cluster: ScriptedCluster, *names: str, queues: int = 4) -> list[StoringBroker]:
    """Create topic ``orders`` on brokers that store messages."""
    cluster.add_topic("orders", queues=dict.fromkeys(names, queues))
    return [StoringBroker(cluster.broker(name)) for name in names]


def pushed(correlation_id: str, body: bytes) -> RemotingCommand:
    """Return the request with which a broker delivers a reply."""
    properties = properties_to_bytes([("CORRELATION_ID", correlation_id), ("MSG_TYPE", "reply")])
    header = ReplyMessageRequestHeader(
        producer_group="other",
        topic="DefaultCluster_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        store_timestamp=2,
        properties=properties.decode(),
    )
    return RemotingCommand.request(header, body)
