# SPDX-License-Identifier: Apache-2.0
"""A store opened read-only: its log, queues and index at that moment, and queries."""

from __future__ import annotations

import logging
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from store_core.config.config_files import load_topics
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import (
    CorruptRecordError,
    FileVanishedError,
    StoreFormatError,
    StoreNotFoundError,
)
from store_core.files.store_directory import StoreDirectory
from store_core.index.index_queries import IndexService
from store_core.layout import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    CONFIG_DIR,
    CONSUME_QUEUE_DIR,
    INDEX_DIR,
    LMQ_PREFIX,
)
from store_core.log.commit_log import CommitLog, commit_log_directories
from store_core.log.dledger_log import committed_end, dledger_directories
from store_core.log.end_rules import Failure
from store_core.log.log_end import LogEnd, find_log_end
from store_core.queue.batch_consume_queue import read_batch_units
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.consume_queue_ext import read_ext_units
from store_core.queue.queue_database import QueueDatabase
from store_core.queue.queue_directories import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    list_consume_queues,
)
from store_core.queue.queue_range import QueueRange, prefetched_queues, queue_range
from store_core.queue.readable_queue import BatchQueue, SimpleQueue, proved_batch_units
from store_core.queue.unit_states import QueueUnitStates
from store_core.read.dispatch_proof import proved_dispatch
from store_core.read.store_queries import StoreQueries
from store_core.recovery.lost_end import find_lost_end
from store_core.staged_commit.staging import STAGING_DIRECTORY, uncommitted_offset
from store_core.state.checkpoint import StoreCheckpoint, load_checkpoint
from store_core.state.store_state import (
    StoreKind,
    StoreState,
    has_dledger_log,
    queue_database,
    store_kind,
    store_state,
    written_by_5x,
)
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from store_core.config.config_files import TopicConfig
    from store_core.files.segment_list import SegmentList
    from store_core.log.record_reader import RecordReader
    from store_core.queue.consume_queue_ext import ExtUnits
    from store_core.queue.queue_database import StoredUnits
    from store_core.queue.readable_queue import ReadableQueue
    from store_core.queue.unit_states import AnyUnits, Int64s, Units
    from store_core.read.find_messages import KeySearch
    from store_core.read.readable_store import ReadableStore
    from store_core.recovery.lost_end import LostEnd

logger = logging.getLogger(__name__)

_PARTS_OF_A_STORE = ("commitlog", "consumequeue", "checkpoint", "lock", "config")
_proven_starts: dict[tuple[object, ...], tuple[int, bytes]] = {}
"""Per process: (store, last segment, run of the broker) -> a record near the end, its first bytes.

The run is in the key because recovery at its start may cut the log before that record and leave the
record's bytes in the file.
"""
_MOST_PROVEN_STARTS = 1024  # 100 bytes each; the oldest are dropped
_PROOF_BYTES = 88
_MOST_QUEUES, _MOST_REMOTE_QUEUES = 4096, 8  # 0.3 s in all; a few requests each


