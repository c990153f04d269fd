"""RocketMQ on the network: its protocol, and a client of running clusters."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqnet.client.client_config import ClientConfig
    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.consumer.allocation import (
        AllocateAveragely,
        AllocateAveragelyByCircle,
        AllocateByConfig,
        AllocateByMachineRoom,
    )
    from rmqnet.client.consumer.listening import ConsumeContext
    from rmqnet.client.consumer.push_consumer import PushConsumer
    from rmqnet.client.consumer.push_options import PushConsumerOptions
    from rmqnet.client.heartbeat_data import ConsumeFromWhere, MessageModel
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.pull_result import PullResult, PullStatus
    from rmqnet.client.send_result import SendResult, SendStatus
    from rmqnet.client.topic_route import TopicRoute
    from rmqnet.errors import (
        BrokerError,
        ClientError,
        RemotingConnectError,
        RemotingError,
        RemotingFormatError,
        RemotingTimeoutError,
        RemotingTooMuchRequestError,
        TopicNotFoundError,
    )
    from rmqnet.remoting.acl import AclCredentials
    from rmqnet.remoting.tls import TlsConfig
    from store_core.message import Message

__all__ = [
    "AclCredentials",
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByMachineRoom",
    "BrokerError",
    "ClientConfig",
    "ClientError",
    "ClientInstance",
    "ConsumeContext",
    "ConsumeFromWhere",
    "Message",
    "MessageModel",
    "MessageQueue",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushConsumerOptions",
    "RemotingConnectError",
    "RemotingError",
    "RemotingFormatError",
    "RemotingTimeoutError",
    "RemotingTooMuchRequestError",
    "SendResult",
    "SendStatus",
    "TlsConfig",
    "TopicNotFoundError",
    "TopicRoute",
]

# Where the names are that are no errors. Loaded when first asked for: a process that only plans
# a Spark query has no use for sockets.
_MODULES = {
    "AclCredentials": "rmqnet.remoting.acl",
    "AllocateAveragely": "rmqnet.client.consumer.allocation",
    "AllocateAveragelyByCircle": "rmqnet.client.consumer.allocation",
    "AllocateByConfig": "rmqnet.client.consumer.allocation",
    "AllocateByMachineRoom": "rmqnet.client.consumer.allocation",
    "ClientConfig": "rmqnet.client.client_config",
    "ClientInstance": "rmqnet.client.client_instance",
    "ConsumeContext": "rmqnet.client.consumer.listening",
    "ConsumeFromWhere": "rmqnet.client.heartbeat_data",
    "Message": "store_core.message",
    "MessageModel": "rmqnet.client.heartbeat_data",
    "MessageQueue": "rmqnet.client.message_queue",
    "PullResult": "rmqnet.client.pull_result",
    "PullStatus": "rmqnet.client.pull_result",
    "PushConsumer": "rmqnet.client.consumer.push_consumer",
    "PushConsumerOptions": "rmqnet.client.consumer.push_options",
    "SendResult": "rmqnet.client.send_result",
    "SendStatus": "rmqnet.client.send_result",
    "TlsConfig": "rmqnet.remoting.tls",
    "TopicRoute": "rmqnet.client.topic_route",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES.get(name, "rmqnet.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
