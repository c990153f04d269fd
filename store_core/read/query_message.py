"""A query by key as RocketMQ answers it (``DefaultMessageStore.queryMessage``, 5.5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.results import QueryMessageResult

if TYPE_CHECKING:
    from store_core.index.index_queries import IndexQueries
    from store_core.log.record_reader import RecordReader
    from store_core.message import Message

_ROUNDS = 3


def query_message(
    index: IndexQueries,
    reader: RecordReader,
    topic: str,
    key: str,
    max_num: int,
    begin_ms: int,
    end_ms: int,
    index_type: str | None,
) -> QueryMessageResult:
    """Ask the index; while none of its places can be read, ask again for older ones."""
    messages: list[Message] = []
    timestamp = phy_offset = 0
    for _ in range(_ROUNDS):
        offsets, *newest = index.query_offset(topic, key, max_num, begin_ms, end_ms, index_type)
        if not offsets:
            break
        timestamp, phy_offset = newest
        offsets.sort()
        for offset in offsets:
            record = reader.find(offset)
            if record is None:
                continue
            if offset == offsets[0]:
                end_ms = record.store_timestamp
            messages += reader.messages_of(record)
        if messages or end_ms < begin_ms:
            break
    return QueryMessageResult(tuple(messages), timestamp, phy_offset)