class StoreSnapshot(StoreQueries, Closing):
    """A store as it was when opened; takes no lock, creates and changes nothing.

    A `ReadableStore`. Files are opened read-only and on demand; nothing after ``end_offset`` is
    ever returned. Queue ranges, index files and the queues that queries read are cached, so
    repeated calls are cheap and give equal answers; open a new snapshot to see what a live broker
    has added. Use it in one thread.

    Parameters
    ----------
    path
        The store root (``storePathRootDir``): a local path, or a URI for ``pyarrow.fs``.
    config
        Sizes that the files do not show, and limits; optional, default RocketMQ's.
    end_offset
        End of the log, if already known; searched for if None.

    Raises
    ------
    StoreNotFoundError
        The path does not exist, or contains no part of a store.
    StoreFormatError
        File names and sizes do not match.
    StoreKindError
        The store has logs of several nodes of a DLedger group and nothing says which is its own.

    Attributes
    ----------
    dledger_directories
        Directories of a DLedger log; empty if the log is not DLedger's.
    kind
        Parts of the store in other logs or in databases that cannot be read; queues in such a
        database are treated as missing.
    end_offset
        End of the log.
    tail_offset
        Start of the damage at the end of the log; ``end_offset`` if the log ends with a whole
        record, or if its end was given.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | StoreDirectory,
        config: MessageStoreConfig | None = None,
        end_offset: int | None = None,
    ) -> None:
        directory = path if isinstance(path, StoreDirectory) else StoreDirectory(path)
        self.directory = directory
        self.config = config or MessageStoreConfig()
        _look_at(directory, self.config)
        _check_is_store(directory, self.config)
        self.kind: StoreKind = store_kind(directory)
        self.state: StoreState = store_state(directory)
        self.checkpoint: StoreCheckpoint | None = load_checkpoint(directory)
        with_dledger = self.kind.dledger_log or self.config.store_path_d_ledger_commit_log
        self.dledger_directories: list[str] = (
            dledger_directories(directory, self.config) if with_dledger else []
        )
        self.log = CommitLog(directory, self.config, self.dledger_directories)
        self._dispatched: int | None = None
        self._database: QueueDatabase | None = None
        self._database_sought = False
        self._queue_paths: dict[tuple[str, int], str] | None = None
        self._batch_paths: dict[tuple[str, int], str] | None = None
        self._ext_paths: dict[tuple[str, int], str] | None = None
        self._ext: dict[tuple[str, int], SegmentList | None] = {}
        self._ranges: dict[tuple[str, int], QueueRange] = {}
        self._queues: dict[tuple[str, int], ReadableQueue | None] = {}
        self._search: KeySearch | None = None
        self._index: IndexService | None = None
        self._topics: dict[str, TopicConfig] | None = None
        self._topics_read = False
        self._lost_ends: dict[int | None, LostEnd | None] = {}
        try:
            _ = self.queue_database  # before the end, so that its units are of records in the log
            given = None if end_offset is None else LogEnd(end_offset, "given", -1, end_offset)
            end = given or self._find_end()
            self.end_offset, self.tail_offset = end.end_offset, end.tail_offset
            self.end_reason = end.reason
            self._last_start = end.proven_start if end_offset is None else None
            directory.forget(directory.resolve(), below=False)
            if self.state is StoreState.STOPPED:
                self.state = store_state(directory)  # a broker may have started meanwhile
        except BaseException:
            self.close()  # the caller cannot: it has no object yet
            raise

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], config: MessageStoreConfig | None = None
    ) -> StoreSnapshot:
        """Return ``StoreSnapshot(path, config)``."""
        return cls(path, config)

    @property
    def reader(self) -> RecordReader:
        """Reads single records of the log."""
        from store_core.log.record_reader import RecordReader  # noqa: PLC0415 (planning needs none)

        return RecordReader(self.log, self.end_offset, self.directory.uri)

    @property
    def min_phy_offset(self) -> int:
        """First byte of the log; -1 if it is empty."""
        return self.log.min_offset

    @property
    def max_phy_offset(self) -> int:
        """End of the readable log, exclusive; 0 if it is empty."""
        return self.end_offset

    @property
    def lost_end(self) -> LostEnd | None:
        """What is lost after the end of the log, as the rest of the store proves.

        None if nothing is lost, if a broker has (or may have) the store open, or if the end was
        given.
        """
        return self._find_lost_end(None)

    @property
    def evident_lost_end(self) -> LostEnd | None:
        """`lost_end`, if checkpoint, index or some of the queues hint at a loss; else None.

        Queues matter only if checkpoint and index show nothing: the checkpoint is missing, or
        everything lost was stored in the same millisecond as the last remaining record. In a remote
        store, where each queue takes a chain of requests, they are read only in the first case.
        """
        most = _MOST_QUEUES
        if not self.directory.is_local:
            most = 0 if self.checkpoint is not None else _MOST_REMOTE_QUEUES
        return None if self._find_lost_end(most) is None else self.lost_end

    @property
    def queue_paths(self) -> dict[tuple[str, int], str]:
        """Directories of the consume queues by (topic, queue id), light queues included."""
        if self._queue_paths is None:
            database = self.queue_database
            if database is not None:
                self._queue_paths = dict.fromkeys(database.queues(), database.path)
            elif self.kind.queue_database:
                self._queue_paths = {}
            else:
                self.directory.list_ahead([self.directory.resolve(CONSUME_QUEUE_DIR)], whole=True)
                self._queue_paths = list_consume_queues(self.directory).queues
        return self._queue_paths

    @property
    def queue_database(self) -> QueueDatabase | None:
        """The database of the queues, as it was at first access; None if there is none.

        If there are queues in files too, the ones that reach further are used: a broker may write
        both (``rocksdbCQDoubleWriteEnable``), the database later, or have switched from one to the
        other.
        """
        if not self._database_sought:
            self._database_sought = True
            path = queue_database(self.directory)
            if path and not self.kind.queue_database:
                self._database = self._open_database(path)
        return self._database

    def _open_database(self, path: str) -> QueueDatabase | None:
        """Return the database; None if it cannot be opened or the files reach at least as far."""
        try:
            database = QueueDatabase(self.directory, path)
        except (StoreFormatError, FileVanishedError) as err:  # the log can still be read
            self.kind = replace(self.kind, queue_database=path, unread_because=err.reason)
            return None
        files = list_consume_queues(self.directory).queues
        if files and self._files_reach(files) >= database.dispatched_offset():
            database.close()
            return None
        return database

    def _files_reach(self, paths: Mapping[tuple[str, int], str]) -> int:
        """Return the end of the record of the newest unit in files, as the units give it."""
        end = 0
        for (topic, queue_id), path in paths.items():
            with suppress(CorruptRecordError, StoreFormatError):
                size = self.config.mapped_file_size_consume_queue
                queue = ConsumeQueue.open(self.directory, topic, queue_id, path, size)
                last = queue.read_units(queue.end_of_units() - 1, queue.end_of_units())
                end = max([end, *(last["commit_log_offset"] + last["message_size"]).tolist()])
        return end

    @property
    def has_light_queues(self) -> bool:
        """Whether the broker had light queues enabled, as configuration or queues show.

        Records are no evidence: any producer can write the properties that name light queues.
        """
        if self.config.enable_multi_dispatch or self.config.enable_lmq:
            return True
        return any(topic.startswith(LMQ_PREFIX) for topic, _ in self.queue_paths)

    @property
    def batch_queue_paths(self) -> dict[tuple[str, int], str]:
        """Directories of the batch consume queues by (topic, queue id)."""
        if self._batch_paths is None:
            in_files = not self.kind.queue_database
            found = list_consume_queues(self.directory, BATCH_CONSUME_QUEUE).queues
            self._batch_paths = found if in_files else {}
        return self._batch_paths

    @property
    def topic_configs(self) -> dict[str, TopicConfig] | None:
        """Content of ``topics.json``; None if it does not exist, or settings are in a database."""
        if not self._topics_read:
            if not self.kind.config_databases:  # else the file may be out of date
                self._topics = load_topics(self.directory)
            self._topics_read = True
        return self._topics

    @property
    def index(self) -> IndexService:
        """The index files."""
        if self._index is None:
            stopped = self.state is StoreState.STOPPED
            self._index = IndexService(self.directory, self.config, stopped=stopped)
        return self._index

    def consume_queue(self, topic: str, queue_id: int) -> StoredUnits | None:
        """Return a consume queue; None if it has no directory and is in no database."""
        path = self.queue_paths.get((topic, queue_id))
        return None if path is None else self.open_queue(topic, queue_id, path)

    def open_queue(self, topic: str, queue_id: int, path: str) -> StoredUnits:
        """Return a queue of `queue_paths`, with its files as they are now."""
        if self.queue_database is not None:
            return self.queue_database.queue(topic, queue_id)
        size = self.config.mapped_file_size_consume_queue
        return ConsumeQueue.open(self.directory, topic, queue_id, path, size)

    def batch_segments(self, topic: str, queue_id: int) -> SegmentList | None:
        """Return the files of a batch consume queue; None if it has no directory."""
        path = self.batch_queue_paths.get((topic, queue_id))
        size = self.config.mapper_file_size_batch_consume_queue
        return None if path is None else BATCH_CONSUME_QUEUE.segments(self.directory, path, size)

    def batch_units(self, topic: str, queue_id: int) -> Units | None:
        """Return all units of a batch consume queue; None if it has no directory."""
        segments = self.batch_segments(topic, queue_id)
        return None if segments is None else read_batch_units(self.directory, segments)

    def ext_units(self, topic: str, queue_id: int, addresses: Int64s) -> ExtUnits | None:
        """Return extension units of a consume queue; None if they have no directory."""
        key = (topic, queue_id)
        if self._ext_paths is None:
            self._ext_paths = list_consume_queues(self.directory, CONSUME_QUEUE_EXT).queues
        if key not in self._ext:
            path = self._ext_paths.get(key)
            size = self.config.mapped_file_size_consume_queue_ext
            kind = CONSUME_QUEUE_EXT
            self._ext[key] = None if path is None else kind.segments(self.directory, path, size)
        segments = self._ext[key]
        return None if segments is None else read_ext_units(self.directory, segments, addresses)

    def queue(self, topic: str, queue_id: int) -> ReadableQueue | None:
        """Return a queue of either kind with its proved range; None if it does not exist.

        Raises
        ------
        StoreKindError
            The queues are in a database that cannot be read.
        """
        key = (topic, queue_id)
        self.kind.require_queue_files("they cannot be read")
        if key not in self._queues:
            self._queues[key] = self._open_queue(topic, queue_id)
        return self._queues[key]

    def queue_range(self, topic: str, queue_id: int) -> QueueRange:
        """Return the proved range of a consume queue; ``(0, 0)`` if it does not exist."""
        key = (topic, queue_id)
        if key not in self._ranges:
            self._ranges[key] = self.present_range(topic, queue_id)
        return self._ranges[key]

    def present_range(self, topic: str, queue_id: int) -> QueueRange:
        """Return the `queue_range` of the files as they are now; it is not cached."""
        queue = self.consume_queue(topic, queue_id)
        return QueueRange(0, 0) if queue is None else queue_range(queue, self.log, self.end_offset)

    def prefetched_queues(
        self, keys: Iterable[tuple[str, int]], *, units: bool = False, whole: bool = False
    ) -> Iterator[tuple[str, int]]:
        """Yield the keys of consume queues; those of a remote store are read ahead.

        With ``units``, all their units are read, not only those at begin and end; with ``whole``,
        also the rest of their files.
        """
        if self.queue_database is not None:  # it was copied here: nothing to read ahead
            return iter(list(keys))
        log, end = self.log, self.end_offset
        return prefetched_queues(keys, self.consume_queue, log, end, units=units, whole=whole)

    def dispatched_offset(self, near: Iterable[tuple[str, int]] = ()) -> int:
        """Return an offset of the log below which every record has its units in the queues.

        This is true of queues read after the first call, which drops everything cached of queues.
        Later calls return the same offset.

        Parameters
        ----------
        near
            Queues that the caller reads anyway (see ``dispatch_proof``).
        """
        if self._dispatched is None:
            self._dispatched = self._prove_dispatch(near)
            self._forget_queues()
        return self._dispatched

    def _prove_dispatch(self, near: Iterable[tuple[str, int]]) -> int:
        if self.queue_database is None:
            wanted = list(self.prefetched_queues(near))
            margin_ms = self.config.flush_consume_queue_thorough_interval
            return proved_dispatch(self, self.directory, self.present_range, wanted, margin_ms)
        # An index file may name records whose units are only in the broker's memory.
        return max(min(self.queue_database.dispatched_offset(), self.end_offset), 0)

    def _forget_queues(self) -> None:
        if self.state is not StoreState.STOPPED:  # else all was dispatched before the opening
            for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT):
                self.directory.forget(self.directory.resolve(kind.directory))
            self.directory.forget(self.directory.resolve(CONFIG_DIR))
        self._ranges.clear()
        self._queues.clear()
        self._queue_paths = self._batch_paths = None
        self._topics_read = False

    def last_dispatched(self) -> tuple[int, int]:
        """Return start and end of the last record that is in a consume queue; (-1, 0) if none.

        Reads the tail of every queue of the store.
        """
        ranges = [self.queue_range(*key) for key in self.prefetched_queues(self.queue_paths)]
        return max(((r.last_start, r.last_end) for r in ranges), default=(-1, 0))

    def newest_store_timestamp(self) -> int | None:
        """Return the store time (ms) of the last record in a queue, about the end of the log.

        If the queues are in an unreadable database, the checkpoint's flush time. None if unknown.
        """
        if self.kind.queue_database:
            return (self.checkpoint.physic_msg_timestamp if self.checkpoint else 0) or None
        last, _ = self.last_dispatched()
        return self.store_timestamp_at(last) if last >= 0 else None

    def oldest_store_timestamp(self) -> int | None:
        """Return the store time (ms) of the log's first record; None if it starts with none."""
        first = self.log.segments.find(max(self.min_phy_offset, 0))
        return self.log.first_store_timestamp(first, self.end_offset) if first else None

    def store_timestamp_at(self, commit_log_offset: int) -> int | None:
        """Return the store time (ms) of the record that starts there; None if none does."""
        return self.log.store_timestamp_at(commit_log_offset, self.end_offset)

    def reopened(self) -> StoreSnapshot:
        """Return a new snapshot with the same end, for use after a file vanished."""
        return StoreSnapshot(self.directory, self.config, self.end_offset)

    def close(self) -> None:
        """Close the files; those of the index are reopened if needed."""
        self.log.close()
        if self._index is not None:
            self._index.close()
        if self._database is not None:
            self._database.close()
            self._database, self._database_sought = None, False
            self._forget_queues()

    def _reading(self, *, whole: bool = False) -> AbstractContextManager[StoreSnapshot]:
        del whole
        return nullcontext(self)

    def _key_search(self, store: ReadableStore) -> KeySearch:
        """Return the one search of this snapshot, which caches what it has read."""
        if self._search is None:
            self._search = super()._key_search(store)
        return self._search

    def _open_queue(self, topic: str, queue_id: int) -> ReadableQueue | None:
        simple = self.consume_queue(topic, queue_id)
        if simple is not None:
            held = self.queue_range(topic, queue_id)
            return SimpleQueue(simple, held, partial(self.ext_units, topic, queue_id))
        segments = self.batch_segments(topic, queue_id)
        if segments is None:
            return None
        found = read_batch_units(self.directory, segments)
        units = proved_batch_units(found, (topic, queue_id), self.log, self.end_offset)
        units_per_file = segments.file_size // BATCH_CONSUME_QUEUE.unit_bytes
        return BatchQueue(units, units_per_file, self.log.min_offset)

    def _find_end(self) -> LogEnd:
        last = self.log.segments.segments[-1].path if len(self.log.segments) else ""
        key = (self.directory.uri, last, *self._broker_run())
        evidence = _Evidence(self)
        found = find_log_end(self.log, evidence, self._proven_start(key))
        if self.dledger_directories:
            found = committed_end(
                self.log,
                found,
                self.directory,
                self.config,
                lambda: evidence.last_dispatched()[0],
            )
        self._keep_proof(key, found)
        return found

    def _find_lost_end(self, most_queues: int | None) -> LostEnd | None:
        if most_queues not in self._lost_ends:
            self._lost_ends[most_queues] = self._sought_lost_end(most_queues)
        return self._lost_ends[most_queues]

    def _sought_lost_end(self, most_queues: int | None) -> LostEnd | None:
        from store_core.recovery.lost_end import FilesWitness  # noqa: PLC0415 (workers need none)

        last_start, state = self._last_start, self.state
        # A remote store does not show whether a broker has it open.
        maybe_live = state is StoreState.LIVE or (
            state is StoreState.CRASHED and not self.directory.is_local
        )
        if last_start is None or maybe_live or not len(self.log.segments):
            return None
        last_ms = self.store_timestamp_at(last_start) or 0 if last_start >= 0 else 0
        witness = FilesWitness(
            self.directory,
            self.config,
            self.checkpoint,
            stopped_cleanly=state is StoreState.STOPPED,
            knows_forced=not (self.config.is_slave or self.dledger_directories),
            database=self.queue_database,
            most_queues=most_queues,
        )
        found = find_lost_end(self.log, Failure(self.end_offset, last_start, last_ms), witness)
        return None if found is None or self._was_opened_since() else found

    def _was_opened_since(self) -> bool:
        """Return whether a broker has opened the store since this snapshot found the log's end."""
        self.directory.forget(self.directory.resolve(), below=False)
        is_same = load_checkpoint(self.directory) == self.checkpoint
        return not is_same or store_state(self.directory) is not self.state

    def _broker_run(self) -> tuple[object, ...]:
        """Return values that differ between a broker's runs on this store."""
        abort = self.directory.stat(self.directory.resolve(ABORT_FILE))
        confirmed = self.checkpoint.confirm_phy_offset if self.checkpoint else None
        return (abort.modified_ms if abort else None, confirmed)

    def _proven_start(self, key: tuple[object, ...]) -> int:
        start, proof = _proven_starts.get(key, (-1, b""))
        return start if start >= 0 and self._bytes_at(start) == proof else -1

    def _keep_proof(self, key: tuple[object, ...], end: LogEnd) -> None:
        if end.proven_start >= 0:
            _proven_starts[key] = (end.proven_start, self._bytes_at(end.proven_start))
            for oldest in list(_proven_starts)[:-_MOST_PROVEN_STARTS]:
                _proven_starts.pop(oldest, None)

    def _bytes_at(self, commit_log_offset: int) -> bytes:
        segment = self.log.segments.find(commit_log_offset)
        if segment is None:
            return b""
        source = self.log.source(segment)
        return source.read_at(commit_log_offset - segment.from_offset, _PROOF_BYTES)


