"""Messages by key and by id, from all brokers of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.client.received_messages import messages_from_body
from rmqnet.errors import ClientError
from rmqnet.remoting.headers import QueryMessageRequestHeader
from store_core.codec.hosts import format_host
from store_core.codec.message_id import parse_message_id

if TYPE_CHECKING:
    from rmqnet.client.admin.cluster_brokers import ClusterBrokers
    from rmqnet.client.client_instance import ClientInstance
    from store_core.message import Message

NO_END = (1 << 63) - 1
"""A time, ms, that nothing is stored after."""
_MAX_REPEATS = 32


class MessageQueries:
    """Finds messages; used in a client's event loop.

    Parameters
    ----------
    instance
        The client.
    brokers
        Its cluster.
    """

    def __init__(self, instance: ClientInstance, brokers: ClusterBrokers) -> None:
        self._instance = instance
        self._brokers = brokers

    async def by_key(self, header: QueryMessageRequestHeader) -> list[Message]:
        """Return messages with a key, oldest first."""
        return [
            message
            for message in await self._query(header)
            if message.topic == header.topic and header.key in (message.keys or [])
        ]

    async def by_unique_key(self, topic: str, unique_key: str) -> list[Message]:
        """Return messages with a client's id, oldest first."""
        header = QueryMessageRequestHeader(
            topic, unique_key, _MAX_REPEATS, 0, NO_END, unique_key_query=True
        )
        return [each for each in await self._query(header) if each.unique_key == unique_key]

    async def by_id(self, topic: str, message_id: str) -> Message:
        """Return a message by a broker's id or a client's; ClientError if there is none."""
        place = await self._place_of(message_id)
        if place is not None:
            address, commit_log_offset = place
            body = await self._instance.broker.view_message(address, topic, commit_log_offset)
            return messages_from_body(body, address, f"message {message_id}")[0]
        messages = await self.by_unique_key(topic, message_id)
        if not messages:
            raise ClientError(
                f"topic {topic} has no message with id {message_id!r}: no client gave it, and it "
                "names no broker of this cluster"
            )
        return messages[0]

    async def _query(self, header: QueryMessageRequestHeader) -> list[Message]:
        """Return what the index of each broker leads to: other messages too, of an equal hash."""

        async def on_broker(address: str) -> list[Message]:
            result = await self._instance.broker.query_message(address, header)
            return messages_from_body(result.body, address, f"key {header.key}")

        parts = await self._brokers.on_route(header.topic, on_broker)
        messages = [message for part in parts for message in part]
        return sorted(messages, key=lambda each: (each.store_timestamp, each.commit_log_offset))

    async def _place_of(self, message_id: str) -> tuple[str, int] | None:
        """Return broker and offset that an id names; None if that is no broker of this cluster.

        Ids of clients look the same, and begin with the client's address.
        """
        try:
            host, commit_log_offset = parse_message_id(message_id)
        except ValueError:
            return None
        address = format_host(host)
        info = await self._instance.name_server.cluster_info()
        known = {each for addresses in info.brokers.values() for each in addresses.values()}
        return (address, commit_log_offset) if address in known else None
