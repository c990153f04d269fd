# SPDX-License-Identifier: Apache-2.0
"""Brokers' locks, which give a queue to one member of a group to preserve its order.

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
"""Interval of renewals. A broker drops a lock after 60 s; a member trusts it for 30 s."""


class QueueLocks:
    """Acquires, renews and releases the locks of a member's queues; runs in the event loop.

    Parameters
    ----------
    brokers
        Requests to the brokers, which grant the locks.
    """

    def __init__(self, brokers: GroupBrokers) -> None:
        self._brokers = brokers
        self._asked: set[MessageQueue] = set()  # this member may have these locks
        self.elsewhere: set[MessageQueue] = set()
        """Queues that another member had locked at this one's last request."""

    async def lock(self, process_queue: ProcessQueue) -> bool:
        """Lock one queue; False if another member has the lock or the broker does not answer."""
        return await self._lock_some([process_queue]) and process_queue.locked

    async def lock_all(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Renew the locks of all queues; if a broker does not answer, its locks stay set."""
        kept = [each for each in process_queues if not each.dropped]
        groups = _by_broker([each.queue for each in kept])
        await asyncio.gather(
            *(self._lock_some([each for each in kept if each.queue in group]) for group in groups)
        )

    async def unlock(self, queue: MessageQueue) -> None:
        """Release a queue's lock and wait for the broker's answer.

        A broker may process a oneway request after a later request. If the later one acquired the
        same lock, this member would lose the lock without knowing it.
        """
        await self._unlock_some({queue})

    async def unlock_all(self) -> None:
        """Release all locks that this member may have and wait for the brokers' answers.

        They include locks being acquired or released when the member stopped.
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
            self._brokers.outages.report(logger, err, "cannot renew the lock of %s: %s", queue, err)
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
        """Release locks on one broker; a failure is logged."""
        try:
            await self._brokers.unlock(queues)
        except (RemotingError, BrokerError, ClientError) as err:
            text = "cannot release the locks: %s: %s"
            self._brokers.outages.report(logger, err, text, ", ".join(map(str, queues)), err)
        else:
            self._asked -= queues


def _by_broker(queues: Iterable[MessageQueue]) -> Iterable[set[MessageQueue]]:
    groups: defaultdict[str, set[MessageQueue]] = defaultdict(set)
    for each in queues:
        groups[each.broker_name].add(each)
    return groups.values()
