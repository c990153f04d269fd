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
        self._asked: set[MessageQueue] = set()  # brokers may have given these to this member
        self.elsewhere: set[MessageQueue] = set()
        """Queues that another member had when this one last asked."""

    async def lock(self, process_queue: ProcessQueue) -> bool:
        """Lock one queue; False if another member has it, or the broker does not answer."""
        return await self._lock_some([process_queue]) and process_queue.locked

    async def lock_all(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Renew the locks of all queues; where a broker does not answer they stay as they are."""
        kept = [each for each in process_queues if not each.dropped]
        groups = _by_broker([each.queue for each in kept])
        await asyncio.gather(
            *(self._lock_some([each for each in kept if each.queue in group]) for group in groups)
        )

    async def unlock(self, queue: MessageQueue) -> None:
        """Give a queue away, and wait for the broker's answer.

        A broker may do what it need not answer after what it is asked next: if that is the same
        lock, this member has it no more, and does not know.
        """
        await self._unlock_some({queue})

    async def unlock_all(self) -> None:
        """Give all queues away that may be this member's, and wait for the brokers' answers.

        Also those that were being taken, or given away, when the member stopped.
        """
        groups = _by_broker(self._asked)
        await asyncio.gather(*map(self._unlock_some, groups))

    async def _lock_some(self, process_queues: list[ProcessQueue]) -> bool:
        """Lock queues of one broker; False if it does not answer."""
        self._asked.update(each.queue for each in process_queues)
        try:
            locked = await self._brokers.lock([each.queue for each in process_queues])
        except (RemotingError, BrokerError, ClientError) as err:
            queue = process_queues[0].queue
            self._brokers.outages.report(logger, err, "%s is not locked anew: %s", queue, err)
            return False
        for each in process_queues:
            if each.queue in locked:
                self.elsewhere.discard(each.queue)
            else:
                level = logging.DEBUG if each.queue in self.elsewhere else logging.WARNING
                logger.log(level, "%s is locked by another member", each.queue)
                self.elsewhere.add(each.queue)
                self._asked.discard(each.queue)
            each.set_locked(each.queue in locked)
        return True

    async def _unlock_some(self, queues: set[MessageQueue]) -> None:
        """Give queues of one broker away; a failure is logged."""
        try:
            await self._brokers.unlock(queues)
        except (RemotingError, BrokerError, ClientError) as err:
            text = "locks are not given back: %s: %s"
            self._brokers.outages.report(logger, err, text, ", ".join(map(str, queues)), err)
        else:
            self._asked -= queues


def _by_broker(queues: Iterable[MessageQueue]) -> Iterable[set[MessageQueue]]:
    groups: defaultdict[str, set[MessageQueue]] = defaultdict(set)
    for each in queues:
        groups[each.broker_name].add(each)
    return groups.values()
