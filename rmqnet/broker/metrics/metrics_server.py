# SPDX-License-Identifier: Apache-2.0
"""A server from which Prometheus reads the figures of a broker."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from rmqnet.errors import ClientError

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.broker.pools import Pools

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 10
_MAX_READERS = 16


class MetricsServer:
    """Answers ``GET /metrics`` while it runs.

    Parameters
    ----------
    host, port
        Address to listen at; port 0 takes any free port.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._is_stopping = False

    @property
    def address(self) -> str:
        """Address it listens at, ``host:port``; with the actual port from `start` on."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def start(self, broker: Broker, pools: Pools) -> None:
        """Start answering.

        Raises
        ------
        ClientError
            The server cannot listen at the address, or prometheus-client is not installed.
        """
        handler = _handler(broker, pools)
        try:
            self._server = _Server(self._host, self._port, handler)
        except OSError as err:
            raise ClientError(
                f"metrics cannot be served at {self.address}: {err.strerror or err}"
            ) from err
        self._port = int(self._server.server_address[1])
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def shutdown(self) -> None:
        """Stop answering; a second call does nothing."""
        if self._server is not None and self._thread is not None:
            self._is_stopping = True
            with suppress(OSError):  # the loop ends after its next connection: this one
                socket.create_connection((self._host, self._port), _PATIENCE_SECONDS).close()
            self._thread.join()
            self._server.server_close()
            self._server = self._thread = None

    def _run(self) -> None:
        while self._server is not None and not self._is_stopping:
            self._server.handle_request()


class _Server(ThreadingHTTPServer):
    """Serves up to `_MAX_READERS` at a time, without delaying the shutdown."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, host: str, port: int, handler: Any) -> None:
        self.address_family = _family(host)
        self._places = threading.BoundedSemaphore(_MAX_READERS)
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or close the connection if all are busy."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then free the thread's place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a reader's error, for debugging only."""
        logger.debug("metrics for %s: %s", client_address, sys.exc_info()[1])


def _family(host: str) -> Any:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _handler(broker: Broker, pools: Pools) -> Any:
    try:
        from prometheus_client import CollectorRegistry, MetricsHandler  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as err:
        raise ClientError(
            "metrics require the Python package prometheus-client (extra serve)"
        ) from err
    from rmqnet.broker.metrics.broker_collector import BrokerCollector  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(BrokerCollector(broker, pools))
    handler = MetricsHandler.factory(registry)
    return type("Handler", (handler,), {"timeout": _PATIENCE_SECONDS})
