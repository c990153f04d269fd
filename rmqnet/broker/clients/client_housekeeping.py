"""Forgetting clients that are gone, or silent.

Source: RocketMQ ``ClientHousekeepingService`` (release 5.3.3), which looks every 10 s.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.remoting.server_connection import ServerConnection
    from rmqnet.remoting.worker_pool import WorkerPool

HOUSEKEEPING_SECONDS = 10.0


class ClientHousekeeping:
    """Keeps the tables of producers and consumers true."""

    def __init__(self, broker: Broker, pool: WorkerPool) -> None:
        self._broker = broker
        self._pool = pool
        broker.server.on_close(self._on_close)

    def run_once(self) -> bool:
        """Forget who was silent for too long; return whether there was somebody.

        To be called every `HOUSEKEEPING_SECONDS`.
        """
        broker = self._broker
        now = broker.clock()
        before = now - broker.config.channel_expired_timeout
        silent = [*broker.consumers.expire(before), *broker.producers.expire(before)]
        for connection in dict.fromkeys(silent):
            seconds = broker.config.channel_expired_timeout // 1000
            broker.server.disconnect(connection, f"no heartbeat for {seconds} seconds")
        broker.consumers.expire_compensations(now - broker.config.subscription_expired_timeout)
        return bool(silent)

    def _on_close(self, connection: ServerConnection) -> None:
        forget = functools.partial(forget_client, self._broker, connection)
        if not self._pool.submit(forget):
            forget()


def forget_client(broker: Broker, connection: ServerConnection) -> None:
    """Take a client whose connection ended out of all groups."""
    broker.producers.remove(connection)
    broker.consumers.remove(connection)
