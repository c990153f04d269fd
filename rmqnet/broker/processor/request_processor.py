"""What the processors of requests share: who answers which requests, in threads of which pool."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable, ClassVar, NamedTuple, Optional, TypeVar

from rmqnet.broker.processor.message_checks import RefusedError
from rmqnet.remoting.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.broker.pools import Pools
    from rmqnet.remoting.codes import RequestCode
    from rmqnet.remoting.remoting_server import Handler, RemotingServer
    from rmqnet.remoting.server_connection import ServerConnection

_MARK = "_answers"
_Method = TypeVar("_Method", bound=Callable[..., Optional[RemotingCommand]])


class _Answers(NamedTuple):
    codes: tuple[RequestCode, ...]
    is_given_client: bool


def answers(*codes: RequestCode, with_client: bool = False) -> Callable[[_Method], _Method]:
    """Mark a method as what answers these requests; where wanted, it is given the client first."""

    def mark(method: _Method) -> _Method:
        vars(method)[_MARK] = _Answers(codes, with_client)
        return method

    return mark


class RequestProcessor:
    """Answers the requests that its methods are marked with; a refusal is an answer, too.

    Attributes
    ----------
    pool
        The name of the pool that does the work.
    """

    pool: ClassVar[str]
    _pools: Pools

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def register(self, server: RemotingServer, pools: Pools) -> None:
        """Have the server bring the requests."""
        self._pools = pools
        for name, function in inspect.getmembers(type(self), inspect.isfunction):
            mark = vars(function).get(_MARK)
            if mark is not None:
                method = getattr(self, name)
                handler = method if mark.is_given_client else functools.partial(_ask, method)
                wrapped = functools.partial(self._run, handler)
                server.register(mark.codes, wrapped, getattr(pools, self.pool))

    def _run(
        self, handler: Handler, connection: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand | None:
        try:
            return handler(connection, request)
        except RefusedError as err:
            return self._refusal(err, request)

    def _refusal(self, err: RefusedError, request: RemotingCommand) -> RemotingCommand:
        return err.answer_to(request)


def _ask(
    method: Callable[[RemotingCommand], Any], _: ServerConnection, request: RemotingCommand
) -> Any:
    return method(request)
