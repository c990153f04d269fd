"""Asking a master what a slave does not get with the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, TypeVar

from rmqnet.broker.broker_config import parse_config_text
from rmqnet.broker.stoppable_calls import StoppableCalls
from rmqnet.client.metadata_pages import PAGED_CODES, paged_table
from rmqnet.client.request_calls import RequestCalls, json_of
from rmqnet.errors import BrokerError, ClientError, RemotingError
from rmqnet.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from rmqnet.remoting.acl import AclCredentials
    from rmqnet.remoting.remoting_command import RemotingCommand

_TIMEOUT_S = 5.0
T = TypeVar("T")


class MasterCalls:
    """Connections to masters, in a thread of their own; a context manager."""

    def __init__(self, credentials: AclCredentials | None = None) -> None:
        self._calls = StoppableCalls("slave-to-master", credentials)

    def __enter__(self) -> MasterCalls:
        self.open()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Let requests be sent."""
        self._calls.open()

    def give_up(self) -> None:
        """Fail the requests that wait for an answer, and all further ones."""
        self._calls.give_up()

    def close(self) -> None:
        """End the connections; a second call does nothing."""
        self._calls.close()

    def table(self, address: str, code: RequestCode) -> dict[str, Any]:
        """Return the JSON object that a master answers.

        Raises
        ------
        ClientError
            It cannot be reached, refuses, or answers something else.
        """
        if code in PAGED_CODES:
            return self._asked(address, code, lambda calls: paged_table(calls, address, code))
        answer = self._answer(address, code)
        try:
            return json_of(answer, address, code.name)
        except RemotingError as err:
            raise ClientError(str(err)) from err

    def settings(self, address: str) -> dict[str, str]:
        """Return the settings of a broker and its store, by RocketMQ's keys.

        Raises
        ------
        ClientError
            As of `table`.
        """
        answer = self._answer(address, RequestCode.GET_BROKER_CONFIG)
        try:
            return parse_config_text(answer.body.decode())
        except ValueError as err:
            raise ClientError(f"{address} answers no settings: {err}") from err

    def _answer(self, address: str, code: RequestCode) -> RemotingCommand:
        return self._asked(address, code, lambda calls: calls.answer(address, code))

    def _asked(
        self,
        address: str,
        code: RequestCode,
        ask: Callable[[RequestCalls], Coroutine[Any, Any, T]],
    ) -> T:
        remoting = self._calls.remoting
        if remoting is None:
            raise ClientError(f"{address} is not asked: this broker stops")
        calls = RequestCalls(remoting, _TIMEOUT_S)
        try:
            return self._calls.run(ask(calls))
        except (RemotingError, BrokerError) as err:
            raise ClientError(f"{address} does not answer {code.name}: {err}") from err
