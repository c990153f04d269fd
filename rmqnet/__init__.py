# SPDX-License-Identifier: Apache-2.0
"""RocketMQ on the network: its protocol, a client of running clusters, name server and broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core import __version__ as __version__
from store_core.exports import lazy_exports

# ruff: noqa: I001 (one import per module, though each of its names has an "as")
if TYPE_CHECKING:
    from rmqnet.client.admin.admin import EARLIEST as EARLIEST, LATEST as LATEST, Admin as Admin
    from rmqnet.client.admin_results import (
        Connection as Connection,
        ConsumerConnections as ConsumerConnections,
        ConsumeStats as ConsumeStats,
        GroupConfig as GroupConfig,
        QueueConsumption as QueueConsumption,
        QueueStats as QueueStats,
    )
    from rmqnet.client.client_config import ClientConfig as ClientConfig
    from rmqnet.client.client_instance import ClientInstance as ClientInstance
    from rmqnet.client.consumer.allocation import (
        AllocateAveragely as AllocateAveragely,
        AllocateAveragelyByCircle as AllocateAveragelyByCircle,
        AllocateByConfig as AllocateByConfig,
        AllocateByMachineRoom as AllocateByMachineRoom,
    )
    from rmqnet.client.consumer.consumer_options import (
        PullConsumerOptions as PullConsumerOptions,
        PushConsumerOptions as PushConsumerOptions,
    )
    from rmqnet.client.consumer.listening import ConsumeContext as ConsumeContext
    from rmqnet.client.consumer.pull_consumer import PullConsumer as PullConsumer
    from rmqnet.client.consumer.push_consumer import PushConsumer as PushConsumer
    from rmqnet.client.heartbeat_data import (
        ConsumeFromWhere as ConsumeFromWhere,
        MessageModel as MessageModel,
    )
    from rmqnet.client.message_queue import MessageQueue as MessageQueue
    from rmqnet.client.producer.producer import Producer as Producer
    from rmqnet.client.producer.producer_config import ProducerConfig as ProducerConfig
    from rmqnet.client.producer.request_reply import reply_to as reply_to
    from rmqnet.client.producer.transaction_producer import (
        LocalTransactionState as LocalTransactionState,
        TransactionListener as TransactionListener,
        TransactionProducer as TransactionProducer,
        TransactionSendResult as TransactionSendResult,
    )
    from rmqnet.client.send_result import (
        PullResult as PullResult,
        PullStatus as PullStatus,
        SendResult as SendResult,
        SendStatus as SendStatus,
    )
    from rmqnet.client.topic_route import ClusterInfo as ClusterInfo, TopicRoute as TopicRoute
    from rmqnet.errors import (
        BrokerError as BrokerError,
        ClientError as ClientError,
        RemotingConnectError as RemotingConnectError,
        RemotingError as RemotingError,
        RemotingFormatError as RemotingFormatError,
        RemotingTimeoutError as RemotingTimeoutError,
        RemotingTooMuchRequestError as RemotingTooMuchRequestError,
        SendAttempt as SendAttempt,
        SendFailedError as SendFailedError,
        SendTimeoutError as SendTimeoutError,
        TopicNotFoundError as TopicNotFoundError,
    )
    from rmqnet.remoting.acl import AclCredentials as AclCredentials
    from rmqnet.remoting.tls import TlsConfig as TlsConfig
    from rmqnet.served_store import ServedStore as ServedStore, serve as serve
    from store_core.config.config_files import TopicConfig as TopicConfig
    from store_core.message import Message as Message
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        globals(),
        {
            "rmqnet.client.admin.admin": "EARLIEST LATEST Admin",
            "rmqnet.client.admin_results": (
                "Connection ConsumerConnections ConsumeStats GroupConfig QueueConsumption "
                "QueueStats"
            ),
            "rmqnet.client.client_config": "ClientConfig",
            "rmqnet.client.client_instance": "ClientInstance",
            "rmqnet.client.consumer.allocation": (
                "AllocateAveragely AllocateAveragelyByCircle AllocateByConfig AllocateByMachineRoom"
            ),
            "rmqnet.client.consumer.consumer_options": "PullConsumerOptions PushConsumerOptions",
            "rmqnet.client.consumer.listening": "ConsumeContext",
            "rmqnet.client.consumer.pull_consumer": "PullConsumer",
            "rmqnet.client.consumer.push_consumer": "PushConsumer",
            "rmqnet.client.heartbeat_data": "ConsumeFromWhere MessageModel",
            "rmqnet.client.message_queue": "MessageQueue",
            "rmqnet.client.producer.producer": "Producer",
            "rmqnet.client.producer.producer_config": "ProducerConfig",
            "rmqnet.client.producer.request_reply": "reply_to",
            "rmqnet.client.producer.transaction_producer": (
                "LocalTransactionState TransactionListener TransactionProducer "
                "TransactionSendResult"
            ),
            "rmqnet.client.send_result": "PullResult PullStatus SendResult SendStatus",
            "rmqnet.client.topic_route": "ClusterInfo TopicRoute",
            "rmqnet.errors": (
                "BrokerError ClientError RemotingConnectError RemotingError "
                "RemotingFormatError RemotingTimeoutError RemotingTooMuchRequestError "
                "SendAttempt SendFailedError SendTimeoutError TopicNotFoundError"
            ),
            "rmqnet.remoting.acl": "AclCredentials",
            "rmqnet.remoting.tls": "TlsConfig",
            "rmqnet.served_store": "ServedStore serve",
            "store_core.config.config_files": "TopicConfig",
            "store_core.message": "Message",
        },
    )
