# SPDX-License-Identifier: Apache-2.0
"""Base class of the processors of a broker, and refusals by its role."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rmqnet.broker.processor.message_checks import RefusedError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import RequestProcessor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.broker.broker import Broker
    from rmqnet.broker.pools import Pools
    from rmqnet.remoting.remoting_server import Handler, RemotingServer
    from rmqnet.remoting.server_connection import ServerConnection

SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
"""Requests by which clients put messages."""
REPLIES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)


class RequestRefusal(NamedTuple):
    """The answer to a request that is refused."""

    code: ResponseCode
    remark: str


REJECTED = RequestRefusal(
    ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while"
)
"""RocketMQ's answer of a broker that does not accept such a request now."""


def refuse(
    refusals: Mapping[RequestCode, RequestRefusal], _: ServerConnection, request: RemotingCommand
) -> RemotingCommand:
    """Answer a request that the role of a broker refuses."""
    code, remark = refusals[RequestCode(request.code)]
    return request.refusal(code, remark)


class BrokerProcessor(RequestProcessor):
    """Answers requests for a broker; a refusal is an answer, too.

    Attributes
    ----------
    pool
        Name of the pool that runs the requests.
    """

    pool: ClassVar[str]
    _pools: Pools

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def register(self, server: RemotingServer, pools: Pools) -> None:
        """Register for the requests with the server."""
        self._pools = pools
        pool = getattr(pools, self.pool)
        for code, handler in self.handlers().items():
            server.register([code], functools.partial(self._run, handler), pool)

    def _run(
        self, handler: Handler, connection: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand | None:
        try:
            return handler(connection, request)
        except RefusedError as err:
            return self._refusal(err, request)

    def _refusal(self, err: RefusedError, request: RemotingCommand) -> RemotingCommand:
        return err.answer_to(request)
