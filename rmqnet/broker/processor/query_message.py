# SPDX-License-Identifier: Apache-2.0
"""Messages by key and by offset in the log.

Source: RocketMQ ``QueryMessageProcessor`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.broker.processor.broker_processor import BrokerProcessor
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import answers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.message import Message


class QueryMessageProcessor(BrokerProcessor):
    """Answers with stored records."""

    pool = "query"

    @answers(RequestCode.QUERY_MESSAGE)
    def query(self, request: RemotingCommand) -> RemotingCommand:
        """Return the messages of a topic with a key, or a tag, in a range of time.

        ``lastKey`` is ignored: as in RocketMQ, only indexes in RocksDB have pages.
        """
        header = decode_header(QueryMessageRequestHeader, request.ext_fields)
        most, index_type = header.max_num, header.index_type
        store = self._broker.store
        if header.unique_key_query:
            most, index_type = store.config.default_query_max_num, None
        result = store.query_message(
            header.topic,
            header.key,
            most,
            header.begin_timestamp,
            header.end_timestamp,
            index_type,
        )
        answer = QueryMessageResponseHeader(
            result.index_last_update_timestamp, result.index_last_update_phy_offset
        )
        body = self._records(result.messages)
        if not body:
            remark = "can not find message, maybe time range not correct"
            return RemotingCommand.response_to(
                request, ResponseCode.QUERY_NOT_FOUND, remark, answer
            )
        return request.success(answer, body)

    @answers(RequestCode.VIEW_MESSAGE_BY_ID)
    def view(self, request: RemotingCommand) -> RemotingCommand:
        """Return the message whose record begins at an offset of the log."""
        header = decode_header(ViewMessageRequestHeader, request.ext_fields)
        record = self._broker.store.look_record(header.offset)
        if record is None:
            remark = f"can not find message by the offset, {header.offset}"
            return request.refusal(ResponseCode.SYSTEM_ERROR, remark)
        return request.success(body=record)

    def _records(self, messages: Iterable[Message]) -> bytes:
        """Return the records of messages; messages of one inner batch share a record."""
        places = dict.fromkeys(message.commit_log_offset for message in messages)
        found = (self._broker.store.look_record(place) for place in places)
        return b"".join(record for record in found if record is not None)
