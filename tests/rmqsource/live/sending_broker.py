# SPDX-License-Identifier: Apache-2.0
"""A scripted broker that stores the messages sent to it as records, and serves them again."""

from __future__ import annotations

import struct
import time
from typing import Any

from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import SendMessageRequestHeaderV2
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.codec.message_codec import encode_message
from store_core.codec.message_id import parse_host
from tests.rmqnet.scripted_cluster import ScriptedServer, answer, success
from tests.rmqsource.live.recorded_broker import Record, RecordedBroker, RecordedQueue

_ITEM = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")
_HOST = parse_host("127.0.0.1:10911")


class SendingBroker(RecordedBroker):
    """``requests`` are those that were stored; ``losses``: so many are stored and not answered."""

    def __init__(
        self, server: ScriptedServer, queues: dict[tuple[str, int], RecordedQueue] | None = None
    ) -> None:
        super().__init__(server, {} if queues is None else queues)
        self.requests: list[SendMessageRequestHeaderV2] = []
        self.refusals: list[int] = []
        self.batch_sizes: list[int] = []
        self.losses = 0
        self._log_end = 0
        server.answers[RequestCode.SEND_BATCH_MESSAGE] = self._send
        server.answers[RequestCode.SEND_MESSAGE_V2] = self._send

    def _send(self, request: RemotingCommand) -> RemotingCommand | None:
        if self.refusals:
            return answer(request, self.refusals.pop(0), "told to refuse")
        header = decode_header(SendMessageRequestHeaderV2, request.ext_fields)
        self.requests.append(header)
        items = _items(request.body) if header.batch else [_single(header, request.body)]
        queue = self.queues.setdefault((header.topic, header.queue_id), RecordedQueue([]))
        first = queue.max_offset
        self.batch_sizes.append(len(items))
        for flag, body, properties in items:
            self._store(queue, header, flag, body, properties)
        if self.losses:
            self.losses -= 1
            return answer(request, ResponseCode.SYSTEM_BUSY, "stored, but told to say otherwise")
        return success(request, msgId="0" * 32, queueId=header.queue_id, queueOffset=first)

    def _store(
        self,
        queue: RecordedQueue,
        header: SendMessageRequestHeaderV2,
        flag: int,
        body: bytes,
        properties: str,
    ) -> None:
        now = int(time.time() * 1000)
        data = encode_message(
            topic=header.topic.encode(),
            body=body,
            properties_raw=properties.encode(),
            commit_log_offset=self._log_end,
            queue_offset=queue.max_offset,
            queue_id=header.queue_id,
            born_timestamp=header.born_timestamp,
            born_host=_HOST,
            store_timestamp=now,
            store_host=_HOST,
            flag=flag,
            sys_flag=header.sys_flag,
            reconsume_times=header.reconsume_times or 0,
        )
        self._log_end += len(data)
        queue.records.append(Record(queue.max_offset, data, now, [_row(properties, self._log_end)]))


def _items(block: bytes) -> list[tuple[int, bytes, str]]:
    items, at = [], 0
    while at < len(block):
        size, _, _, flag, length = _ITEM.unpack_from(block, at)
        body_at = at + _ITEM.size
        (count,) = _LENGTH.unpack_from(block, body_at + length)
        raw = block[body_at + length + _LENGTH.size :][:count]
        items.append((flag, block[body_at : body_at + length], raw.decode()))
        at += size
    assert at == len(block)
    return items


def _single(header: SendMessageRequestHeaderV2, body: bytes) -> tuple[int, bytes, str]:
    return header.flag, body, header.properties or ""


def _row(properties: str, offset: int) -> dict[str, Any]:
    """Return the properties that filters and the index of a broker use."""
    pairs = (part.split("\x01", 1) for part in properties.split("\x02") if part)
    named = {name: value for name, value in pairs}
    return {
        "tags": named.get("TAGS"),
        "keys": named.get("KEYS", "").split(" "),
        "unique_key": named.get("UNIQ_KEY"),
        "properties": list(named.items()),
        "commit_log_offset": offset,
    }
