# SPDX-License-Identifier: Apache-2.0
"""Requests that a broker sends, whose callers stop waiting when the broker stops."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from rmqnet.errors import RemotingError
from rmqnet.remoting.remoting_client import RemotingClient
from store_core.event_loop_thread import EventLoopThread
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

    from rmqnet.remoting.acl import AclCredentials

T = TypeVar("T")


class StoppableCalls(ShuttingDown):
    """Connections in a thread of their own, whose requests can be cancelled at any time.

    Otherwise a server that accepts connections and never answers would delay the end of a broker
    by the timeout of each request.
    """

    def __init__(self, name: str, credentials: AclCredentials | None) -> None:
        self._name, self._credentials = name, credentials
        self._loop_thread = EventLoopThread(name)
        self._lock = threading.Lock()
        self._under_way: set[Future[Any]] = set()
        self._takes_calls = False
        self.remoting: RemotingClient | None = None

    def start(self) -> None:
        """Accept calls; a second call does nothing."""
        if self.remoting is None:
            self._loop_thread.start()
            self.remoting = self._loop_thread.submit(_client(self._credentials)).result()
            self._takes_calls = True

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result, from any thread.

        Raises
        ------
        RemotingError
            The broker stops; errors of the coroutine pass through.
        """
        with self._lock:
            if not self._takes_calls:
                work.close()
                raise RemotingError(self._stopped())
            call = self._loop_thread.submit(work)
            self._under_way.add(call)
        try:
            return call.result()
        except CancelledError as err:
            raise RemotingError(self._stopped()) from err
        finally:
            call.cancel()  # if the caller is interrupted
            with self._lock:
                self._under_way.discard(call)

    def give_up(self) -> None:
        """Cancel the calls in progress, and refuse further ones."""
        with self._lock:
            self._takes_calls = False
            under_way = list(self._under_way)
        for call in under_way:
            call.cancel()

    def shutdown(self, farewell: Coroutine[Any, Any, object] | None = None) -> None:
        """Cancel all calls, run the last one, and close the connections."""
        self.give_up()
        remoting, self.remoting = self.remoting, None
        if remoting is None:
            return
        if farewell is not None:
            self._loop_thread.submit(farewell).result()
        self._loop_thread.submit(remoting.close()).result()
        self._loop_thread.shutdown()

    def _stopped(self) -> str:
        return f"{self._name}: the broker is stopping"


async def _client(credentials: AclCredentials | None) -> RemotingClient:
    return RemotingClient(credentials=credentials)
