# SPDX-License-Identifier: Apache-2.0
"""Connections, routes and heartbeats that a process's clients of one cluster share."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, TypeVar

from rmqnet.client.broker_admin_client import BrokerAdminClient
from rmqnet.client.broker_client import BrokerClient
from rmqnet.client.broker_requests import BrokerRequests
from rmqnet.client.client_config import client_config
from rmqnet.client.heartbeats import Heartbeats
from rmqnet.client.name_server_client import NameServerClient
from rmqnet.client.outage_log import OutageLog
from rmqnet.client.request_calls import BrokerCalls
from rmqnet.client.route_table import AUTO_CREATE_TOPIC, RouteTable
from rmqnet.client.topic_route import MASTER_ID
from rmqnet.errors import ClientError, RemotingTimeoutError, TopicNotFoundError
from rmqnet.remoting.event_loop import new_event_loop
from rmqnet.remoting.remoting_client import RemotingClient, RemotingClientConfig
from store_core.event_loop_thread import EventLoopThread
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from concurrent.futures import Future

    from rmqnet.client.client_config import ClientConfig
    from rmqnet.client.heartbeats import GroupConsumer, GroupProducer
    from rmqnet.client.route_table import BrokerAddress
    from rmqnet.client.topic_route import TopicRoute

logger = logging.getLogger(__name__)
T = TypeVar("T")

_POOL_THREADS = 4
_FIRST_HEARTBEAT_S = 1.0
_LEAVING_TIMEOUT_S = 5.0
_FIRST_PAUSE_S = 1.0
_ANNOUNCE_WAIT_S = 0.5


class ClientInstance(ShuttingDown):
    """Connections, routes and heartbeats of one client (RocketMQ's ``MQClientInstance``).

    All sockets belong to one event loop, which runs in its own thread. The ``async`` methods run
    there: pass them to `call`, which waits, or to `submit`, which does not. All other methods may
    be called in any thread. The client sends heartbeats only while a group is registered.

    A forked child cannot use its parent's client: calls raise `ClientError`, and the child must
    start its own.

    Parameters
    ----------
    config
        The client's settings, or only the addresses of the name servers.
    own_instance_name
        If True, replace the instance name ``DEFAULT`` with one unique to this client. Use False
        if the client id must stay the same from run to run, as for broadcasting consumers that
        store their offsets in a file.
    """

    def __init__(self, config: ClientConfig | str, *, own_instance_name: bool = True) -> None:
        config = client_config(config)
        self.config = config.with_own_instance_name() if own_instance_name else config
        self.client_id = self.config.client_id
        self._loop_thread = EventLoopThread(f"rocketmq-client-{self.client_id}", new_event_loop)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._is_started = False
        self._is_closed = False
        self._waiting: set[Future[Any]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pool: ThreadPoolExecutor | None = None
        self._own_threads = threading.local()
        self._make_parts(self.config)

    def start(self) -> ClientInstance:
        """Start the thread without connecting yet. A second call does nothing."""
        self._check_process()
        with self._lock:
            if self._is_closed:
                raise ClientError(f"client {self.client_id} was shut down: create a new one")
            if not self._is_started:
                self._loop_thread.start()
                try:
                    self._loop_thread.submit(self._open()).result()
                except BaseException:
                    self._loop_thread.shutdown()
                    raise
                self._is_started = True
        return self

    def shutdown(self) -> None:
        """Leave all groups, close all connections and end the thread.

        Requests that are still waiting raise `ClientError`. May be called more than once and in any
        thread, including a listener's.
        """
        if self._process != os.getpid():  # the thread and sockets belong to the parent
            return
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
            if was_closed or not self._is_started:
                return
        if getattr(self._own_threads, "is_loop", False):
            # The loop cannot wait for its own end.
            threading.Thread(target=self._close, name="rocketmq-client-shutdown").start()
        else:
            self._close()

    @property
    def is_running(self) -> bool:
        """Whether this client accepts requests."""
        return self._is_started and not self._is_closed and self._process == os.getpid()

    @property
    def broker_versions(self) -> dict[str, int]:
        """MQVersion number of each broker that answered a heartbeat, by address."""
        return self._heartbeats.broker_versions

    # Calls into the event loop from other threads.

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the event loop and return immediately.

        Raises
        ------
        ClientError
            The client is not started, was shut down, or belongs to the parent process.
        """
        if not self.is_running:
            work.close()
            self._check_process()
            raise self._not_running()
        try:
            future = self._loop_thread.submit(work)
        except RuntimeError as err:
            raise self._not_running() from err
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        if self._is_closed:  # since the check above: _close may have missed this future
            self._cancel_waiting()
        return future

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine in the event loop and return its result.

        Parameters
        ----------
        timeout_s
            Longest wait. If None, wait until the coroutine ends; requests have their own timeouts.

        Raises
        ------
        RemotingTimeoutError
            The coroutine did not end in time and was cancelled.
        ClientError
            The client is not started, was shut down meanwhile, or belongs to the parent process;
            or the caller runs in the event loop's own thread, which must not wait.
        """
        if getattr(self._own_threads, "is_loop", False):
            work.close()
            raise ClientError(
                "a blocking call in the client's event loop would wait for itself: use submit "
                "there, or another thread"
            )
        future = self.submit(work)
        try:
            return future.result(timeout_s)
        except FutureTimeoutError as err:
            if future.done():  # its own timeout
                raise
            future.cancel()
            raise RemotingTimeoutError(f"no result within {timeout_s} s") from err
        except CancelledError as err:
            raise self._not_running() from err
        except BaseException:
            future.cancel()
            raise

    # Routes.

    def cached_route(self, topic: str) -> TopicRoute | None:
        """Return a topic's cached route without asking a name server; None if not cached."""
        return self._routes.cached(topic)

    async def route(self, topic: str) -> TopicRoute:
        """Return a topic's route, asking a name server if it is not cached.

        While the topic is in use, the route is refreshed each ``poll_name_server_interval_ms``.

        Raises
        ------
        TopicNotFoundError
            The name server does not know the topic.
        """
        return await self._announced(self._routes.route(topic))

    async def refresh_route(self, topic: str) -> TopicRoute:
        """Ask a name server for a route now, for example after a broker did not answer."""
        return await self._announced(self._routes.refresh(topic))

    async def publish_route(
        self, topic: str, queue_nums: int = 4, created_like: str = AUTO_CREATE_TOPIC
    ) -> TopicRoute:
        """Return the route for sending; for an unknown topic, the route brokers will give it.

        Parameters
        ----------
        queue_nums
            Most queues that a topic created this way gets on each broker
            (``defaultTopicQueueNums``).
        created_like
            The topic whose queues brokers copy (``createTopicKey``).
        """
        route = self._routes.publish_route(topic, queue_nums, created_like)
        return await self._announced(route)

    def find_broker(
        self, broker_name: str, broker_id: int = MASTER_ID, *, only_this_broker: bool = True
    ) -> BrokerAddress:
        """Return the address of a broker named in a route, and whether it is a slave.

        Parameters
        ----------
        broker_id
            0 is the master. If a slave is gone, the slave with the next id is returned.
        only_this_broker
            If False, any other broker of that name may be returned instead.

        Raises
        ------
        ClientError
            No cached route names it.
        """
        return self._routes.find_broker(broker_name, broker_id, only_this_broker=only_this_broker)

    def broker_address(
        self, broker_name: str, broker_id: int = MASTER_ID, *, slave_ok: bool = False
    ) -> str:
        """Return a broker's address; with ``slave_ok``, that of any broker of the name.

        Raises
        ------
        ClientError
            No cached route names it.
        """
        return self.find_broker(broker_name, broker_id, only_this_broker=not slave_ok).address

    def addresses_of(self, broker_name: str) -> list[BrokerAddress]:
        """Return the addresses of a name's brokers, master first; empty if no route names it."""
        return self._routes.addresses_of(broker_name)

    def is_at(self, broker_name: str, address: str) -> bool:
        """Return whether a cached route gives this address for a broker or one of its slaves."""
        return address in self._routes.brokers.get(broker_name, {}).values()

    # Groups.

    async def register_producer(self, group: str, producer: GroupProducer) -> None:
        """Announce a producer to the brokers of its topics, now and with each heartbeat."""
        self._heartbeats.add_producer(group, producer)
        await self._heartbeats.send()

    async def register_consumer(self, group: str, consumer: GroupConsumer) -> None:
        """Announce a consumer to the brokers of its topics, now and with each heartbeat.

        A broker may report that the group's members changed before this returns.
        """
        self._heartbeats.add_consumer(group, consumer)
        for subscription in consumer.heartbeat_data().subscriptions:
            try:
                await self._routes.route(subscription.topic)
            except TopicNotFoundError as err:  # may be created later, as %RETRY% topics are
                logger.info("%s", err)
        await self._heartbeats.send()

    async def unregister_producer(self, group: str) -> None:
        """Leave a producer group and notify the brokers."""
        if self._heartbeats.producers.pop(group, None) is not None:
            await self._heartbeats.unregister(producer_group=group)

    async def unregister_consumer(self, group: str) -> None:
        """Leave a consumer group and notify the brokers, which notify the other members."""
        if self._heartbeats.consumers.pop(group, None) is not None:
            await self._heartbeats.unregister(consumer_group=group)

    def has_consumer(self, group: str, consumer: GroupConsumer) -> bool:
        """Return whether this client has announced this consumer as its member of a group."""
        return self._heartbeats.consumers.get(group) is consumer

    async def send_heartbeats(self) -> None:
        """Send heartbeats to all brokers in use now, for example after a subscription changed."""
        await self._heartbeats.send()

    def _make_parts(self, config: ClientConfig) -> None:
        self.remoting = RemotingClient(RemotingClientConfig(), config.credentials, config.tls)
        self.name_server = NameServerClient(self.remoting, config.name_servers, config.timeout_s)
        self.outages = OutageLog()
        self._routes = RouteTable(self.name_server, self.outages)
        origin = self._routes.describe
        self.broker = BrokerClient(self.remoting, config.timeout_s, origin)
        self.broker_admin = BrokerAdminClient(BrokerCalls(self.remoting, config.timeout_s, origin))
        self._announced_to = self._routes.brokers
        self._heartbeats = Heartbeats(self.client_id, self.broker, self._routes, self.outages)
        BrokerRequests(self._heartbeats, self._listener_pool).register(self.remoting)
        self.remoting.on_close(self._connection_closed)

    # In the loop.

    async def _open(self) -> None:
        self._own_threads.is_loop = True
        self._in_background(self._poll_routes())
        self._in_background(self._send_heartbeats())

    async def _poll_routes(self) -> None:
        while True:
            await asyncio.sleep(self.config.poll_name_server_interval_ms / 1000)
            await self._logged(self._refresh_routes())

    async def _refresh_routes(self) -> None:
        await self._routes.refresh_used(self._heartbeats.used_topics)
        await self._announce_to_new()

    async def _send_heartbeats(self) -> None:
        await asyncio.sleep(_FIRST_HEARTBEAT_S)
        while True:
            await self._logged(self._heartbeats.send())
            await asyncio.sleep(self.config.heartbeat_broker_interval_ms / 1000)

    async def _announced(self, route: Awaitable[TopicRoute]) -> TopicRoute:
        """Announce this client's groups to brokers that a route names for the first time."""
        found = await route
        if self._routes.brokers is not self._announced_to:
            self._announced_to = self._routes.brokers
            # A broker that does not answer must not delay requests to the others.
            task = self._in_background(self._logged(self._announce_to_new()))
            await asyncio.wait({task}, timeout=_ANNOUNCE_WAIT_S)
        return found

    async def _announce_to_new(self) -> bool:
        return await self._heartbeats.send_to_new()

    def _connection_closed(self, address: str) -> None:
        """Announce the groups again once the broker is back: it forgets them on disconnect."""
        for consumer in self._heartbeats.consumers.values():
            consumer.on_connection_closed(address)
        if self._heartbeats.forget(address) and not self._is_closed:
            self._in_background(self._logged(self._announce_again()))

    async def _announce_again(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while pause_s < self.config.heartbeat_broker_interval_ms / 1000:
            await asyncio.sleep(pause_s)
            if await self._announce_to_new():
                for consumer in self._heartbeats.consumers.values():
                    consumer.on_consumer_ids_changed()
                return
            pause_s *= 2

    async def _logged(self, work: Awaitable[object]) -> None:
        """Await work and log its failure, so that background tasks go on."""
        try:
            await work
        except Exception:
            logger.exception("client %s: a background task failed", self.client_id)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.wait_for(self._heartbeats.leave(), _LEAVING_TIMEOUT_S)
        except asyncio.TimeoutError:
            logger.warning("client %s: could not tell all brokers that it leaves", self.client_id)
        finally:
            await self.remoting.close()

    # Lifecycle.

    def _close(self) -> None:
        try:
            self._loop_thread.submit(self._leave()).result()
        finally:
            self._loop_thread.shutdown()
            self._cancel_waiting()
            if self._pool is not None:
                # Called by a listener, this must not wait for the listener's own thread.
                is_listener = getattr(self._own_threads, "is_listener", False)
                self._pool.shutdown(wait=not is_listener)

    def _listener_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:  # created only in the loop
            self._pool = ThreadPoolExecutor(
                _POOL_THREADS, f"rocketmq-listener-{self.client_id}", self._mark_listener
            )
        return self._pool

    def _mark_listener(self) -> None:
        self._own_threads.is_listener = True

    def _cancel_waiting(self) -> None:
        for future in list(self._waiting):
            future.cancel()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise ClientError(
                f"client {self.client_id} belongs to process {self._process}: this forked process "
                f"{os.getpid()} must start its own client"
            )

    def _not_running(self) -> ClientError:
        state = "was shut down" if self._is_closed else "is not started"
        return ClientError(f"client {self.client_id} {state}")
