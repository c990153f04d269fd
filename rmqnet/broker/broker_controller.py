# SPDX-License-Identifier: Apache-2.0
"""A broker: a store, its configuration files, and the server that clients connect to.

Source: RocketMQ ``BrokerController``, ``BrokerStartup`` (release 5.3.3).
"""

from __future__ import annotations

import functools
import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Callable

from rmqnet.broker.broker import Broker
from rmqnet.broker.clients.broker_to_client import BrokerToClient
from rmqnet.broker.clients.consumer_manager import ConsumerChanges, ConsumerManager
from rmqnet.broker.clients.producer_manager import ProducerManager
from rmqnet.broker.clients.rebalance_lock_manager import RebalanceLockManager
from rmqnet.broker.pools import Pools
from rmqnet.broker.processor.admin_groups import AdminClients, AdminGroups
from rmqnet.broker.processor.admin_offsets import AdminOffsets, AdminResets
from rmqnet.broker.processor.admin_runtime import AdminRuntime, AdminTimers
from rmqnet.broker.processor.admin_topics import AdminQueues, AdminTopics
from rmqnet.broker.processor.broker_processor import refuse
from rmqnet.broker.processor.client_manage import (
    HOUSEKEEPING_SECONDS,
    ClientHousekeeping,
    ClientManageProcessor,
)
from rmqnet.broker.processor.consumer_manage import ConsumerManageProcessor
from rmqnet.broker.processor.end_transaction import EndTransactionProcessor
from rmqnet.broker.processor.pull_message import PullMessageProcessor
from rmqnet.broker.processor.query_message import QueryMessageProcessor
from rmqnet.broker.processor.queue_offsets import QueueOffsetProcessor
from rmqnet.broker.processor.reply_message import ReplyMessageProcessor
from rmqnet.broker.processor.send_back import SendBackProcessor
from rmqnet.broker.processor.send_message import SendMessageProcessor
from rmqnet.broker.registration import Registration
from rmqnet.broker.roles.master import MasterRole
from rmqnet.remoting.remoting_server import RemotingServer
from store_core.message_store import now_ms
from store_core.services.service_thread import RepeatedService
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from rmqnet.broker.access.acl_gate import AclGate
    from rmqnet.broker.broker_config import BrokerConfig
    from rmqnet.broker.metrics.metrics_server import MetricsServer
    from rmqnet.broker.processor.broker_processor import BrokerProcessor
    from rmqnet.broker.roles.broker_role import BrokerRole
    from rmqnet.remoting.acl import AclCredentials
    from rmqnet.remoting.remoting_server import RemotingServerConfig
    from rmqnet.remoting.tls import ServerTls
    from store_core.codec.record_frames import RecordFrames
    from store_core.config.config_files import TopicConfig
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.recovery.recovery import LogRecovery

logger = logging.getLogger(__name__)

PROCESSORS: tuple[type[BrokerProcessor], ...] = (
    SendMessageProcessor,
    SendBackProcessor,
    ReplyMessageProcessor,
    PullMessageProcessor,
    QueryMessageProcessor,
    QueueOffsetProcessor,
    EndTransactionProcessor,
    ClientManageProcessor,
    ConsumerManageProcessor,
    AdminTopics,
    AdminGroups,
    AdminClients,
    AdminOffsets,
    AdminResets,
    AdminQueues,
    AdminTimers,
    AdminRuntime,
)


