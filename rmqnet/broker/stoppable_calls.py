"""Requests that a broker sends, for threads that wait for the answers until the broker stops."""

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
    """Connections in a thread of their own, whose requests can be given up at any time.

    A server that accepts and never answers would otherwise delay the end of a broker by as long as
    each answer may take.
    """

    def __init__(self, name: str, credentials: AclCredentials | None) -> None:
        self._name, self._credentials = name, credentials
        self._loop_thread = EventLoopThread(name)
        self._lock = threading.Lock()
        self._under_way: set[Future[Any]] = set()
        self._takes_calls = False
        self.remoting: RemotingClient | None = None

    def start(self) -> None:
        """Take calls; a second call does nothing."""
        if self.remoting is None:
            self._loop_thread.start()
            self.remoting = self._loop_thread.submit(_client(self._credentials)).result()
            self._takes_calls = True

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result, in any thread.

        Raises
        ------
        RemotingError
            The broker stops; what the coroutine raises goes on.
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
            call.cancel()  # where the caller is interrupted
            with self._lock:
                self._under_way.discard(call)

    def give_up(self) -> None:
        """End the calls that run, and refuse further ones."""
        with self._lock:
            self._takes_calls = False
            under_way = list(self._under_way)
        for call in under_way:
            call.cancel()

    def shutdown(self, farewell: Coroutine[Any, Any, object] | None = None) -> None:
        """Give up all calls, carry out a last one, and end the connections."""
        self.give_up()
        remoting, self.remoting = self.remoting, None
        if remoting is None:
            return
        if farewell is not None:
            self._loop_thread.submit(farewell).result()
        self._loop_thread.submit(remoting.close()).result()
        self._loop_thread.shutdown()

    def _stopped(self) -> str:
        return f"{self._name}: the broker stops"


async def _client(credentials: AclCredentials | None) -> RemotingClient:
    return RemotingClient(credentials=credentials)
