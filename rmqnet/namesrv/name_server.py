"""A name server as a service of this process."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Callable

from rmqnet.errors import ClientError
from rmqnet.namesrv.kv_config_manager import KVConfigManager
from rmqnet.namesrv.name_server_config import NameServerConfig
from rmqnet.namesrv.name_server_processor import NameServerProcessor
from rmqnet.namesrv.route_info_manager import RouteInfoManager
from rmqnet.remoting.remoting_server import RemotingServer
from rmqnet.remoting.server_connection import ServerConnection
from rmqnet.remoting.worker_pool import WorkerPool
from store_core.services.service_thread import RepeatedService
from store_core.with_blocks import Stopping

if TYPE_CHECKING:
    from rmqnet.remoting.remoting_command import RemotingCommand
    from rmqnet.remoting.remoting_server import Gate, RemotingServerConfig
    from rmqnet.remoting.tls import ServerTls

logger = logging.getLogger(__name__)

_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # of those that mean all


class NameServer(Stopping):
    """Tells clients where brokers are, which register with it (RocketMQ ``NamesrvController``).

    ``with NameServer(NameServerConfig(port=0)) as server: server.address``. RocketMQ's brokers and
    clients of 4.9 and 5.x use it as their own. What it knows of brokers is in memory only: they
    tell it again every 30 seconds.

    Parameters
    ----------
    tls
        How connections are encrypted; None: not at all.
    gate
        Looks at each request first; None: anybody may ask, and register brokers.

    Raises
    ------
    ClientError
        The file of values, or one that ``tls`` names, cannot be used.
    """

    def __init__(
        self,
        config: NameServerConfig | None = None,
        limits: RemotingServerConfig | None = None,
        tls: ServerTls | None = None,
        gate: Gate | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config = config or NameServerConfig()
        self.routes = RouteInfoManager(clock)
        self.port = config.port
        self._kv_configs = KVConfigManager(config.kv_config_path)
        self._clock = clock
        self._clients = WorkerPool(
            "namesrv-clients",
            config.client_request_thread_pool_nums,
            config.client_request_thread_pool_queue_capacity,
        )
        self._others = WorkerPool(
            "namesrv-brokers",
            config.default_thread_pool_nums,
            config.default_thread_pool_queue_capacity,
        )
        context = None if tls is None else tls.ssl_context()
        self._server = RemotingServer("namesrv", limits, context)
        self._server.on_close(self.routes.unregister_connection)
        self._server.use_gate(gate)
        self._processor: NameServerProcessor | None = None
        self._scan = RepeatedService(
            "namesrv-scan", self.run_once, config.scan_not_active_broker_interval, is_late=True
        )

    @property
    def address(self) -> str:
        """``host:port``, as clients and brokers on this machine are told."""
        host = self.config.host
        host = _LOOPBACK.get(host, host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def start(self) -> int:
        """Listen; return the port, which is chosen where it is configured as 0.

        A second call does nothing.

        Raises
        ------
        ClientError
            The address cannot be listened at; the message names it.
        """
        if self._server.is_running:
            return self.port
        processor = NameServerProcessor(self.config, self.routes, self._kv_configs, self._clock)
        processor.register(self._server, self._clients, self._others)
        self._clients.start()
        self._others.start()
        try:
            self.port = self._server.start(self.config.host, self.config.port)
        except ClientError:
            self.stop()
            raise
        processor.config = replace(self.config, port=self.port)
        self._processor = processor
        self._scan.start()
        logger.info("the name server listens at %s", self.address)
        return self.port

    def stop(self) -> None:
        """Disconnect all, and listen no more; a second call does nothing."""
        self._scan.shutdown()
        self._server.stop()
        self._clients.stop()
        self._others.stop()

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """Answer a broker of this process, which needs neither an account nor a certificate.

        Raises
        ------
        ClientError
            The name server was not started.
        RemotingFormatError
            The request is not what it must be.
        """
        if self._processor is None:
            raise ClientError("the name server was not started")
        return self._processor.answer(request)

    def run_once(self) -> bool:
        """Forget brokers that are silent; return whether there were any. Its thread calls this."""
        expired = self.routes.expire()
        for connection in expired:
            if isinstance(connection, ServerConnection):
                self._server.disconnect(connection, "its broker said nothing for too long")
        return bool(expired)