class _Evidence:
    """What a store's other files show about the end of its log (see ``log_end.EndEvidence``)."""

    def __init__(self, store: StoreSnapshot) -> None:
        self._store = store
        checkpoint = store.checkpoint
        self.stopped_cleanly = store.state is StoreState.STOPPED
        self.is_slave = store.config.is_slave
        self.confirm_phy_offset = checkpoint.confirm_phy_offset if checkpoint else None
        if store.dledger_directories:  # a DLedger log never sets it
            self.confirm_phy_offset = None
        self.logics_msg_timestamp = checkpoint.logics_msg_timestamp if checkpoint else None
        self.physic_msg_timestamp = checkpoint.physic_msg_timestamp if checkpoint else None
        self.never_recovered = self.confirm_phy_offset == 0 and written_by_5x(store.directory)
        self.never_recovered |= bool(store.dledger_directories)  # nothing committed is ever cut
        self._last: tuple[int, int] | None = None
        self._asked_for_jobs = False

    def is_live(self) -> bool:
        return self._store.state is StoreState.LIVE

    def indexed_offset(self) -> int | None:
        files = self._store.index.files
        return files[-1].header.end_phy_offset if files else None

    def last_dispatched(self) -> tuple[int, int]:
        if self._last is None:
            self._last = self._find_last_dispatched()
        return self._last

    def uncommitted_offset(self) -> int | None:
        directory = self._store.directory
        if self._asked_for_jobs:
            directory.forget(directory.resolve(STAGING_DIRECTORY))
        self._asked_for_jobs = True
        return uncommitted_offset(self._store.directory, self._store.log)

    def unit_states(self, offset: int, gap_bytes: int) -> QueueUnitStates:
        keys = (*self._store.queue_paths, *self._store.batch_queue_paths)
        return QueueUnitStates(self._store.log, self._units_of, keys, offset, gap_bytes)

    def _units_of(self, topic: str, queue_id: int) -> AnyUnits | None:
        simple = self._store.consume_queue(topic, queue_id)
        return self._store.batch_units(topic, queue_id) if simple is None else simple

    def _find_last_dispatched(self) -> tuple[int, int]:
        """As ``StoreSnapshot.last_dispatched``, but before the end of the log is known."""
        store = self._store
        end = store.log.segments.max_offset
        if store.kind.queue_database:  # its content is unknown: perhaps everything
            indexed = self.indexed_offset() or 0
            return indexed, indexed if self.is_live() else end
        last_start, last_end = -1, 0
        keys: Iterable[tuple[str, int]] = store.queue_paths
        if store.queue_database is None:
            keys = prefetched_queues(keys, store.consume_queue, store.log, end)
        for key in keys:
            try:
                queue = store.consume_queue(*key)
                found = queue_range(queue, store.log, end) if queue else QueueRange(0, 0)
            except (CorruptRecordError, StoreFormatError):
                last_end = end  # a damaged queue's content is unknown: perhaps everything
                continue
            last_start, last_end = max(last_start, found.last_start), max(last_end, found.last_end)
        return last_start, last_end


