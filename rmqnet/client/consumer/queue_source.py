"""One queue as consumers read it: from its master, or from a slave if that names it, or is away."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Callable

from rmqnet.client.received_messages import messages_from_body
from rmqnet.client.send_result import PullStatus
from rmqnet.client.topic_route import MASTER_ID
from rmqnet.errors import BrokerError, RemotingConnectError, RemotingError
from store_core.layout.message import INNER_BATCH_FLAG

if TYPE_CHECKING:
    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.consumer.group_brokers import GroupBrokers
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.route_table import BrokerAddress
    from rmqnet.client.send_result import PullResult
    from rmqnet.remoting.headers import PullMessageRequestHeader
    from store_core.message import Message

COMMIT_FLAG, SUSPEND_FLAG, SUBSCRIPTION_FLAG = 1, 2, 4
"""Bits of a pull's sysFlag (``PullSysFlag``)."""
PULL_TIMEOUT_S = 30.0
"""Longer than any broker waits for a message."""


class QueueSource:
    """Pulls from a queue. Runs in the event loop."""

    def __init__(self, client: ClientInstance, brokers: GroupBrokers, queue: MessageQueue) -> None:
        self._client = client
        self._brokers = brokers
        self._queue = queue
        self._broker_id = MASTER_ID
        self._address = ""
        self._asked_offset = 0

    async def pull(self, header: Callable[[bool], PullMessageRequestHeader]) -> PullResult:
        """Pull once.

        Raises
        ------
        RemotingError, BrokerError, ClientError
            The broker cannot be found or asked, or does not want to answer.
        """
        broker = await self._brokers.find(self._queue, self._broker_id, only_this_broker=False)
        try:
            return await self._pull(broker, header)
        except RemotingConnectError:
            for other in self._client.addresses_of(self._queue.broker_name):
                if other != broker:
                    with suppress(RemotingError, BrokerError):
                        result = await self._pull(other, header)
                        if self._leads_on(result):
                            return result
            raise

    async def _pull(
        self, broker: BrokerAddress, header: Callable[[bool], PullMessageRequestHeader]
    ) -> PullResult:
        request = header(broker.is_slave)
        self._address, self._asked_offset = broker.address, request.queue_offset
        result = await self._client.broker.pull(broker.address, request, PULL_TIMEOUT_S)
        self._broker_id = result.suggest_which_broker_id
        return result

    def _leads_on(self, result: PullResult) -> bool:
        """Return whether the answer of a broker that stands in is one to go by.

        It may lag behind, so that an offset which it lacks is none that is gone; and slaves answer
        at once at the end of a queue, where the caller is to pause.
        """
        moved = result.status is PullStatus.OFFSET_ILLEGAL
        return not moved and result.next_begin_offset > self._asked_offset

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
