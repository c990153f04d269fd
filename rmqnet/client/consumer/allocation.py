# SPDX-License-Identifier: Apache-2.0
"""Strategies that divide a topic's queues among the members of a consumer group.

Every member computes the division itself, so all members, whatever their language, must get the
same result.

Source: RocketMQ ``AllocateMessageQueueAveragely``, ``…AveragelyByCircle``, ``…ByMachineRoom``,
``…ByConfig``, ``AbstractAllocateMessageQueueStrategy`` (release 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rmqnet.errors import ClientError
from store_core.codec.java_string import java_split

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rmqnet.client.message_queue import MessageQueue

_ROOM_AND_NAME = 2


class AllocationStrategy(Protocol):
    """Divides the queues of a topic among the members of a group."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy; all members of a group must use the same one."""

    def share(
        self, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member."""


def allocate(
    strategy: AllocationStrategy,
    client_id: str,
    queues: Collection[MessageQueue],
    members: Collection[str],
) -> list[MessageQueue]:
    """Return the queues that a group member reads; empty if it is not a member (yet).

    Raises
    ------
    ClientError
        There are no queues or no members.
    """
    if not queues or not members:
        raise ClientError(f"nothing to divide: {len(queues)} queues, {len(members)} members")
    if client_id not in members:
        return []
    return strategy.share(
        client_id, sorted(queues, key=_queue_order), sorted(members, key=_string_order)
    )


def _queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return _string_order(queue.topic), _string_order(queue.broker_name), queue.queue_id


def _string_order(text: str) -> bytes:
    """Return a sort key that orders as ``String.compareTo``: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


@dataclass(frozen=True)
class AllocateAveragely:
    """Gives each member consecutive queues; the first members get one more if any remain."""

    name: str = "AVG"

    def share(
        self, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member; see `AllocationStrategy`."""
        index = members.index(client_id)
        size, longer = divmod(len(queues), len(members))
        start = index * size + min(index, longer)
        return list(queues[start : start + size + (index < longer)])


@dataclass(frozen=True)
class AllocateAveragelyByCircle:
    """Gives queues to the members in turn."""

    name: str = "AVG_BY_CIRCLE"

    def share(
        self, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member; see `AllocationStrategy`."""
        return list(queues[members.index(client_id) :: len(members)])


@dataclass(frozen=True)
class AllocateByMachineRoom:
    """Divides the queues of brokers in given machine rooms, which are named ``room@broker``.

    Queues of other brokers are not read.

    Parameters
    ----------
    rooms
        The rooms whose queues the group reads.
    """

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def share(
        self, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member; see `AllocationStrategy`."""
        own = [queue for queue in queues if self._in_rooms(queue.broker_name)]
        index = members.index(client_id)
        size, rest = divmod(len(own), len(members))
        mine = own[index * size : (index + 1) * size]
        return mine + own[size * len(members) + index :][: index < rest]

    def _in_rooms(self, broker_name: str) -> bool:
        parts = java_split(broker_name, "@")
        return len(parts) == _ROOM_AND_NAME and parts[0] in self.rooms


@dataclass(frozen=True)
class AllocateByConfig:
    """A fixed list of queues, independent of the group's other members.

    Parameters
    ----------
    queues
        The queues that this member reads; it reads no queues of other topics.
    """

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def share(
        self, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member; see `AllocationStrategy`."""
        del client_id, members
        return [queue for queue in self.queues if queue in set(queues)]
