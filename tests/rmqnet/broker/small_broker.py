# SPDX-License-Identifier: Apache-2.0
"""A broker on a new store, with the parts for messages, and a client for requests."""

from __future__ import annotations

from typing import Any

from rmqnet.broker.broker import Broker
from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.clients.broker_to_client import BrokerToClient
from rmqnet.broker.clients.consumer_manager import ConsumerManager
from rmqnet.broker.clients.producer_manager import ProducerManager
from rmqnet.broker.clients.rebalance_lock_manager import RebalanceLockManager
from rmqnet.broker.pools import Pools
from rmqnet.broker.processor.end_transaction import EndTransactionProcessor
from rmqnet.broker.processor.pull_message import PullMessageProcessor
from rmqnet.broker.processor.query_message import QueryMessageProcessor
from rmqnet.broker.processor.queue_offsets import QueueOffsetProcessor
from rmqnet.broker.processor.reply_message import ReplyMessageProcessor
from rmqnet.broker.processor.send_back import SendBackProcessor
from rmqnet.broker.processor.send_message import SendMessageProcessor
from rmqnet.broker.state.consumer_offset_manager import ConsumerOffsetManager
from rmqnet.broker.state.subscription_group_manager import SubscriptionGroupManager
from rmqnet.broker.state.topic_config_manager import TopicConfigManager
from rmqnet.client.broker_client import BrokerClient
from rmqnet.remoting.headers import PullMessageRequestHeader, SendMessageRequestHeaderV2
from rmqnet.remoting.remoting_client import RemotingClient
from rmqnet.remoting.remoting_server import RemotingServer
from store_core import MessageStore, MessageStoreConfig, TransactionalMessageService
from store_core.codec.message_codec import properties_to_bytes
from store_core.config.config_files import TopicConfig
from store_core.event_loop_thread import EventLoopThread
from store_core.filter.bloom_filter import BloomFilter
from store_core.filter.consumer_filter_manager import ConsumerFilterManager
from store_core.message_store import now_ms

BORN = 1_700_000_000_000


class SmallBroker:
    """A context manager; ``ask`` takes the name and arguments of a `BrokerClient` method."""

    def __init__(self, root: Any, **settings: Any) -> None:
        self.config = BrokerConfig(broker_name="broker-a", **settings)
        self.store = MessageStore(
            MessageStoreConfig(
                store_path_root_dir=str(root),
                mapped_file_size_commit_log=1 << 22,
                message_delay_level="1s 2s 3s 4s",
            ),
            dispatchers=[self._dispatched],
            is_batch_topic=self._is_batch_topic,
            is_awaited=self._is_awaited,
        )
        self.server = RemotingServer("broker")
        self.pools = Pools(self.config)
        state = (self.config, str(root), now_ms)
        self.broker = Broker(
            self.config,
            self.store,
            TopicConfigManager(*state),
            SubscriptionGroupManager(*state),
            ConsumerOffsetManager(*state),
            self.server,
            now_ms,
            ProducerManager(),
            ConsumerManager(),
            RebalanceLockManager(now_ms),
            BrokerToClient(self.server),
            ConsumerFilterManager(BloomFilter(), now_ms),
        )
        self.transactions = TransactionalMessageService(self.store)
        self.broker.transactions = self.transactions
        self.pulls = PullMessageProcessor(self.broker)
        for processor in (
            self.pulls,
            SendMessageProcessor(self.broker),
            SendBackProcessor(self.broker),
            ReplyMessageProcessor(self.broker),
            QueryMessageProcessor(self.broker),
            QueueOffsetProcessor(self.broker),
            EndTransactionProcessor(self.broker),
        ):
            processor.register(self.server, self.pools)
        self._thread = EventLoopThread("client")

    def _dispatched(self, frames: Any) -> None:
        self.broker.holds.dispatched(frames)

    def _is_awaited(self, topic: str, queue_id: int) -> bool:
        return self.broker.holds.is_awaited(topic, queue_id)

    def _is_batch_topic(self, topic: str) -> bool:
        config = self.broker.topics.select(topic)
        return config is not None and config.has_batch_queues

    def __enter__(self) -> SmallBroker:
        self.store.load()
        self.store.start()
        self.transactions.load()
        self.pools.start()
        self.address = f"127.0.0.1:{self.server.start('127.0.0.1', 0)}"
        self._thread.start()
        self.remoting = self._thread.submit(self._client()).result()
        self.client = BrokerClient(self.remoting)
        return self

    async def _client(self) -> RemotingClient:
        return RemotingClient()

    def __exit__(self, *_: object) -> None:
        self._thread.submit(self.remoting.close()).result()
        self._thread.shutdown()
        self.server.shutdown()
        self.pools.shutdown()
        self.transactions.shutdown()
        self.store.shutdown()

    def submit(self, method: str, *args: Any, **options: Any) -> Any:
        return self._thread.submit(getattr(self.client, method)(self.address, *args, **options))

    def ask(self, method: str, *args: Any, **options: Any) -> Any:
        return self.submit(method, *args, **options).result(10)

    def invoke(self, command: Any) -> Any:
        return self._thread.submit(self.remoting.invoke(self.address, command, 10)).result()

    def add_topic(self, name: str, queues: int = 4, **settings: Any) -> None:
        config = TopicConfig(name, queues, queues, **settings)
        self.broker.topics.update(config, {})

    def send(self, topic: str, body: bytes, properties: Any = None, **fields: Any) -> Any:
        header = send_header(topic, properties, **fields)
        return self.ask("send_message", header, body, message_id="")

    def pull(self, topic: str, queue_id: int, offset: int, **fields: Any) -> Any:
        return self.ask("pull", pull_header(topic, queue_id, offset, **fields), timeout_s=10)


def send_header(topic: str, properties: Any = None, **fields: Any) -> SendMessageRequestHeaderV2:
    text = properties_to_bytes((properties or {}).items()).decode()
    values = {
        "producer_group": "P",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": BORN,
        "flag": 7,
        "properties": text,
        **fields,
    }
    return SendMessageRequestHeaderV2(topic=topic, **values)


def pull_header(topic: str, queue_id: int, offset: int, **fields: Any) -> PullMessageRequestHeader:
    values = {
        "consumer_group": "C",
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "sub_version": 0,
        "subscription": "*",
        **fields,
    }
    return PullMessageRequestHeader(topic=topic, queue_id=queue_id, queue_offset=offset, **values)
