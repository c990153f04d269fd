# SPDX-License-Identifier: Apache-2.0
"""One client of a broker, as its heartbeats describe it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqnet.client.admin_results import Connection

if TYPE_CHECKING:
    from rmqnet.remoting.codes import LanguageCode
    from rmqnet.remoting.server_connection import ServerConnection


@dataclass
class ClientChannelInfo:
    """A connection and its client (RocketMQ ``ClientChannelInfo``).

    Attributes
    ----------
    language, version
        Of the client; version 479 is release 5.3.3.
    last_update_timestamp
        Time of its last heartbeat, ms since the epoch.
    """

    connection: ServerConnection
    client_id: str
    language: LanguageCode
    version: int
    last_update_timestamp: int

    def to_connection(self) -> Connection:
        """Return the description for administrators."""
        return Connection(self.client_id, self.connection.address, self.language.name, self.version)
