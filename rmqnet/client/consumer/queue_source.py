"""One queue as consumers read it: from its master, or from the slave that the master names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from rmqnet.client.received_messages import messages_from_body
from rmqnet.client.topic_route import MASTER_ID
from store_core.layout.message import INNER_BATCH_FLAG

if TYPE_CHECKING:
    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.consumer.group_brokers import GroupBrokers
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.pull_result import PullResult
    from rmqnet.remoting.headers import PullMessageRequestHeader
    from store_core.message import Message

COMMIT_FLAG, SUSPEND_FLAG, SUBSCRIPTION_FLAG = 1, 2, 4
"""Bits of a pull's sysFlag (``PullSysFlag``)."""
PULL_TIMEOUT_S = 30.0
"""Longer than any broker waits for a message."""


class QueueSource:
    """Pulls from a queue. Runs in the event loop.

    Parameters
    ----------
    client
        Whose connections it uses.
    brokers
        Where the queue's broker is.
    queue
        The queue.
    """

    def __init__(self, client: ClientInstance, brokers: GroupBrokers, queue: MessageQueue) -> None:
        self._client = client
        self._brokers = brokers
        self._queue = queue
        self._broker_id = MASTER_ID
        self._address = ""

    async def pull(self, header: Callable[[bool], PullMessageRequestHeader]) -> PullResult:
        """Pull once.

        Parameters
        ----------
        header
            Makes the request; it is told whether it goes to a slave.

        Raises
        ------
        RemotingError, BrokerError, ClientError
            The broker cannot be found or asked, or does not want to answer.
        """
        broker = await self._brokers.find(self._queue, self._broker_id, only_this_broker=False)
        self._address = broker.address
        result = await self._client.broker.pull(
            broker.address, header(broker.is_slave), PULL_TIMEOUT_S
        )
        self._broker_id = result.suggest_which_broker_id
        return result

    def messages(self, result: PullResult, asked_offset: int) -> list[Message]:
        """Return the messages that the last pull found, from the asked offset on.

        An inner batch comes as a whole, also where it was asked for from its middle on.

        Raises
        ------
        RemotingFormatError
            They are damaged; the text says where.
        """
        messages = messages_from_body(
            result.body,
            f"{self._queue.broker_name}@{self._address}",
            f"offset {asked_offset} of {self._queue}",
        )
        if messages and messages[0].sys_flag & INNER_BATCH_FLAG:
            return [each for each in messages if each.queue_offset >= asked_offset]
        return messages
