# SPDX-License-Identifier: Apache-2.0
"""The connections of one task or planner to a cluster, in an event loop of their own."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, TypeVar

from rmqnet.client.broker_client import BrokerClient
from rmqnet.client.name_server_client import NameServerClient
from rmqnet.client.route_table import RouteTable
from rmqnet.errors import BrokerError, ClientError, RemotingError, TopicNotFoundError
from rmqnet.remoting.acl import AclCredentials
from rmqnet.remoting.codes import ResponseCode
from rmqnet.remoting.remoting_client import RemotingClient, RemotingClientConfig
from rmqnet.remoting.tls import TlsConfig
from rmqsource.live.errors import ClusterError
from store_core.event_loop_thread import EventLoopThread
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterator
    from concurrent.futures import Future

    from rmqsource.live.live_options import ClusterConnection

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PASSING = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.TOPIC_NOT_EXIST,
    }
)
"""Response codes of brokers that are starting, stopping or overloaded."""
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0


def credentials(connection: ClusterConnection) -> AclCredentials | None:
    """Return the ACL account of a client; None if it has none."""
    secrets = connection.secrets
    if secrets.access_key is None or secrets.secret_key is None:
        return None
    return AclCredentials(secrets.access_key, secrets.secret_key, secrets.security_token)


def tls_config(connection: ClusterConnection) -> TlsConfig | None:
    """Return a client's TLS settings; None if it does not use TLS."""
    files = connection.tls
    if files is None:
        return None
    password = connection.secrets.tls_key_password
    return TlsConfig(files.ca_file, files.cert_file, files.key_file, password, verify=files.verify)


class Cluster(ShuttingDown):
    """Connections to name servers and brokers; a context manager.

    Its coroutines run in a thread of its own; `call` runs one and waits for it.
    """

    def __init__(self, connection: ClusterConnection) -> None:
        self.connection = connection
        self.thread = EventLoopThread("rocketmq-live")
        self._opened: RemotingClient | None = None
        self.timeout_s = connection.request_timeout_ms / 1000

    def start(self) -> Cluster:
        """Start the thread and create the clients; servers are connected on the first request."""
        self.thread.start()
        try:
            self.call(self._open())
        except BaseException:
            self.shutdown()
            raise
        return self

    def shutdown(self) -> None:
        """Close all connections and end the thread."""
        remoting, self._opened = self._opened, None
        if remoting is not None and self.thread.is_running:
            self.call(remoting.close())
        self.thread.shutdown()

    def call(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine in the loop and return its result.

        Raises
        ------
        ClusterError
            The cluster cannot be reached, or refuses a request.
        """
        return self.wait_for(self.thread.submit(work))

    def wait_for(self, future: Future[T]) -> T:
        """Wait for a coroutine that was submitted to the loop; raises like `call`."""
        try:
            with self.explained():
                return future.result()
        except BaseException:
            future.cancel()
            raise

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn errors of servers and connections into an error of the source."""
        try:
            yield
        except (RemotingError, BrokerError, ClientError) as err:
            raise ClusterError(self.connection.namesrv_addr, str(err)) from err

    async def _open(self) -> None:
        self.remoting = self._opened = RemotingClient(
            RemotingClientConfig(), credentials(self.connection), tls_config(self.connection)
        )
        servers = self.connection.namesrv_addr.split(";")
        self.name_servers = NameServerClient(self.remoting, servers, self.timeout_s)
        self.routes = RouteTable(self.name_servers)
        self.brokers = BrokerClient(self.remoting, self.timeout_s, self.routes.describe)

    async def address_of(self, topic: str, broker_name: str) -> str:
        """Return the address for reads from a broker: its master's, else any slave's.

        Raises
        ------
        ClientError
            No route of the topic names the broker.
        """
        await self.routes.route(topic)
        return self.routes.find_broker(broker_name, only_this_broker=False).address

    async def patiently(
        self, what: str, topic: str, attempt: Callable[[], Awaitable[T]], *, named: bool = True
    ) -> T:
        """Return the result of an attempt, repeating it while its failure may be temporary.

        Pauses grow; the topic's route is refreshed before each repetition.

        Parameters
        ----------
        topic
            Topic whose route the attempt uses; empty if it needs none.
        """
        deadline = Patience(self.connection.retry_timeout_ms)
        while True:
            try:
                return await attempt()
            except (RemotingError, ClientError, BrokerError) as err:
                if not may_pass(err) or (named and isinstance(err, TopicNotFoundError)):
                    raise
                await deadline.pause(f"{what}: {err}", err)
            if topic:
                await self.refresh(topic)

    async def refresh(self, topic: str) -> None:
        """Refresh a route; the known one stays if no server answers."""
        try:
            await self.routes.refresh(topic)
        except (RemotingError, ClientError, BrokerError) as err:
            logger.info("the route of topic %s is currently unknown: %s", topic, err)


def may_pass(error: Exception) -> bool:
    """Return whether the same request may succeed later."""
    if isinstance(error, BrokerError):
        return error.code in _PASSING and not error.is_access_refused
    return isinstance(error, (RemotingError, ClientError))


class Patience:
    """Growing pauses between attempts until a deadline."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._deadline = time.monotonic() + timeout_ms / 1000
        self._next_s = _FIRST_PAUSE_S
        self._is_told = False

    async def pause(self, what: str, error: Exception) -> None:
        """Wait before the next attempt; raise `error` if the time is up."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise error
        if not self._is_told:
            logger.warning("%s; retried for %d ms", what, self._timeout_ms)
            self._is_told = True
        await asyncio.sleep(min(self._next_s * random.uniform(0.5, 1.0), left_s))
        self._next_s = min(self._next_s * 2, _LONGEST_PAUSE_S)
