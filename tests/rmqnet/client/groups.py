# SPDX-License-Identifier: Apache-2.0
"""A producer and a consumer that record the requests of their client."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from rmqnet.client.heartbeat_data import ConsumerData, SubscriptionData
from rmqnet.client.message_queue import MessageQueue
from rmqnet.remoting.headers import CheckTransactionStateRequestHeader
from store_core.message import Message


class NotingProducer:
    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.checks: list[tuple[Message, CheckTransactionStateRequestHeader, str]] = []
        self.replies: list[Message] = []
        self.checked = threading.Event()

    def publish_topics(self) -> tuple[str, ...]:
        return self.topics

    def check_transaction(
        self, message: Message, header: CheckTransactionStateRequestHeader, broker_address: str
    ) -> None:
        self.checks.append((message, header, broker_address))
        self.checked.set()

    def on_reply(self, message: Message) -> bool:
        self.replies.append(message)
        return True


class NotingConsumer:
    def __init__(self, group: str, *topics: str) -> None:
        subscriptions = tuple(SubscriptionData(topic, sub_version=1) for topic in topics)
        self.data = ConsumerData(group, subscriptions)
        self.changes = 0
        self.resets: list[tuple[str, Mapping[MessageQueue, int]]] = []
        self.consumed: list[tuple[Message, str]] = []
        self.threads: set[str] = set()

    def heartbeat_data(self) -> ConsumerData:
        return self.data

    def on_connection_closed(self, address: str) -> None:
        pass

    def on_consumer_ids_changed(self) -> None:
        self.changes += 1

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self._note_thread()
        self.resets.append((topic, offsets))

    def consumer_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        self._note_thread()
        return {MessageQueue(topic, "broker-a", 0): 5, MessageQueue(topic, "broker-a", 1): 6}

    def running_info(self) -> dict[str, Any]:
        self._note_thread()
        return {"properties": {"PROP_CONSUMER_START_TIMESTAMP": "1"}}

    def consume_directly(self, message: Message, broker_name: str) -> dict[str, Any]:
        self._note_thread()
        self.consumed.append((message, broker_name))
        return {"consumeResult": "CR_SUCCESS"}

    def _note_thread(self) -> None:
        self.threads.add(threading.current_thread().name)
