"""A store opened for reading only: the reading methods of ``MessageStore``, and exact queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.codec.message_id import parse_message_id
from store_core.consume_queue import ConsumeQueue, list_consume_queues
from store_core.consume_queue_ext import ConsumeQueueExt, open_consume_queue_ext
from store_core.files.store_directory import StoreDirectory
from store_core.find_messages import KeyQuery, KeySearch
from store_core.get_message import get_message
from store_core.message import message_from_record
from store_core.offset_by_time import offset_by_time
from store_core.query_message import query_message
from store_core.readable_queue import BatchQueue, ReadableQueue, SimpleQueue
from store_core.record_reader import RecordReader
from store_core.results import GetMessageResult, GetMessageStatus, QueryMessageResult
from store_core.store_view import StoreView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.config import MessageStoreConfig
    from store_core.message import Message
    from store_core.tag_filter import TagFilter

_NO_TIME = -1


class StoreSnapshot(StoreView):
    """A store as it stood when it was opened; takes no lock, creates and changes nothing.

    Nothing behind ``max_phy_offset`` is ever returned. Queues, ranges and index files are
    remembered, so repeated calls are cheap and answer alike; open a new one to see what a live
    broker has added. Use it in one thread.
    """

    def __init__(
        self,
        directory: StoreDirectory,
        config: MessageStoreConfig | None = None,
        end_offset: int | None = None,
    ) -> None:
        self._opened: dict[tuple[str, int], ConsumeQueue | None] = {}
        self._readable: dict[tuple[str, int], ReadableQueue | None] = {}
        self._ext: dict[tuple[str, int], ConsumeQueueExt | None] = {}
        self._ext_paths: dict[tuple[str, int], str] | None = None
        super().__init__(directory, config, end_offset)
        self._reader = RecordReader(self.log, self.end_offset, directory.uri)
        self._search = KeySearch(self, self._reader)

    @classmethod
    def open(
        cls, path: str, config: MessageStoreConfig | None = None, end_offset: int | None = None
    ) -> StoreSnapshot:
        """Open a store.

        Parameters
        ----------
        path
            The store root (``storePathRootDir``): a local path, or a URI for ``pyarrow.fs``.
        config
            Sizes that the files do not show, and limits; default: RocketMQ's.
        end_offset
            End of the log that was found before; default: it is found.

        Raises
        ------
        StoreNotFoundError
            There is no such path, or nothing of a store in it.
        StoreFormatError
            File names and sizes do not fit.
        """
        return cls(StoreDirectory(path), config, end_offset)

    def consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a consume queue, or None when it has no directory."""
        key = (topic, queue_id)
        if key not in self._opened:
            self._opened[key] = super().consume_queue(topic, queue_id)
        return self._opened[key]

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: TagFilter | None = None,
    ) -> GetMessageResult:
        """Pull messages of one queue, with every limit that a broker has.

        Parameters
        ----------
        group
            The consumer group; it decides nothing here, nor in RocketMQ's store.
        topic, queue_id, offset
            The queue, and the queue offset to begin at. Names of light queues (``%LMQ%…``) too.
        max_msg_nums
            Most messages to return; the limits of the configuration (32, …) hold besides.
        message_filter
            Compares hashes of tags as a broker does: messages of other tags may come through.

        Notes
        -----
        Of a batch queue whole records come back, as from RocketMQ: the first messages may lie
        before ``offset``.

        Raises
        ------
        CorruptRecordError
            The queue points at bytes that are no record of the size it says.
        CorruptBodyError
            A body cannot be inflated.
        """
        del group
        queue = self._readable_queue(topic, queue_id)
        if queue is None:
            return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        return get_message(queue, self._reader, self.config, offset, max_msg_nums, message_filter)

    def query_message(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> QueryMessageResult:
        """Answer a query by key as RocketMQ does: at most 64, and other keys of equal hash too.

        Parameters
        ----------
        topic, key
            A word of KEYS or a UNIQ_KEY.
        max_num
            Most records; the newest ones come. Of an inner batch all its messages come.
        begin_ms, end_ms
            Store times, inclusive; the index knows them to the second only.

        Raises
        ------
        StoreConfigError
            The sizes of the index files are not known.
        CorruptRecordError
            An index file is damaged.
        """
        return query_message(self.index, self._reader, topic, key, max_num, begin_ms, end_ms)

    def find_messages(
        self,
        topic: str,
        keys: Iterable[str],
        begin_ms: int | None = None,
        end_ms: int | None = None,
    ) -> list[Message]:
        """Return every message that has one of the keys, in the order of the log.

        Exact where `query_message` is not: no cap, no colliding keys, no repeats, exact times, and
        what the index lacks is scanned. Prepared and rolled back messages of transactions are left
        out: they are in no queue.

        Parameters
        ----------
        topic, keys
            Words of KEYS or UNIQ_KEYs; one string is one key.
        begin_ms, end_ms
            Store times, inclusive; None: open.

        Raises
        ------
        CorruptRecordError
            A part of the log that had to be scanned is damaged.
        CorruptBodyError
            A found body cannot be inflated.
        """
        wanted = frozenset([keys] if isinstance(keys, str) else keys)
        return self._search.run(KeyQuery(topic, wanted, begin_ms, end_ms))

    def look_message_by_offset(self, commit_log_offset: int) -> Message | None:
        """Return the message whose record starts there, or None when no record does.

        An inner batch comes as it is stored, undivided.

        Raises
        ------
        CorruptBodyError
            The body cannot be inflated.
        """
        record = self._reader.find(commit_log_offset)
        return None if record is None else message_from_record(record, self.directory.uri)

    def look_message_by_id(self, message_id: str) -> Message | None:
        """Return the message of an offset message id; None when this store has none of that id.

        Raises
        ------
        ValueError
            The id is malformed.
        """
        store_host, commit_log_offset = parse_message_id(message_id)
        record = self._reader.find(commit_log_offset)
        if record is None or record.store_host != store_host:
            return None
        return message_from_record(record, self.directory.uri)

    def get_offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "lower"
    ) -> int:
        """Return a queue offset by store time, as 5.x brokers do for stores of any release.

        Parameters
        ----------
        topic, queue_id
            The queue; 0 is the answer for one that does not exist.
        timestamp_ms
            Store time.
        boundary
            ``lower``: the first message at or after it (``max_offset`` if none). ``upper``: the
            last at or before it (``min_offset`` if none). Of batch queues: the first message of
            a record, see `offset_by_time`.

        Raises
        ------
        StoreConfigError
            Another boundary.
        """
        return offset_by_time(
            self._readable_queue(topic, queue_id), self._reader, timestamp_ms, boundary
        )

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that is left; 0 for a queue that does not exist."""
        queue = self._readable_queue(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def get_max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset behind the last message; 0 for a queue that does not exist."""
        queue = self._readable_queue(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def get_message_store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time (ms) of a message; -1 when it is not there."""
        queue = self._readable_queue(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return _NO_TIME
        record = self._reader.find(queue.commit_log_offset_of(queue_offset))
        return _NO_TIME if record is None else record.store_timestamp

    def get_earliest_message_time(self, topic: str, queue_id: int) -> int:
        """Return the store time (ms) of the first message of a queue; -1 when it is empty."""
        first = self.get_min_offset_in_queue(topic, queue_id)
        return self.get_message_store_timestamp(topic, queue_id, first)

    def close(self) -> None:
        """Close the files; they are opened again when they are needed."""
        super().close()
        if self._index is not None:
            self._index.close()

    def _readable_queue(self, topic: str, queue_id: int) -> ReadableQueue | None:
        key = (topic, queue_id)
        if key not in self._readable:
            self._readable[key] = self._open_queue(topic, queue_id)
        return self._readable[key]

    def _open_queue(self, topic: str, queue_id: int) -> ReadableQueue | None:
        simple = self.consume_queue(topic, queue_id)
        if simple is not None:
            held = self.queue_range(topic, queue_id)
            return SimpleQueue(simple, held, lambda: self._ext_queue(topic, queue_id))
        batch = self.batch_consume_queue(topic, queue_id)
        return None if batch is None else BatchQueue(batch, self.log, self.end_offset)

    def _ext_queue(self, topic: str, queue_id: int) -> ConsumeQueueExt | None:
        key = (topic, queue_id)
        if self._ext_paths is None:
            self._ext_paths = list_consume_queues(self.directory, "consumequeue_ext").queues
        if key not in self._ext:
            path = self._ext_paths.get(key)
            size = self.config.mapped_file_size_consume_queue_ext
            opened = None if path is None else open_consume_queue_ext(self.directory, path, size)
            self._ext[key] = opened
        return self._ext[key]
