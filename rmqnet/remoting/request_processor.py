# SPDX-License-Identifier: Apache-2.0
"""Request processors: their methods are marked with the codes of requests they answer."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar

from rmqnet.remoting.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqnet.remoting.codes import RequestCode

_MARK = "_answers"
_Method = TypeVar("_Method", bound=Callable[..., Any])


class _Answers(NamedTuple):
    codes: tuple[RequestCode, ...]
    is_given_peer: bool


def answers(*codes: RequestCode, with_peer: bool = False) -> Callable[[_Method], _Method]:
    """Mark a method as the handler of these requests; ``with_peer`` passes it the peer first."""

    def mark(method: _Method) -> _Method:
        vars(method)[_MARK] = _Answers(codes, with_peer)
        return method

    return mark


class RequestProcessor:
    """Answers the requests that its methods are marked with."""

    def handlers(self) -> dict[int, Callable[[Any, RemotingCommand], Any]]:
        """Return the handlers by code; each takes a peer and its request, returns the answer."""
        found: dict[int, Callable[[Any, RemotingCommand], Any]] = {}
        for name, function in inspect.getmembers(type(self), inspect.isfunction):
            mark = vars(function).get(_MARK)
            if mark is not None:
                method = getattr(self, name)
                handler = method if mark.is_given_peer else functools.partial(_ask, method)
                found.update(dict.fromkeys(mark.codes, handler))
        return found


def _ask(method: Callable[[RemotingCommand], Any], _: object, request: RemotingCommand) -> Any:
    return method(request)
