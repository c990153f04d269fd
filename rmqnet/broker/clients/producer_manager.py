# SPDX-License-Identifier: Apache-2.0
"""The producers that a broker knows.

Source: RocketMQ ``ProducerManager`` (release 5.3.3).
"""

from __future__ import annotations

import itertools
import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqnet.broker.clients.client_channel_info import ClientChannelInfo
    from rmqnet.remoting.server_connection import ServerConnection

logger = logging.getLogger(__name__)

_Members = dict["ServerConnection", "ClientChannelInfo"]


class ProducerManager:
    """Producer groups and their members; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, _Members] = {}
        self._clients: dict[str, ClientChannelInfo] = {}
        self._turns = itertools.count()

    def register(self, group: str, client: ClientChannelInfo) -> None:
        """Record a member, or the heartbeat of a known one."""
        with self._lock:
            members = self._groups.setdefault(group, {})
            known = members.setdefault(client.connection, client)
            known.last_update_timestamp = client.last_update_timestamp
            self._clients[client.client_id] = client
        if known is client:
            logger.info("%s joins producer group %s", client.connection.address, group)

    def unregister(self, group: str, connection: ServerConnection) -> None:
        """Remove a member from one group."""
        with self._lock:
            self._leave(group, connection)

    def remove(self, connection: ServerConnection) -> None:
        """Remove a client from all groups."""
        with self._lock:
            for group in list(self._groups):
                self._leave(group, connection)

    def members(self, group: str) -> list[ClientChannelInfo]:
        """Return the members of a group; empty if it is not online."""
        with self._lock:
            return list(self._groups.get(group, {}).values())

    def all(self) -> dict[str, list[ClientChannelInfo]]:
        """Return the members of all groups."""
        with self._lock:
            return {group: list(members.values()) for group, members in self._groups.items()}

    def find_client(self, client_id: str) -> ClientChannelInfo | None:
        """Return a client of any group by its id; None if it is not online."""
        return self._clients.get(client_id)

    def find_channel(self, client_id: str) -> ServerConnection | None:
        """Return the connection of a client of any group; None if it is not online."""
        client = self._clients.get(client_id)
        return None if client is None else client.connection

    def next_member(self, group: str) -> ClientChannelInfo | None:
        """Return members in turn, preferably one that reads what it is sent.

        None if no member is connected.
        """
        members = self.members(group)
        if not members:
            return None
        first = next(self._turns) % len(members)
        in_turn = [*members[first:], *members[:first]]
        connected = [each for each in in_turn if each.connection.is_open]
        ready = [each for each in connected if each.connection.is_writable]
        return next(iter([*ready, *connected]), None)

    def expire(self, before_ms: int) -> list[ServerConnection]:
        """Remove members whose last heartbeat is older; return their connections."""
        with self._lock:
            silent = [
                (group, connection)
                for group, members in self._groups.items()
                for connection, client in members.items()
                if client.last_update_timestamp < before_ms
            ]
            for group, connection in silent:
                self._leave(group, connection)
        return list(dict.fromkeys(connection for _, connection in silent))

    def _leave(self, group: str, connection: ServerConnection) -> None:
        members = self._groups.get(group, {})
        client = members.pop(connection, None)
        if client is None:
            return
        logger.info("%s leaves producer group %s", connection.address, group)
        if not members:
            del self._groups[group]
        known = self._clients.get(client.client_id)
        is_elsewhere = any(connection in each for each in self._groups.values())
        if known is not None and known.connection is connection and not is_elsewhere:
            del self._clients[client.client_id]
