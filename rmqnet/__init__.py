"""RocketMQ on the network: its protocol, a client of running clusters, name server and broker."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqnet.client.admin.admin import EARLIEST, LATEST, Admin
    from rmqnet.client.admin_results import (
        Connection,
        ConsumerConnections,
        ConsumeStats,
        GroupConfig,
        QueueConsumption,
        QueueStats,
    )
    from rmqnet.client.client_config import ClientConfig
    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.consumer.allocation import (
        AllocateAveragely,
        AllocateAveragelyByCircle,
        AllocateByConfig,
        AllocateByMachineRoom,
    )
    from rmqnet.client.consumer.consumer_options import PullConsumerOptions, PushConsumerOptions
    from rmqnet.client.consumer.listening import ConsumeContext
    from rmqnet.client.consumer.pull_consumer import PullConsumer
    from rmqnet.client.consumer.push_consumer import PushConsumer
    from rmqnet.client.heartbeat_data import ConsumeFromWhere, MessageModel
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.producer.producer import Producer
    from rmqnet.client.producer.producer_config import ProducerConfig
    from rmqnet.client.producer.request_reply import reply_to
    from rmqnet.client.producer.transaction_producer import (
        LocalTransactionState,
        TransactionListener,
        TransactionProducer,
        TransactionSendResult,
    )
    from rmqnet.client.send_result import PullResult, PullStatus, SendResult, SendStatus
    from rmqnet.client.topic_route import ClusterInfo, TopicRoute
    from rmqnet.errors import (
        BrokerError,
        ClientError,
        RemotingConnectError,
        RemotingError,
        RemotingFormatError,
        RemotingTimeoutError,
        RemotingTooMuchRequestError,
        SendAttempt,
        SendFailedError,
        SendTimeoutError,
        TopicNotFoundError,
    )
    from rmqnet.remoting.acl import AclCredentials
    from rmqnet.remoting.tls import TlsConfig
    from rmqnet.served_store import ServedStore, serve
    from store_core.config.config_files import TopicConfig
    from store_core.message import Message

__all__ = [
    "EARLIEST",
    "LATEST",
    "AclCredentials",
    "Admin",
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByMachineRoom",
    "BrokerError",
    "ClientConfig",
    "ClientError",
    "ClientInstance",
    "ClusterInfo",
    "Connection",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeStats",
    "ConsumerConnections",
    "GroupConfig",
    "LocalTransactionState",
    "Message",
    "MessageModel",
    "MessageQueue",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PullConsumerOptions",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushConsumerOptions",
    "QueueConsumption",
    "QueueStats",
    "RemotingConnectError",
    "RemotingError",
    "RemotingFormatError",
    "RemotingTimeoutError",
    "RemotingTooMuchRequestError",
    "SendAttempt",
    "SendFailedError",
    "SendResult",
    "SendStatus",
    "SendTimeoutError",
    "ServedStore",
    "TlsConfig",
    "TopicConfig",
    "TopicNotFoundError",
    "TopicRoute",
    "TransactionListener",
    "TransactionProducer",
    "TransactionSendResult",
    "reply_to",
    "serve",
]

# Where the names are that are no errors. Loaded when first asked for: a process that only plans
# a Spark query has no use for sockets.
_MODULES = {
    "AclCredentials": "rmqnet.remoting.acl",
    "Admin": "rmqnet.client.admin.admin",
    "AllocateAveragely": "rmqnet.client.consumer.allocation",
    "AllocateAveragelyByCircle": "rmqnet.client.consumer.allocation",
    "AllocateByConfig": "rmqnet.client.consumer.allocation",
    "AllocateByMachineRoom": "rmqnet.client.consumer.allocation",
    "ClientConfig": "rmqnet.client.client_config",
    "ClientInstance": "rmqnet.client.client_instance",
    "ClusterInfo": "rmqnet.client.topic_route",
    "Connection": "rmqnet.client.admin_results",
    "ConsumeContext": "rmqnet.client.consumer.listening",
    "ConsumeFromWhere": "rmqnet.client.heartbeat_data",
    "ConsumeStats": "rmqnet.client.admin_results",
    "ConsumerConnections": "rmqnet.client.admin_results",
    "EARLIEST": "rmqnet.client.admin.admin",
    "GroupConfig": "rmqnet.client.admin_results",
    "LATEST": "rmqnet.client.admin.admin",
    "LocalTransactionState": "rmqnet.client.producer.transaction_producer",
    "Message": "store_core.message",
    "MessageModel": "rmqnet.client.heartbeat_data",
    "MessageQueue": "rmqnet.client.message_queue",
    "Producer": "rmqnet.client.producer.producer",
    "ProducerConfig": "rmqnet.client.producer.producer_config",
    "PullConsumer": "rmqnet.client.consumer.pull_consumer",
    "PullConsumerOptions": "rmqnet.client.consumer.consumer_options",
    "PullResult": "rmqnet.client.send_result",
    "PullStatus": "rmqnet.client.send_result",
    "PushConsumer": "rmqnet.client.consumer.push_consumer",
    "PushConsumerOptions": "rmqnet.client.consumer.consumer_options",
    "QueueConsumption": "rmqnet.client.admin_results",
    "QueueStats": "rmqnet.client.admin_results",
    "SendResult": "rmqnet.client.send_result",
    "SendStatus": "rmqnet.client.send_result",
    "ServedStore": "rmqnet.served_store",
    "TlsConfig": "rmqnet.remoting.tls",
    "TopicConfig": "store_core.config.config_files",
    "TopicRoute": "rmqnet.client.topic_route",
    "TransactionListener": "rmqnet.client.producer.transaction_producer",
    "TransactionProducer": "rmqnet.client.producer.transaction_producer",
    "TransactionSendResult": "rmqnet.client.producer.transaction_producer",
    "reply_to": "rmqnet.client.producer.request_reply",
    "serve": "rmqnet.served_store",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES.get(name, "rmqnet.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
