# SPDX-License-Identifier: Apache-2.0
"""A broker with clients: only the parts that a test needs, around a small store."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Callable

from rmqnet.broker.broker import Broker
from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.clients.broker_to_client import BrokerToClient
from rmqnet.broker.clients.consumer_manager import ConsumerChanges, ConsumerManager
from rmqnet.broker.clients.producer_manager import ProducerManager
from rmqnet.broker.clients.rebalance_lock_manager import RebalanceLockManager
from rmqnet.broker.pools import Pools
from rmqnet.broker.processor.client_manage import ClientHousekeeping
from rmqnet.broker.state.consumer_offset_manager import ConsumerOffsetManager
from rmqnet.broker.state.subscription_group_manager import SubscriptionGroupManager
from rmqnet.broker.state.topic_config_manager import TopicConfigManager
from rmqnet.client.broker_admin_client import BrokerAdminClient
from rmqnet.client.broker_client import BrokerClient
from rmqnet.client.request_calls import RequestCalls
from rmqnet.remoting.remoting_client import RemotingClient
from rmqnet.remoting.remoting_server import RemotingServer
from store_core.config.message_store_config import MessageStoreConfig
from store_core.message import Message
from store_core.message_store import MessageStore

BROKER_NAME = "broker-a"
_SIZES = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20 * 1000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


class ClientBroker:
    """The parts, and clients of them; leaving the block ends everything.

    Parameters
    ----------
    root
        The store root.
    processors
        Classes of request processors.
    properties
        Properties of the broker, by RocketMQ's keys.
    """

    def __init__(self, root: Path, *processors: Callable[[Broker], Any], **properties: str) -> None:
        self.now = 1_700_000_000_000
        config = BrokerConfig.from_properties({"brokerName": BROKER_NAME, **properties})
        self.store = MessageStore(MessageStoreConfig(store_path_root_dir=str(root), **_SIZES))
        self.store.load()
        self.store.start()
        server = RemotingServer("broker")
        to_client = BrokerToClient(server)
        filters = self.store.consumer_filters
        self.broker = Broker(
            config=config,
            store=self.store,
            topics=TopicConfigManager(config, str(root), self.clock),
            groups=SubscriptionGroupManager(config, str(root), self.clock),
            offsets=ConsumerOffsetManager(config, str(root), self.clock),
            server=server,
            clock=self.clock,
            producers=ProducerManager(),
            consumers=ConsumerManager(ConsumerChanges(config, to_client, filters)),
            locks=RebalanceLockManager(self.clock),
            to_client=to_client,
            filters=filters,
        )
        self.pools = Pools(config)
        self.housekeeping = ClientHousekeeping(self.broker, self.pools.heartbeat)
        self.processors = [each(self.broker) for each in processors]
        for processor in self.processors:
            processor.register(server, self.pools)
        self.pools.start()
        self.port = server.start("127.0.0.1", 0)

    def __enter__(self) -> ClientBroker:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with ExitStack() as ending:  # if the first fails, the rest still ends
            ending.callback(self.store.shutdown)
            ending.callback(self.pools.shutdown)
            ending.callback(self.broker.server.shutdown)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def clock(self) -> int:
        return self.now

    def put(self, topic: str, *bodies: bytes, queue_id: int = 0, **properties: str) -> list[Any]:
        """Put messages, and wait until they are in their queues."""
        results = [
            self.store.put_message(Message(topic, body, queue_id=queue_id, properties=properties))
            for body in bodies
        ]
        assert self.store.wait_for_dispatch(10)
        return results

    def ask(self, call: Callable[[BrokerClient, BrokerAdminClient], Any]) -> Any:
        """Return the answer that this project's own client gets."""

        async def run() -> Any:
            remoting = RemotingClient()
            calls = RequestCalls(remoting, 5.0)
            try:
                return await call(BrokerClient(remoting, 5.0), BrokerAdminClient(calls))
            finally:
                await remoting.close()

        return asyncio.run(run())


class FakeConnection:
    """The part of a connection that managers and processors use."""

    def __init__(self, address: str = "10.0.0.1:5000", *, is_open: bool = True) -> None:
        self.address = address
        self.is_open = self.is_writable = is_open

    def write(self, frame: bytes) -> None:
        """Take the broker's notices to its clients, such as who has joined."""
