# SPDX-License-Identifier: Apache-2.0
"""Requests of a broker to its clients.

Source: RocketMQ ``Broker2Client`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.client.queue_json import parse_queue_offsets, to_queue_json
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.headers import (
    CheckTransactionStateRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ResetOffsetRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.remoting.remoting_server import RemotingServer
    from rmqnet.remoting.server_connection import ServerConnection

_CALL_SECONDS = 10.0
_STATUS_SECONDS = 5.0


class BrokerToClient:
    """Requests of a broker to its clients, from any thread except the server's loop.

    Requests with an answer raise `RemotingConnectError` or `RemotingTimeoutError` if none comes.
    """

    def __init__(self, server: RemotingServer) -> None:
        self._server = server

    def check_transaction_state(
        self,
        connection: ServerConnection,
        header: CheckTransactionStateRequestHeader,
        record: bytes,
    ) -> None:
        """Ask a producer how a transaction ended (39); it answers with END_TRANSACTION."""
        self._server.notify(connection, RemotingCommand.request(header, record))

    def notify_consumer_ids_changed(self, connection: ServerConnection, group: str) -> None:
        """Notify a consumer that members of its group joined or left (40)."""
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
        self._server.notify(connection, RemotingCommand.request(header))

    def reset_offsets(
        self,
        connection: ServerConnection,
        header: ResetOffsetRequestHeader,
        offsets: Mapping[MessageQueue, int],
    ) -> None:
        """Make a consumer reset its offsets (220), as brokers of 4.x do."""
        body = to_queue_json({"offsetTable": dict(offsets)}).encode()
        code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        self._server.notify(connection, RemotingCommand.request(header, body, code))

    def consumer_status(
        self, connection: ServerConnection, group: str, topic: str
    ) -> dict[MessageQueue, int] | None:
        """Return the offsets that a consumer reports (221); None if it reports none.

        Raises
        ------
        ValueError
            Its answer cannot be parsed.
        """
        header = GetConsumerStatusRequestHeader(topic=topic, group=group)
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        request = RemotingCommand.request(header, code=code)
        answer = self._server.ask(connection, request, _STATUS_SECONDS)
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return None
        return parse_queue_offsets(answer.body.decode(), "messageQueueTable")

    def call(
        self, connection: ServerConnection, code: int, fields: Mapping[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """Forward a request made to the broker (307, 309); return the client's answer."""
        request = RemotingCommand(code, dict(fields), body)
        return self._server.ask(connection, request, _CALL_SECONDS)