def _look_at(directory: StoreDirectory, config: MessageStoreConfig) -> None:
    """Request in parallel the listings and first bytes that opening a remote store needs."""
    directory.remember()
    if directory.is_local:
        return
    names = ("", CONFIG_DIR, INDEX_DIR, CONSUME_QUEUE_DIR, STAGING_DIRECTORY)
    logs = commit_log_directories(directory, config)
    directory.list_ahead([*map(directory.resolve, names), *logs])
    topics = directory.resolve(CONFIG_DIR, "topics.json")
    files = [directory.stat(directory.resolve(CHECKPOINT_FILE)), directory.stat(topics)]
    files += sorted(entry for path in logs for entry in directory.list(path))[-1:]
    directory.fetch_ahead((file.path, 0, 1) for file in files if file and not file.is_dir)


def _check_is_store(directory: StoreDirectory, config: MessageStoreConfig) -> None:
    directory.check_root()
    names = {entry.name for entry in directory.list(directory.resolve())}
    elsewhere = config.store_path_commit_log or config.store_path_d_ledger_commit_log
    has_parts = not names.isdisjoint(_PARTS_OF_A_STORE) or has_dledger_log(names)
    if not has_parts and not elsewhere:
        found = ", ".join(sorted(names)[:5]) or "nothing"
        raise StoreNotFoundError(
            f"{directory.uri}: no RocketMQ store; found {found}, expected commitlog/. Give the "
            "store root (storePathRootDir), or option storePathCommitLog"
        )
