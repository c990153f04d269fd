# SPDX-License-Identifier: Apache-2.0
"""The open parts of a store, driven by hand: put, dispatch and expire when a test says so."""

from __future__ import annotations

import itertools
from pathlib import Path

from store_core.codec.message_codec import encode_message, properties_to_bytes
from store_core.config.message_store_config import MessageStoreConfig
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.index.index_dispatcher import IndexDispatcher
from store_core.index.index_file_set import LiveIndex, RecoveredLog
from store_core.log.commit_log import scan_frames
from store_core.log.commit_log_appender import CommitLogAppender
from store_core.log.live_log import PinnedLog
from store_core.log.log_scan import refuse_gap
from store_core.queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.dispatch_request import DispatchDecoder
from store_core.read.pinned_store import PinnedStore
from store_core.read.store_queries import StoreQueries
from tests.store_factory import BORN_HOST, START_MS, STORE_HOST

SIZES = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 20 * 16,
    "max_hash_slot_num": 8,
    "max_index_num": 64,
}


class LiveReads(StoreQueries):
    """The queries of a `LiveStore`."""

    def __init__(self, store: LiveStore):
        self.config, self._store = store.config, store

    @property
    def min_phy_offset(self):
        return self._store.log.min_offset

    @property
    def max_phy_offset(self):
        return self._store.log.max_offset

    def _reading(self, *, whole=False):
        return self._store.pinned(whole=whole)


class LiveStore:
    """``records`` are (offset, topic, queue id, queue offset, keys) of the messages put."""

    def __init__(self, root: Path, batch_topics=(), **sizes):
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.config = MessageStoreConfig(**{**SIZES, **sizes})
        self.log = MappedFileQueue(
            [str(root / "commitlog")], self.config.mapped_file_size_commit_log, option="size"
        )
        self._clock = itertools.count(START_MS, 1000)
        self.appender = CommitLogAppender(self.log, lambda: next(self._clock))
        self.queues = ConsumeQueueStore(
            str(root), self.config, is_batch_topic=lambda topic: topic in batch_topics
        )
        self.queues.load()
        self.index = IndexDispatcher(str(root), self.config, lambda: START_MS)
        with PinnedLog(self.log, str(root)) as log:
            self.index.load(RecoveredLog(log, 0, 0, last_exit_ok=True, index_msg_timestamp=0))
        self.live_index = LiveIndex(root / "index", self.config, lambda: self.index.from_offset)
        self.reads = LiveReads(self)
        self.dispatched_to = 0
        self.records = []
        self._queue_offsets = {}
        self._decoder = DispatchDecoder(self.config.delay_levels_ms)

    def put(self, topic="TopicA", body=b"body", queue_id=0, keys="", tags="", **fields):
        """Append a message; more fields as in `encode_message`."""
        queue_offset = self._queue_offsets.get((topic, queue_id), 0)
        properties = {"KEYS": keys, "TAGS": tags}
        record = encode_message(
            **{
                "topic": topic.encode(),
                "body": body,
                "properties_raw": properties_to_bytes((k, v) for k, v in properties.items() if v),
                "commit_log_offset": 0,
                "queue_offset": 0,
                "queue_id": queue_id,
                "born_timestamp": START_MS,
                "born_host": BORN_HOST,
                "store_timestamp": 0,
                "store_host": STORE_HOST,
                **fields,
            }
        )
        placed = self.appender.append(bytearray(record), queue_offset)
        self._queue_offsets[topic, queue_id] = queue_offset + 1
        self.records.append((placed.commit_log_offset, topic, queue_id, queue_offset, keys))
        return placed

    def pinned(self, *, whole=False):
        """Return the store in its present state."""
        return PinnedStore(self.log, self.queues, self.live_index, self.config, whole=whole)

    def dispatch(self, *, index=True):
        """Dispatch queues, and the index, up to the end of the log."""
        with PinnedLog(self.log, str(self.root), whole=True) as log:
            start = max(self.dispatched_to, log.min_offset)
            for frames in scan_frames(log, start, log.end_offset, on_gap=refuse_gap):
                self.queues.put(self._decoder.decode(frames).queued())
                if index:
                    self.index.dispatch(frames)
            self.dispatched_to = log.end_offset

    def expire(self):
        """Delete the oldest segment, then the units and entries that refer to it."""
        self.log.delete_expired_files(0, 0, immediately=True, batch_max=1)
        self.queues.delete_expired(self.log.min_offset)
        self.index.delete_expired(self.log.min_offset)

    def close(self):
        self.live_index.close()
        self.index.close()
        self.queues.close()
        self.log.close()