class BrokerController(ShuttingDown):
    """Opens a store and serves it until it is stopped; a context manager.

    Parameters
    ----------
    role
        What it does with its store; a master without slaves if None.
    tls
        Encryption of connections; they are unencrypted if None.
    acl
        Checks requests; if None, all are allowed. It is started and stopped with the broker.
    metrics
        Serves figures; optional. It is started and stopped with the broker.
    clock
        Returns ms since the epoch.
    """

    def __init__(  # noqa: PLR0913 (one parameter per part)
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        role: BrokerRole | None = None,
        *,
        host: str = "127.0.0.1",
        limits: RemotingServerConfig | None = None,
        tls: ServerTls | None = None,
        acl: AclGate | None = None,
        credentials: AclCredentials | None = None,
        metrics: MetricsServer | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.config = config
        self._host = host
        self._clock = clock
        self.role = role or MasterRole(config, store_config, clock)
        self._server = RemotingServer("broker", limits, None if tls is None else tls.ssl_context())
        self._acl, self._metrics = acl, metrics
        self._server.use_gate(None if acl is None else acl.look)
        self._pools = Pools(config)
        self.registration = Registration(config, self.role.topics, credentials)
        self.role.topics.on_change(self._topic_changed)
        self._process: int | None = None  # in which it runs
        self._recovery: LogRecovery | None = None

    @property
    def address(self) -> str:
        """Address for clients, ``host:port``."""
        return self.registration.broker_address

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped; False in a forked child of its process."""
        return self._process == os.getpid()

    def start(self) -> LogRecovery | None:
        """Open and serve the store, and register with the name servers.

        Return the result of recovery; None if the store is only read. A second call does nothing.

        Raises
        ------
        ClientError
            The broker cannot listen at the address.
        StoreLockedError
            Another process has the store open.
        StoreError
            The store cannot be opened; see ``MessageStore.load``.
        """
        if self.is_running:
            return self._recovery
        self.config.listen_port = self._server.bind(
            self._host, self.config.listen_port, vip_channel=self.role.has_slaves
        )
        try:
            return self._start()
        except BaseException:
            if self._metrics is not None:
                self._metrics.shutdown()
            self._server.shutdown()
            raise

    def _start(self) -> LogRecovery | None:
        self._recovery = self.role.open(self._dispatched, self._is_awaited)
        try:
            self._serve()
        except BaseException:
            self.role.close()
            raise
        self._process = os.getpid()
        return self._recovery

    def _serve(self) -> None:
        role, to_client = self.role, BrokerToClient(self._server)
        changes = ConsumerChanges(self.config, to_client, role.filters)
        self.broker = broker = Broker(
            self.config,
            role.store,
            role.topics,
            role.groups,
            role.offsets,
            self._server,
            self._clock,
            ProducerManager(),
            ConsumerManager(changes),
            RebalanceLockManager(self._clock),
            to_client,
            role.filters,
        )
        role.serve(broker)
        for processor in PROCESSORS:
            processor(broker).register(self._server, self._pools)
        self._server.register(role.refusals, functools.partial(refuse, role.refusals))
        housekeeping = ClientHousekeeping(broker, self._pools.client)
        self._services = (
            RepeatedService(
                "client-housekeeping",
                housekeeping.run_once,
                int(HOUSEKEEPING_SECONDS * 1000),
                is_late=True,
            ),
            RepeatedService(
                "consumer-offsets",
                self._persist,
                self.config.flush_consumer_offset_interval,
                is_late=True,
            ),
            broker.holds,
            *(() if self._acl is None else (self._acl,)),
        )
        try:
            self._run()
        except BaseException:
            self._end()
            raise

    def _run(self) -> None:
        if self._metrics is not None:
            self._metrics.start(self.broker, self._pools)
        self.role.start()
        self.registration.ha_address = self.role.ha_address
        self._pools.start()
        for service in self._services:
            service.start()
        self._server.serve()
        self.registration.open()
        self.registration.run_once()
        self.registration.start()
        self.role.join(self.registration)

    def shutdown(self) -> None:
        """Leave the name servers, disconnect all clients, and close the store cleanly.

        A second call does nothing, nor does one in a forked child.

        Raises
        ------
        StoreWriteError
            Consumer offsets, queues or index cannot be written. Everything is stopped nevertheless.
        """
        if self.is_running:
            self._process = None
            self._end()

    def _end(self) -> None:
        """Run all steps, even if one of them fails."""
        services = [service.shutdown for service in self._services]
        steps = (
            *(() if self._metrics is None else (self._metrics.shutdown,)),
            self.registration.shutdown,  # first: a slave registers the topics it copies
            self.role.leave,
            self.registration.close,
            self._server.shutdown,
            self._pools.shutdown,
            *services,
            self.role.shutdown,
            self._persist,
            self.role.close,
        )
        with ExitStack() as rest:
            for step in reversed(steps):
                rest.callback(step)

    def _persist(self) -> bool:
        self.role.offsets.persist()
        return True

    def _topic_changed(self, config: TopicConfig | None) -> None:
        del config
        self.registration.run_once()  # before the request that made the topic is answered

    def _is_awaited(self, topic: str, queue_id: int) -> bool:
        broker = getattr(self, "broker", None)
        return broker is not None and broker.holds.is_awaited(topic, queue_id)

    def _dispatched(self, frames: RecordFrames) -> None:
        broker = getattr(self, "broker", None)
        if broker is not None:
            broker.holds.dispatched(frames)
