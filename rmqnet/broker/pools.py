# SPDX-License-Identifier: Apache-2.0
"""The pools of a broker: one per kind of work, so that a slow kind does not block the others.

Source: RocketMQ ``BrokerController.initializeResources`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from rmqnet.remoting.worker_pool import WorkerPool

if TYPE_CHECKING:
    from rmqnet.broker.broker_config import BrokerConfig

logger = logging.getLogger(__name__)

_STOP_SECONDS = 4.0


class Pools:
    """Threads and queues for all kinds of requests, with the sizes of the settings.

    Attributes
    ----------
    client
        Offsets, locks, and members of groups: short work that must not queue after heartbeats.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.send = WorkerPool(
            "send", config.send_message_thread_pool_nums, config.send_thread_pool_queue_capacity
        )
        self.pull = WorkerPool(
            "pull", config.pull_message_thread_pool_nums, config.pull_thread_pool_queue_capacity
        )
        self.query = WorkerPool(
            "query", config.query_message_thread_pool_nums, config.query_thread_pool_queue_capacity
        )
        self.admin = WorkerPool(
            "admin",
            config.admin_broker_thread_pool_nums,
            config.admin_broker_thread_pool_queue_capacity,
        )
        self.heartbeat = WorkerPool(
            "heartbeat",
            config.heartbeat_thread_pool_nums,
            config.heartbeat_thread_pool_queue_capacity,
        )
        self.client = WorkerPool(
            "client",
            config.client_manage_thread_pool_nums,
            config.client_manager_thread_pool_queue_capacity,
        )
        self.transaction = WorkerPool(
            "transaction",
            config.end_transaction_thread_pool_nums,
            config.end_transaction_pool_queue_capacity,
        )
        self.reply = WorkerPool(
            "reply",
            config.process_reply_message_thread_pool_nums,
            config.reply_thread_pool_queue_capacity,
        )

    @property
    def all(self) -> tuple[WorkerPool, ...]:
        """Every pool."""
        return tuple(each for each in vars(self).values() if isinstance(each, WorkerPool))

    def start(self) -> None:
        """Start the threads."""
        for pool in self.all:
            pool.start()

    def shutdown(self) -> None:
        """Drop waiting requests, and wait up to `_STOP_SECONDS` for running ones.

        Their clients are disconnected by now, so no one misses a late answer.
        """
        for pool in self.all:
            pool.end()
        deadline = time.monotonic() + _STOP_SECONDS
        for pool in self.all:
            if not pool.shutdown(max(deadline - time.monotonic(), 0)):
                logger.warning(
                    "pool %s is still processing a request: not waiting for it", pool.name
                )
