"""Requests that a broker in its role does not carry out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.remoting.remoting_server import RemotingServer
    from rmqnet.remoting.server_connection import ServerConnection

SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
"""Requests that put messages of clients."""
REPLIES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)


class RequestRefusal(NamedTuple):
    """The answer to a request that is not carried out."""

    code: ResponseCode
    remark: str


REJECTED = RequestRefusal(
    ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while"
)
"""RocketMQ's answer of a broker that is not to be asked for this now."""


class RefusedRequests:
    """Answers such requests, whoever worked on them otherwise."""

    def __init__(self, refusals: Mapping[RequestCode, RequestRefusal]) -> None:
        self._refusals = refusals

    def register(self, server: RemotingServer) -> None:
        """Take the requests."""
        server.register(self._refusals, self.process)

    def process(self, connection: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        """Refuse a request."""
        del connection
        code, remark = self._refusals[RequestCode(request.code)]
        return request.refusal(code, remark)
