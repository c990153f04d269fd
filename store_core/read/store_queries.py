# SPDX-License-Identifier: Apache-2.0
"""The query methods of a store, shared by snapshots and stores that this process writes.

Each query imports its code when first called: Spark opens stores in every process and uses none of
these queries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from store_core.codec.message_id import parse_message_id
from store_core.errors import StoreConfigError
from store_core.queue.readable_queue import LOWER, UPPER
from store_core.results import QueryMessageResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from store_core.codec.message_batch_codec import MessageColumns
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.filter.message_filter import AnyFilter, MessageFilter
    from store_core.index.index_queries import IndexQueries
    from store_core.log.record_reader import RecordReader
    from store_core.message import Message
    from store_core.read.find_messages import KeySearch
    from store_core.read.find_offsets import KeyOffsets
    from store_core.read.pull_records import PulledRecords
    from store_core.read.readable_store import ReadableStore
    from store_core.results import GetMessageResult

_NO_TIME = -1
_ROUNDS = 3


class StoreQueries(ABC):
    """Queries of a store; each kind of store decides how to pin itself for a query."""

    config: MessageStoreConfig

    @abstractmethod
    def _reading(self, *, whole: bool = False) -> AbstractContextManager[ReadableStore]:
        """Pin the store for the length of a query; ``whole`` pins all of index and log immediately.

        Queries access queues and index before the log, which then covers them.
        """

    def _key_search(self, store: ReadableStore) -> KeySearch:
        """Return a search by key in a store pinned with ``whole``."""
        from store_core.read.find_messages import KeySearch  # noqa: PLC0415 (see the module's text)

        return KeySearch(store)

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: AnyFilter | MessageFilter | None = None,
    ) -> GetMessageResult:
        """Pull messages of one queue, with all the limits of a broker.

        Parameters
        ----------
        max_msg_nums
            Most messages to return; the limits of the configuration (32, …) apply as well.
        message_filter
            A `TagFilter` compares hashes of tags as a broker does, so some messages of other tags
            may pass. A `SqlFilter` evaluates the properties of each record. All messages if None.

        Notes
        -----
        A batch queue returns whole records, as RocketMQ does: the first messages may be before
        ``offset``.

        Raises
        ------
        CorruptRecordError
            The queue points at bytes that are not a record of the size it gives.
        CorruptBodyError
            A body cannot be inflated.
        """
        from store_core.filter.message_filter import filter_of_pull  # noqa: PLC0415 (see above)
        from store_core.read.get_message import get_message  # noqa: PLC0415 (see the module's text)

        wanted = filter_of_pull(message_filter)
        with self._reading() as store:
            queue = store.queue(topic, queue_id)
            return get_message(queue, store.reader, self.config, offset, max_msg_nums, wanted)

    def pull_records(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: AnyFilter | MessageFilter | None = None,
        max_bytes: int = 128 << 20,
    ) -> PulledRecords:
        """Pull as `get_message` does, but return the stored records' bytes, for a broker's answer.

        Parameters
        ----------
        max_bytes
            Most bytes of records; the first record is returned whatever its size.

        Raises
        ------
        CorruptRecordError
            The queue points at bytes that are not a record of the size it gives.
        """
        from store_core.filter.message_filter import filter_of_pull  # noqa: PLC0415 (see above)
        from store_core.read.pull_records import pull_records  # noqa: PLC0415 (see the module)

        wanted = filter_of_pull(message_filter)
        with self._reading() as store:
            queue = store.queue(topic, queue_id)
            return pull_records(
                queue, store.reader, self.config, offset, max_msg_nums, wanted, max_bytes
            )

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int,
        begin_ms: int,
        end_ms: int,
        index_type: str | None = None,
    ) -> QueryMessageResult:
        """Query by key as RocketMQ does: at most 64 messages, including other keys of equal hash.

        Parameters
        ----------
        begin_ms, end_ms
            Store times, inclusive; the index has them only to the second.
        index_type
            ``T`` queries by tag, which brokers before 5.4.0 did not index. ``K``, ``U`` and None
            all query by key: index files do not distinguish ``K`` and ``U``.

        Raises
        ------
        StoreConfigError
            The sizes of the index files are unknown.
        CorruptRecordError
            An index file is damaged.
        """
        with self._reading() as store:
            return query_message(
                store.index, store.reader, topic, key, max_num, begin_ms, end_ms, index_type
            )

    def find_messages(
        self,
        topic: str,
        keys: Iterable[str],
        begin_ms: int | None = None,
        end_ms: int | None = None,
    ) -> list[Message]:
        """Return every message that has one of the keys, in the order of the log.

        Exact where `query_message` is not: no cap, no colliding keys, no duplicates, exact times,
        and the log is scanned where the index does not cover it. Prepared and rolled back messages
        of transactions are left out: they are in no queue.

        Parameters
        ----------
        begin_ms, end_ms
            Store times, inclusive; None = open.

        Raises
        ------
        CorruptRecordError
            A part of the log that had to be scanned is damaged.
        CorruptBodyError
            The body of a matching message cannot be inflated.
        """
        wanted = frozenset([keys] if isinstance(keys, str) else keys)
        with self._reading(whole=True) as store:
            return self._key_search(store).messages(topic, wanted, begin_ms, end_ms)

    def find_offsets(
        self, topic: str, keys: Any, begin_ms: int | None = None, end_ms: int | None = None
    ) -> KeyOffsets:
        """Return the offsets of the messages of many keys: `find_messages` in columns, no bodies.

        Every key is compared with the record's own. Fast for a million and more keys in one call.

        Returns
        -------
        key_index, commit_log_offset
            ``int64`` arrays of pairs, ascending by key, then by offset: the record at the offset
            has the key ``keys[key_index]``. A message with two of the keys is listed for each; a
            key given twice counts twice.

        Raises
        ------
        CorruptRecordError
            A part of the log that had to be scanned is damaged.
        CorruptBodyError
            An inner batch cannot be split into its messages.
        """
        with self._reading(whole=True) as store:
            return self._key_search(store).offsets(topic, keys, begin_ms, end_ms)

    def look_message_by_offset(self, commit_log_offset: int) -> Message | None:
        """Return the message whose record starts at an offset; None if no record does.

        An inner batch is returned as stored, undivided.

        Raises
        ------
        CorruptBodyError
            The body cannot be inflated.
        """
        with self._reading() as store:
            reader = store.reader
            record = reader.find(commit_log_offset)
            return None if record is None else reader.message_of(record)

    def look_stored_message(self, commit_log_offset: int) -> Message | None:
        """Return the message whose record starts at an offset, its body as stored; None if none."""
        from store_core.message import stored_message  # noqa: PLC0415 (see the module's text)

        with self._reading() as store:
            record = store.reader.find(commit_log_offset)
        return None if record is None else stored_message(record, "")

    def look_record(self, commit_log_offset: int) -> bytes | None:
        """Return the bytes of the record that starts at an offset; None if no record does."""
        with self._reading() as store:
            reader = store.reader
            record = reader.find(commit_log_offset)
            return None if record is None else reader.raw(commit_log_offset, record.total_size)

    def queue_columns(
        self, topic: str, queue_id: int, start: int, stop: int
    ) -> Iterator[MessageColumns]:
        """Yield the records of a range of queue offsets in columns, bodies as stored.

        Columns are valid until the next ones are requested. Units whose records cannot be read are
        skipped.
        """
        from store_core.read.queue_records import queue_columns  # noqa: PLC0415 (see the module's text)

        with self._reading() as store:
            yield from queue_columns(store, topic, queue_id, start, stop)

    def log_columns(self, start: int) -> Iterator[MessageColumns]:
        """Yield the records of the log from a physical offset on; see `queue_columns`."""
        from store_core.read.queue_records import log_columns  # noqa: PLC0415 (see the module's text)

        with self._reading() as store:
            yield from log_columns(store, start)

    def look_message_by_id(self, message_id: str) -> Message | None:
        """Return the message of an offset message id; None if this store has no such message.

        Raises
        ------
        ValueError
            The id is malformed.
        """
        store_host, commit_log_offset = parse_message_id(message_id)
        with self._reading() as store:
            reader = store.reader
            record = reader.find(commit_log_offset)
            if record is None or record.store_host != store_host:
                return None
            return reader.message_of(record)

    def get_offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = LOWER
    ) -> int:
        """Return a queue offset by store time, as 5.x brokers do, for stores of any release.

        Parameters
        ----------
        topic, queue_id
            The queue; if it does not exist, the answer is 0.

        Raises
        ------
        StoreConfigError
            The boundary is unknown.
        """
        if boundary not in {LOWER, UPPER}:
            raise StoreConfigError(f"boundary={boundary!r}: must be {LOWER!r} or {UPPER!r}")
        with self._reading() as store:
            queue = store.queue(topic, queue_id)
            if queue is None:
                return 0
            return queue.offset_by_time(timestamp_ms, boundary, store.reader)

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first remaining queue offset; 0 for a queue that does not exist."""
        with self._reading() as store:
            queue = store.queue(topic, queue_id)
            return 0 if queue is None else queue.min_offset

    def get_max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after the last message; 0 for a queue that does not exist."""
        with self._reading() as store:
            queue = store.queue(topic, queue_id)
            return 0 if queue is None else queue.max_offset

    def get_message_store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time (ms) of a message; -1 if it is not there."""
        with self._reading() as store:
            queue = store.queue(topic, queue_id)
            if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
                return _NO_TIME
            record = store.reader.find(queue.commit_log_offset_of(queue_offset))
            return _NO_TIME if record is None else record.store_timestamp

    def get_earliest_message_time(self, topic: str, queue_id: int) -> int:
        """Return the store time (ms) of the first message of a queue; -1 if it is empty."""
        first = self.get_min_offset_in_queue(topic, queue_id)
        return self.get_message_store_timestamp(topic, queue_id, first)


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
    """Query the index; if none of the records it names can be read, query again for older ones."""
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
