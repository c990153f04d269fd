"""What a client asks of the producers and consumers that it announces to brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rmqnet.client.heartbeat_data import ConsumerData
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.remoting.headers import CheckTransactionStateRequestHeader
    from store_core.message import Message


class GroupProducer(Protocol):
    """A producer as its client sees it."""

    def publish_topics(self) -> Collection[str]:
        """Return the topics that it sends to; called in the event loop: it must not wait."""

    def check_transaction(
        self, message: Message, header: CheckTransactionStateRequestHeader, broker_address: str
    ) -> None:
        """Find out what became of a half message and tell the broker; called in a pool thread."""

    def on_reply(self, message: Message) -> bool:
        """Take the reply to a request (property ``CORRELATION_ID``); False if it is not its own.

        Called in the event loop: it must not wait.
        """


class GroupConsumer(Protocol):
    """A consumer as its client sees it."""

    def heartbeat_data(self) -> ConsumerData:
        """Return what brokers are to know; called in the event loop: it must not wait."""

    def on_consumer_ids_changed(self) -> None:
        """Share out queues anew, soon: members came or went. Called in the event loop."""

    def on_connection_closed(self, address: str) -> None:
        """Rely on nothing that a broker forgets when it ends. Called in the event loop."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere, as an administrator wants; called in a pool thread."""

    def consumer_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return how far it is in each queue of a topic; called in a pool thread."""

    def running_info(self) -> dict[str, Any]:
        """Return RocketMQ's ``ConsumerRunningInfo`` as JSON values; called in a pool thread.

        Keys may be queues, see ``queue_json``.
        """

    def consume_directly(self, message: Message, broker_name: str) -> dict[str, Any]:
        """Give one message to the listener now; called in a pool thread.

        Returns RocketMQ's ``ConsumeMessageDirectlyResult`` as JSON values.
        """
