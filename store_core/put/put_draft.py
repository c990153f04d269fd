"""From a message to its record, before its place is known."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from store_core.codec.hosts import parse_host
from store_core.codec.record_draft import draft_record
from store_core.layout.message import TRANSACTION_PREPARED_TYPE

if TYPE_CHECKING:
    from store_core.message import Message
    from store_core.put.put_checks import TopicFacts

NOT_QUEUED_BIT = TRANSACTION_PREPARED_TYPE
"""Set in the sys flag of prepared and of rollback messages: they have no place in a queue."""

_host_bytes = lru_cache(maxsize=4096)(parse_host)


def hosts_of(message: Message, store_host: bytes) -> tuple[bytes, bytes]:
    """Return born host and store host as stored; the store's where the message has none.

    Raises
    ------
    ValueError
        A host is not ``ip:port`` or ``[ipv6]:port``.
    """
    born, store = message.born_host, message.store_host
    return (
        store_host if born is None else _host_bytes(born),
        store_host if store is None else _host_bytes(store),
    )


def draft_message(
    message: Message,
    facts: TopicFacts,
    properties_raw: bytes,
    hosts: tuple[bytes, bytes],
    now: int,
) -> bytearray:
    """Return the record of a message; one without a time of birth is born ``now`` (ms).

    Raises
    ------
    struct.error
        A number does not fit its field.
    """
    return draft_record(
        facts.encoded,
        message.body,
        properties_raw,
        message.queue_id,
        message.flag,
        message.sys_flag,
        message.born_timestamp or now,
        hosts[0],
        hosts[1],
        message.reconsume_times,
        message.prepared_transaction_offset,
    )
