"""A RocketMQ message store that this process opens, writes and reads.

Source: RocketMQ ``DefaultMessageStore`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any, Callable

from store_core.codec.hosts import parse_host
from store_core.commit_log_appender import CommitLogAppender
from store_core.errors import StoreClosedError
from store_core.live_index import LiveIndex
from store_core.live_reads import LiveReads
from store_core.put_message import MessagePutter
from store_core.queue_offset_table import QueueOffsetTable
from store_core.results import PutMessageStatus
from store_core.running_flags import RunningFlags
from store_core.services.store_services import StoreServices, Surroundings
from store_core.store_parts import OpenOptions, StoreParts, open_parts
from store_core.store_reads import StoreReads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from store_core.config import MessageStoreConfig
    from store_core.find_messages import KeySearch
    from store_core.index_queries import IndexQueries
    from store_core.message import Message
    from store_core.readable_queue import ReadableQueue
    from store_core.record_reader import RecordReader
    from store_core.recovery import LogRecovery, Progress
    from store_core.results import AppendBatchResult, GetMessageResult, PutMessageResult
    from store_core.services.reput_message import Dispatcher
    from store_core.tag_filter import TagFilter

logger = logging.getLogger(__name__)

_SLAVE = "SLAVE"
_SLEEP_S = 0.001
_CLOSED = "the store is not open: load() and start() it first"


def now_ms() -> int:
    """Return the time of the machine, ms since the epoch."""
    return time.time_ns() // 1_000_000


class MessageStore(StoreReads):
    """Puts, dispatches, flushes, recovers, expires and reads, as a broker's store does.

    ``load``, ``start``, then use it in any number of threads, then ``shutdown``; as a context
    manager all three are done. A store that a broker has open is refused, and a broker refuses one
    that is open here.

    Parameters
    ----------
    config
        RocketMQ's settings. Sizes of files that are None are those of the files, else RocketMQ's
        defaults.
    store_host
        ``ip:port`` of messages that have no host of their own; part of their message ids.
    clock
        Returns ms since the epoch: store times, names of index files, age of files.
    surroundings
        Disks and hours, for tests; default: those of the machine.
    dispatchers
        Called with the records of the log after queues and index have them.
    is_batch_topic
        Whether a topic has batch queues; None: as ``config/topics.json`` says.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        *,
        store_host: str = "127.0.0.1:10911",
        clock: Callable[[], int] = now_ms,
        surroundings: Surroundings | None = None,
        dispatchers: Sequence[Dispatcher] = (),
        is_batch_topic: Callable[[str], bool] | None = None,
    ) -> None:
        self.config = config
        self.flags = RunningFlags()
        self._clock, self._store_host = clock, parse_host(store_host)
        self._surroundings = surroundings or Surroundings(clock)
        self._dispatchers, self._is_batch_topic = dispatchers, is_batch_topic
        self._parts: StoreParts | None = None
        self._services: StoreServices | None = None
        self._live: LiveReads | None = None
        self._index: LiveIndex | None = None
        self._putter: MessagePutter | None = None
        self._is_started = False
        self._is_slave = config.broker_role == _SLAVE and not config.duplication_enable

    def load(self, *, cut: bool = False, progress: Progress | None = None) -> LogRecovery:
        """Take the lock, load the store, recover it, and return what that did.

        Parameters
        ----------
        cut
            Cut off readable records that lie behind a damaged one; a copy is kept.
        progress
            Called with the bytes of the log that recovery has done, and all of them.

        Raises
        ------
        StoreLockedError
            Somebody has it open.
        LogDamageError
            A damaged record lies before readable ones, and ``cut`` is not given.
        StoreFormatError, StoreConfigError
            Files and configuration do not fit; a broker would not start either.
        StoreReadError, StoreWriteError
            A file cannot be read or written.
        """
        if self._parts is not None:
            return self._parts.recovery
        options = OpenOptions(self._clock, progress, cut, self._is_batch_topic)
        parts = open_parts(self.config, options)
        self._parts, self.config = parts, parts.config
        self._services = StoreServices(parts, self.flags, self._surroundings, self._dispatchers)
        indexed = parts.index
        self._index = LiveIndex(indexed.path, self.config, lambda: indexed.from_offset)
        self._live = LiveReads(parts.segments, parts.queues, self._index, self.config)
        self._putter = self._make_putter(parts, self._services)
        return parts.recovery

    def start(self) -> None:
        """Start the services; from now on messages can be put.

        Raises
        ------
        StoreClosedError
            The store is not loaded.
        """
        self._opened()
        if not self._is_started and self._services is not None:
            self._services.start()
            self._is_started = True

    def shutdown(self) -> None:
        """Stop cleanly: flush, dispatch, write the checkpoint, remove ``abort``, release the lock.

        ``abort`` stays where something could not be flushed or dispatched: the next start recovers.
        """
        parts, services = self._parts, self._services
        if parts is None or services is None:
            return
        was_started, self._is_started = self._is_started, False
        if was_started:
            services.shutdown()
        clean = self._is_clean(parts, services)
        self._forget()
        parts.close(clean=clean)
        if not clean:
            logger.warning("%s is not stopped cleanly: the next start recovers it", parts.lock.root)

    def destroy(self) -> None:
        """Delete the log, the queues, the index and the checkpoint; configuration files stay."""
        parts, services = self._opened(), self._services
        if self._is_started and services is not None:
            services.shutdown()
        self._is_started = False
        self._forget()
        parts.destroy()

    def __enter__(self) -> MessageStore:
        self.load()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def put_message(self, message: Message) -> PutMessageResult:
        """Put one message; see ``MessagePutter.put_message``."""
        return self._putting().put_message(message)

    def put_messages(self, messages: Sequence[Message]) -> PutMessageResult:
        """Put messages of one queue, all or none; see ``MessagePutter.put_messages``."""
        return self._putting().put_messages(messages)

    def append_batch(self, batch: Any) -> AppendBatchResult:
        """Put the rows of a record batch; see ``RecordBatchPutter.append_batch``."""
        return self._putting().append_batch(batch)

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: TagFilter | None = None,
    ) -> GetMessageResult:
        """Pull messages of one queue; see ``StoreReads.get_message``. Counted."""
        begin = self._clock()
        result = super().get_message(group, topic, queue_id, offset, max_msg_nums, message_filter)
        if self._services is not None:
            self._services.stats.record_get(len(result.messages), self._clock() - begin)
        return result

    @property
    def min_phy_offset(self) -> int:
        """First byte of the log; -1 when it is empty."""
        return self._opened().segments.min_offset

    @property
    def max_phy_offset(self) -> int:
        """End of the readable log, exclusive; 0 when it is empty."""
        return self._opened().segments.max_offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that are not yet in queues and index."""
        return self.services.dispatch_behind_bytes

    @property
    def services(self) -> StoreServices:
        """The services, each with ``run_once``."""
        if self._services is None:
            raise StoreClosedError(_CLOSED, self.config.store_path_root_dir)
        return self._services

    def runtime_info(self) -> dict[str, str]:
        """Return counters, rates, offsets and disk usage, with RocketMQ's keys."""
        parts, ratio = self._opened(), self._surroundings.disk_ratio
        info = dict(self.services.stats.runtime_info())
        info["commitLogMinOffset"] = str(parts.segments.min_offset)
        info["commitLogMaxOffset"] = str(parts.segments.max_offset)
        ratios = {path: ratio(path) for path in parts.segments.directories}
        info["commitLogDiskRatio"] = str(min(ratios.values()))
        if len(ratios) > 1:
            info.update({f"commitLogDiskRatio_{path}": str(r) for path, r in ratios.items()})
        info["consumeQueueDiskRatio"] = str(ratio(os.path.join(parts.lock.root, "consumequeue")))
        return info

    def flush(self) -> int:
        """Force the log to the disk now; return the offset up to which it is there."""
        segments = self._opened().segments
        while not segments.commit() or not segments.flush():
            pass
        return segments.flushed_where

    def wait_for_dispatch(self, timeout_s: float = 60.0) -> bool:
        """Wait until all that was put is in queues and index; False after the time."""
        deadline = time.monotonic() + timeout_s
        while self.dispatch_behind_bytes > 0:
            if time.monotonic() > deadline:
                return False
            time.sleep(_SLEEP_S)
        return True

    def rebuild_index(self) -> None:
        """Delete the index and make it anew from the log, before returning."""
        parts = self._opened()
        parts.index.begin_anew(max(parts.segments.min_offset, 0))
        parts.checkpoint.index_msg_timestamp = parts.index.flushed_end_timestamp
        parts.checkpoint.flush()
        while self.services.build_index.run_once():
            pass

    def _make_putter(self, parts: StoreParts, services: StoreServices) -> MessagePutter:
        offsets = QueueOffsetTable(self.config.topic_queue_lock_num)
        offsets.set_all(*parts.queues.next_queue_offsets())
        return MessagePutter(
            self.config,
            CommitLogAppender(parts.segments, self._clock),
            offsets,
            services.flush,
            store_host=self._store_host,
            refusal=self._refusal,
            is_batch_topic=parts.queues.is_batch_topic,
            stats=services.stats,
            clock=self._clock,
        )

    def _refusal(self) -> PutMessageStatus | None:
        if self._is_started and self.flags.is_writeable and not self._is_slave:
            return None
        return PutMessageStatus.SERVICE_NOT_AVAILABLE

    def _is_clean(self, parts: StoreParts, services: StoreServices) -> bool:
        log = parts.segments
        return (
            log.flushed_where >= log.max_wrote_offset
            and services.dispatch_behind_bytes == 0
            and self.flags.is_writeable
        )

    def _forget(self) -> None:
        """Drop what reads and runs; the putter stays, which refuses from now on."""
        self._parts = self._services = self._live = None
        if self._index is not None:
            self._index.close()

    def _opened(self) -> StoreParts:
        if self._parts is None:
            raise StoreClosedError(_CLOSED, self.config.store_path_root_dir)
        return self._parts

    def _putting(self) -> MessagePutter:
        if self._putter is None:
            raise StoreClosedError(_CLOSED, self.config.store_path_root_dir)
        return self._putter

    def _reads(self) -> LiveReads:
        if self._live is None:
            raise StoreClosedError(_CLOSED, self.config.store_path_root_dir)
        return self._live

    def _reading_queue(
        self, topic: str, queue_id: int
    ) -> AbstractContextManager[tuple[ReadableQueue | None, RecordReader]]:
        return self._reads()._reading_queue(topic, queue_id)

    def _reading_log(self) -> AbstractContextManager[RecordReader]:
        return self._reads()._reading_log()

    def _reading_index(self) -> AbstractContextManager[tuple[IndexQueries, RecordReader]]:
        return self._reads()._reading_index()

    def _reading_keys(self) -> AbstractContextManager[KeySearch]:
        return self._reads()._reading_keys()
