"""A store opened for reading only: the reading methods of ``MessageStore``, and exact queries."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from store_core.files.store_directory import StoreDirectory
from store_core.log.record_reader import RecordReader
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.consume_queue_ext import ConsumeQueueExt, open_consume_queue_ext
from store_core.queue.queue_directories import CONSUME_QUEUE_EXT, list_consume_queues
from store_core.queue.readable_queue import ReadableQueue, SimpleQueue, proved_batch_queue
from store_core.read.find_messages import KeySearch
from store_core.read.store_reads import StoreReads
from store_core.store_view import StoreView

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.index.index_queries import IndexQueries


class StoreSnapshot(StoreView, StoreReads):
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

    def _reading_queue(
        self, topic: str, queue_id: int
    ) -> AbstractContextManager[tuple[ReadableQueue | None, RecordReader]]:
        return nullcontext((self._readable_queue(topic, queue_id), self._reader))

    def _reading_log(self) -> AbstractContextManager[RecordReader]:
        return nullcontext(self._reader)

    def _reading_index(self) -> AbstractContextManager[tuple[IndexQueries, RecordReader]]:
        return nullcontext((self.index, self._reader))

    def _reading_keys(self) -> AbstractContextManager[KeySearch]:
        return nullcontext(self._search)

    def _forget_queues(self) -> None:
        super()._forget_queues()
        self._opened.clear()
        self._readable.clear()

    def _readable_queue(self, topic: str, queue_id: int) -> ReadableQueue | None:
        key = (topic, queue_id)
        self.kind.require_queue_files("they cannot be read")
        if key not in self._readable:
            self._readable[key] = self._open_queue(topic, queue_id)
        return self._readable[key]

    def _open_queue(self, topic: str, queue_id: int) -> ReadableQueue | None:
        simple = self.consume_queue(topic, queue_id)
        if simple is not None:
            held = self.queue_range(topic, queue_id)
            return SimpleQueue(simple, held, lambda: self._ext_queue(topic, queue_id))
        batch = self.batch_consume_queue(topic, queue_id)
        return None if batch is None else proved_batch_queue(batch, self.log, self.end_offset)

    def _ext_queue(self, topic: str, queue_id: int) -> ConsumeQueueExt | None:
        key = (topic, queue_id)
        if self._ext_paths is None:
            self._ext_paths = list_consume_queues(self.directory, CONSUME_QUEUE_EXT).queues
        if key not in self._ext:
            path = self._ext_paths.get(key)
            size = self.config.mapped_file_size_consume_queue_ext
            opened = None if path is None else open_consume_queue_ext(self.directory, path, size)
            self._ext[key] = opened
        return self._ext[key]
