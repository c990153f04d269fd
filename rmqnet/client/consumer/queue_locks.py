"""Locks that brokers give to one member of a group, so that a queue's order is kept.

Source: RocketMQ ``RebalanceImpl.lock``, ``lockAll``, ``unlockAll`` (release 5.3.3).
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from rmqnet.errors import BrokerError, ClientError, RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqnet.client.consumer.group_brokers import GroupBrokers
    from rmqnet.client.consumer.process_queue import ProcessQueue
    from rmqnet.client.message_queue import MessageQueue

logger = logging.getLogger(__name__)

LOCK_INTERVAL_S = 20.0
"""Between two renewals. A broker forgets a lock after 60 s, a member relies on it for 30."""


class QueueLocks:
    """Takes, renews and gives away the locks of a member's queues; runs in the event loop.

    Parameters
    ----------
    brokers
        Who locks.
    """

    def __init__(self, brokers: GroupBrokers) -> None:
        self._brokers = brokers

    async def lock(self, process_queue: ProcessQueue) -> bool:
        """Lock one queue; False if another member has it, or the broker does not answer."""
        await self._lock_some([process_queue])
        return process_queue.locked

    async def lock_all(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Renew the locks of all queues; where a broker does not answer they stay as they are."""
        await asyncio.gather(*map(self._lock_some, _by_broker(process_queues)))

    async def unlock(self, queue: MessageQueue) -> None:
        """Give a queue away; the broker does not answer."""
        try:
            await self._brokers.unlock([queue], oneway=True)
        except (RemotingError, BrokerError, ClientError) as err:
            logger.warning("the lock of %s is not given back: %s", queue, err)

    async def unlock_all(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Give all queues away, and wait for the brokers' answers."""
        await asyncio.gather(*map(self._unlock_some, _by_broker(process_queues)))

    async def _lock_some(self, process_queues: list[ProcessQueue]) -> None:
        try:
            locked = await self._brokers.lock([each.queue for each in process_queues])
        except (RemotingError, BrokerError, ClientError) as err:
            logger.warning("%s is not locked anew: %s", process_queues[0].queue, err)
            return
        for each in process_queues:
            if each.queue not in locked:
                logger.warning("%s is locked by another member", each.queue)
            each.set_locked(each.queue in locked)

    async def _unlock_some(self, process_queues: list[ProcessQueue]) -> None:
        try:
            await self._brokers.unlock([each.queue for each in process_queues], oneway=False)
        except (RemotingError, BrokerError, ClientError) as err:
            logger.warning("locks of %s are not given back: %s", process_queues[0].queue, err)
            return
        for each in process_queues:
            each.set_locked(False)


def _by_broker(process_queues: Iterable[ProcessQueue]) -> Iterable[list[ProcessQueue]]:
    groups: defaultdict[str, list[ProcessQueue]] = defaultdict(list)
    for each in process_queues:
        if not each.dropped:
            groups[each.queue.broker_name].append(each)
    return groups.values()
