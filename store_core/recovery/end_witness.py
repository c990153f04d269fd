"""What the files beside a log say about how far it went (``lost_end.EndWitness``)."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.index.index_file import read_index_header
from store_core.layout.store_paths import INDEX_DIR
from store_core.queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.queue_directories import BATCH_CONSUME_QUEUE, list_consume_queues
from store_core.recovery.lost_end import UnitsAfter, batch_units_after, simple_units_after
from store_core.state.store_checkpoint import StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory
    from store_core.queue.queue_database import QueueDatabase

    QueueKey = tuple[str, int]

_DAMAGED = (CorruptRecordError, StoreFormatError, StoreReadError)


class FilesWitness:
    """Reads queues and index as they are when it is asked; what is damaged says nothing.

    Parameters
    ----------
    checkpoint
        As it was found; None: there is none.
    reach
        No queue has a unit of a record that ends after this; None: not known.
    most_queues
        So many queues are asked at most, as each takes a while; None: however many.
    """

    def __init__(
        self,
        directory: StoreDirectory,
        config: MessageStoreConfig,
        checkpoint: StoreCheckpoint | None,
        *,
        stopped_cleanly: bool,
        knows_forced: bool,
        database: QueueDatabase | None = None,
        reach: int | None = None,
        most_queues: int | None = None,
    ) -> None:
        self.checkpoint = checkpoint or StoreCheckpoint()
        self.stopped_cleanly, self.knows_forced = stopped_cleanly, knows_forced
        self._directory, self._config, self._database = directory, config, database
        self._reach, self._most_queues = reach, most_queues

    def units_after(self, offset: int) -> Iterator[tuple[QueueKey, UnitsAfter]]:
        """Return what the queues have of records at or after an offset of the log."""
        if self._most_queues == 0 or (self._reach is not None and self._reach <= offset):
            return
        if self._database is not None:
            yield from self._database_units(self._database, offset)
            return
        simple = list_consume_queues(self._directory).queues
        batch = list_consume_queues(self._directory, BATCH_CONSUME_QUEUE).queues
        some = dict(islice(simple.items(), self._most_queues))
        left = None if self._most_queues is None else self._most_queues - len(some)
        yield from self._simple_units(some, offset)
        yield from self._batch_units(dict(islice(batch.items(), left)), offset)

    def last_indexed(self) -> tuple[int, int]:
        """Return start and store time (ms) of the record of the last index entry; (-1, 0): none."""
        entries = self._directory.list(self._directory.resolve(INDEX_DIR))
        names = sorted((e.name, e.path) for e in entries if not e.is_dir and e.name.isdigit())
        for _, path in names[::-1][:2]:  # a broker may have made the last one, and not used it
            with suppress(*_DAMAGED), self._directory.open(path) as source:
                header = read_index_header(source)
                if header.entry_count > 0:
                    return header.end_phy_offset, header.end_timestamp
        return -1, 0

    def _database_units(
        self, database: QueueDatabase, offset: int
    ) -> Iterator[tuple[QueueKey, UnitsAfter]]:
        for key in islice(database.queues(), self._most_queues):
            queue = database.queue(*key)
            found = simple_units_after(queue.read_units, queue.end_of_units(), offset)
            if found is not None:
                yield key, found

    def _simple_units(
        self, paths: dict[QueueKey, str], offset: int
    ) -> Iterator[tuple[QueueKey, UnitsAfter]]:
        size = self._config.mapped_file_size_consume_queue
        for key, path in paths.items():
            with suppress(*_DAMAGED):
                with ConsumeQueue.open(self._directory, *key, path, size).held_open() as queue:
                    found = simple_units_after(queue.read_units, queue.end_of_units(), offset)
                if found is not None:
                    yield key, found

    def _batch_units(
        self, paths: dict[QueueKey, str], offset: int
    ) -> Iterator[tuple[QueueKey, UnitsAfter]]:
        size = self._config.mapper_file_size_batch_consume_queue
        for key, path in paths.items():
            with suppress(*_DAMAGED):
                queue = BatchConsumeQueue.open(self._directory, *key, path, size)
                found = batch_units_after(queue.read_units, offset)
                if found is not None:
                    yield key, found
