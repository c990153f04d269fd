# SPDX-License-Identifier: Apache-2.0
"""Requests to one server; a response code that is not accepted raises an error naming it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Union

from rmqnet.errors import (
    BrokerError,
    RemotingConnectError,
    RemotingError,
    RemotingFormatError,
)
from rmqnet.remoting.codes import RequestCode, ResponseCode, request_name
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.config.lenient_json import json_object, parse_lenient_json

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqnet.remoting.header_fields import H, RequestHeader
    from rmqnet.remoting.remoting_client import RemotingClient

Request = Union["RequestHeader", RequestCode]
_SUCCESS = (ResponseCode.SUCCESS,)


class RequestCalls:
    """Sends requests and checks the answers.

    Parameters
    ----------
    timeout_s
        Default timeout for answers.
    """

    def __init__(self, remoting: RemotingClient, timeout_s: float) -> None:
        self._remoting = remoting
        self.timeout_s = timeout_s

    async def ask(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        """Return the answer, whatever its code."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            return await self._remoting.invoke(address, command, timeout_s)
        except RemotingError as err:
            err.address = address
            raise

    async def answer(
        self,
        address: str,
        request: Request,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        accepted: Collection[int] = _SUCCESS,
    ) -> RemotingCommand:
        """Return the answer to a request.

        Raises
        ------
        BrokerError
            The response code is not accepted.
        """
        command = RemotingCommand.request(request, body)
        return checked(await self.ask(address, command, timeout_s), address, command, accepted)

    async def tell(self, address: str, request: Request, body: bytes = b"") -> None:
        """Send a request that the server does not answer."""
        await self.tell_command(address, RemotingCommand.request(request, body))

    async def tell_command(self, address: str, command: RemotingCommand) -> None:
        """Send a command that the server does not answer."""
        try:
            await self._remoting.invoke_oneway(address, command, self.timeout_s)
        except RemotingError as err:
            err.address = address
            raise


class BrokerCalls(RequestCalls):
    """Sends requests to brokers; errors for unreachable addresses say where the address is from."""

    def __init__(
        self, remoting: RemotingClient, timeout_s: float, origin: Callable[[str], str]
    ) -> None:
        super().__init__(remoting, timeout_s)
        self._origin = origin

    async def ask(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        """Return the answer, whatever its code."""
        try:
            return await super().ask(address, command, timeout_s)
        except RemotingConnectError as err:
            raise self._explained(err, address) from err

    async def tell_command(self, address: str, command: RemotingCommand) -> None:
        """Send a command that the server does not answer."""
        try:
            await super().tell_command(address, command)
        except RemotingConnectError as err:
            raise self._explained(err, address) from err

    def _explained(self, err: RemotingConnectError, address: str) -> RemotingConnectError:
        explained = RemotingConnectError(f"{err} ({self._origin(address)})")
        explained.address = address
        return explained


def checked(
    answer: RemotingCommand,
    address: str,
    command: RemotingCommand,
    accepted: Collection[int] = _SUCCESS,
) -> RemotingCommand:
    """Return an answer whose code is accepted; BrokerError for other codes."""
    if answer.code not in accepted:
        remark = answer.remark or "no reason given"
        raise BrokerError(answer.code, remark, address, request_name(command.code))
    return answer


def header_of(cls: type[H], answer: RemotingCommand, address: str) -> H:
    """Return the typed fields of an answer; RemotingFormatError names the server."""
    try:
        return decode_header(cls, answer.ext_fields)
    except RemotingFormatError as err:
        raise RemotingFormatError(f"{address} answered: {err}") from err


def json_of(answer: RemotingCommand, address: str, what: str) -> dict[Any, Any]:
    """Return the object in the body of an answer; RemotingFormatError names the server."""
    try:
        return json_object(parse_lenient_json(answer.body.decode() or "null"), what)
    except ValueError as err:
        raise RemotingFormatError(f"{address} sent no usable {what}: {err}") from err
