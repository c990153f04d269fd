# SPDX-License-Identifier: Apache-2.0
"""A RocketMQ message store that this process opens, writes and reads.

Source: RocketMQ ``DefaultMessageStore`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Callable

from store_core.codec.message_id import ClientMessageIds, parse_host
from store_core.config.consumer_filter_file import save_consumer_filters
from store_core.errors import (
    HAError,
    StoreClosedError,
    StoreConfigError,
    TransactionError,
)
from store_core.files.store_directory import StoreDirectory
from store_core.put.timer_rules import TimerRules, nobody_waits
from store_core.read.store_queries import StoreQueries
from store_core.services.environment import Environment
from store_core.services.transaction_block import (
    PlainTransactions,
    TransactionBlock,
    producer_message,
)
from store_core.staged_commit.staging import CrashPoints
from store_core.state.running_flags import RunningFlags
from store_core.state.store_lock import StoreLock
from store_core.state.store_state import require_writable
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt

    from store_core.arrow_types import RecordBatch
    from store_core.config.consumer_filter_file import ConsumerFilterData
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.filter.consumer_filter_manager import ConsumerFilterManager
    from store_core.filter.message_filter import AnyFilter, MessageFilter
    from store_core.log.commit_log_appender import Buffer
    from store_core.message import Message
    from store_core.progress import Progress
    from store_core.put.put_message import MessagePutter
    from store_core.queue.dispatch_request import FilterBitmapsOf
    from store_core.read.pinned_store import PinnedStore
    from store_core.recovery.recovery import LogRecovery
    from store_core.results import AppendBatchResult, GetMessageResult, PutMessageResult
    from store_core.services.flush_services import Replication
    from store_core.services.open_store import IsAwaited, OpenStore
    from store_core.services.reput_message import Dispatcher
    from store_core.services.transaction_block import TransactionEnds
    from store_core.tools.repair.rebuild_in_place import RebuiltQueues

    Bytes = npt.NDArray[np.uint8]

logger = logging.getLogger(__name__)

_CLOSED = "the store is not open: load() and start() it first"
_HOST_PORT_BYTES = 4
NO_TRANSIENT_POOL = 2**31 - 1
"""RocketMQ's number of remaining buffers if there is no transient store pool."""
_FORKED = (
    "process {} has this store open, and this process is a fork of it: it has neither the store's "
    "lock nor its services. Put and read in that process, or read here with a StoreSnapshot"
)
_stores: weakref.WeakSet[MessageStore] = weakref.WeakSet()
"""The stores of this process, which a forked child must not use."""


def now_ms() -> int:
    """Return the machine's time, ms since the epoch."""
    return time.time_ns() // 1_000_000


class MessageStore(StoreQueries, ShuttingDown):
    """Puts, dispatches, flushes, recovers, expires and reads, as a broker's store does.

    Call ``load`` and ``start``, use it in any number of threads, then call ``shutdown``; a context
    manager does all three. A store that a broker has open is refused, and a broker refuses one
    that is open here. After ``shutdown`` puts are refused (``SERVICE_NOT_AVAILABLE``) and reads
    raise `StoreClosedError`; it may be loaded again. It belongs to the process that loaded it: in a
    forked child all calls raise `StoreClosedError`, except ``shutdown``, which does nothing.

    Parameters
    ----------
    config
        RocketMQ's settings. File sizes that are None are those of the existing files, else
        RocketMQ's defaults.
    store_host
        ``ip:port`` for messages without a host of their own; part of their message ids.
    clock
        Returns ms since the epoch, for store times, names of index files and ages of files.
    environment
        Disks and hours, for tests; its clock replaces ``clock``. Default: those of the machine.
    dispatchers
        Called with records of the log after the queues have them, and before the index has them;
        not with those that `load` dispatches.
    is_batch_topic
        Returns whether a topic has batch queues; default: as ``config/topics.json`` says.
    filter_bitmaps
        Returns the filter bitmaps of extension units (``enableConsumeQueueExt``); default: those of
        `consumer_filters` with ``enableCalcFilterBitMap``, else none.
    handle_schedule_message
        Send messages with a delay level (property DELAY above 0) to ``SCHEDULE_TOPIC_XXXX`` until
        they are due. If False, the caller does so, such as a broker in front of the store.
    handle_timer_message
        Send messages that name the time of their delivery (``TIMER_DELAY_SEC``, ``TIMER_DELAY_MS``,
        ``TIMER_DELIVER_MS``) to ``rmq_sys_wheel_timer`` until they are due, or refuse them if
        ``timerWheelEnable`` is false. Only a `TimerMessageStore` delivers them. If False, they are
        stored directly in their own topics.
    is_awaited
        Returns whether a consumer waits for the next message of a queue (topic, queue id): then
        messages of `put_message` and `put_messages` to it are dispatched immediately, not together
        with later ones. Default: no consumer waits. Called with every put, it must not block.

    Attributes
    ----------
    config
        Includes the sizes of all files from `load` on.
    flags
        Conditions that keep the store from being written or read.
    open_blocks
        Keys of the transactions whose blocks are open in this process.
    """

    def __init__(  # noqa: PLR0913 (all but the first have defaults)
        self,
        config: MessageStoreConfig,
        *,
        store_host: str = "127.0.0.1:10911",
        clock: Callable[[], int] = now_ms,
        environment: Environment | None = None,
        dispatchers: Sequence[Dispatcher] = (),
        is_batch_topic: Callable[[str], bool] | None = None,
        filter_bitmaps: FilterBitmapsOf | None = None,
        handle_schedule_message: bool = True,
        handle_timer_message: bool = False,
        is_awaited: IsAwaited | None = None,
    ) -> None:
        self.config = config
        self.flags = RunningFlags()
        self._environment = environment or Environment(clock)
        self._store_host, self._dispatchers = parse_host(store_host), tuple(dispatchers)
        self._is_batch_topic, self._filter_bitmaps = is_batch_topic, filter_bitmaps
        self._is_awaited = is_awaited
        self._handle_schedule_message = handle_schedule_message
        rules = TimerRules(config, self._environment.clock)
        self._timer_rules = rules if handle_timer_message else None
        self._transaction_ends: TransactionEnds | None = None
        self.open_blocks: set[str] = set()
        self._message_ids: ClientMessageIds | None = None
        self._consumer_filters: ConsumerFilterManager | None = None
        self._open: OpenStore | None = None
        self._putter: MessagePutter | None = None
        self._changing = threading.RLock()
        self._forked_from = 0
        _stores.add(self)

    def load(self, *, cut: bool = False, progress: Progress | None = None) -> LogRecovery:
        """Lock, load and recover the store; return the result of recovery.

        A second call does nothing, and returns the same result.

        Parameters
        ----------
        cut
            Cut off readable records after a damaged one, and save a copy. Records that were neither
            flushed nor dispatched before a crash are cut off in any case, with a copy: see ``loss``
            and ``kept_at`` of the result.
        progress
            Called with the bytes of the log that recovery has done, and their total.

        Raises
        ------
        StoreLockedError
            Another process has it open.
        LogDamageError
            A damaged record comes before others that were flushed or dispatched, and ``cut`` is not
            given.
        StoreFormatError, StoreConfigError
            Files and configuration do not fit each other; a broker would not start either.
        StoreReadError, StoreWriteError
            A file cannot be read or written.
        """
        with self._changing:
            if self._open is None:
                self._open, self._forked_from = self._load(cut, progress), 0
                self.config, self._putter = self._open.config, self._open.putter
            return self._open.files.recovery

    def start(self) -> None:
        """Start the services; from now on messages can be put. A second call does nothing.

        Raises
        ------
        StoreClosedError
            The store is not loaded.
        """
        with self._changing:
            self._opened().start()

    def shutdown(self) -> None:
        """Stop cleanly: flush, dispatch, write the checkpoint, remove ``abort``, release the lock.

        ``abort`` stays if something could not be flushed or dispatched: then the next start
        recovers. A second call does nothing.

        Raises
        ------
        StoreWriteError
            Queues or index cannot be flushed. The store is closed anyway.
        """
        with self._changing:
            closing, self._open = self._open, None  # first, as a running read must notice it
            if closing is not None and not closing.shutdown():
                root = self.config.store_path_root_dir
                logger.warning("%s was not stopped cleanly: the next start recovers it", root)

    def destroy(self) -> None:
        """Stop, and delete log, queues, index, checkpoint, timer log and wheel, loaded or not.

        Configuration files stay, and with them the offsets of consumers, delay levels, timers and
        transactions, which would refer to wrong messages after new puts: delete those files too.

        Raises
        ------
        StoreLockedError
            Another process has it open.
        StoreWriteError
            A file cannot be deleted; the call may be repeated.
        """
        with self._changing:
            closing, self._open = self._open, None
            if closing is not None:
                closing.destroy()
                return
            require_writable(StoreDirectory(self.config.store_path_root_dir))
            from store_core.recovery.store_files import delete_files  # noqa: PLC0415 (see `_load`)

            with StoreLock(self.config.store_path_root_dir) as lock:
                delete_files(lock, self.config)

    def __enter__(self) -> MessageStore:
        self.load()
        try:
            self.start()
        except BaseException:
            self.shutdown()
            raise
        return self

    def put_message(self, message: Message) -> PutMessageResult:
        """Put one message; see ``MessagePutter.put_message``."""
        putter = self._putter or self.putter  # usually set: saves a call
        return putter.put_message(message)

    def put_messages(self, messages: Sequence[Message]) -> PutMessageResult:
        """Put messages of one queue, all or none; see ``MessagePutter.put_messages``."""
        return self.putter.put_messages(messages)

    def append_batch(self, batch: RecordBatch) -> AppendBatchResult:
        """Put the rows of a record batch; see ``RecordBatchPutter.append_batch``."""
        return self.putter.append_batch(batch)

    def raw_put_message(self, message: Message) -> PutMessageResult:
        """Put one message to its own topic, whatever its delay level.

        For services of a store: RocketMQ decides by the map of a message's properties, but stores
        its property string, which still has the properties that were removed from the map.
        """
        return self.putter.put_message(message, is_raw=True)

    def raw_append_batch(self, batch: RecordBatch) -> AppendBatchResult:
        """Put the rows of a record batch to their own topics, whatever their delay levels."""
        return self.putter.append_batch(batch, is_raw=True)

    def transaction(
        self, message: Message, producer_group: str = "DEFAULT_PRODUCER"
    ) -> TransactionBlock:
        """Return a context manager that delivers the message only if its block succeeds.

        On entry the half message is put, which no consumer sees; at the end it is committed, or
        rolled back on an exception. If the process dies within, the transaction stays open: a
        `TransactionalMessageService`, or a broker, asks the producer group for the answer.

        Parameters
        ----------
        message
            Not changed; a copy of it is put, with a new UNIQ_KEY if it has none.
        producer_group
            The group to ask, if the message has no property PGROUP.

        Raises
        ------
        TransactionError
            On entry: the half message was refused. At the end: the commit was.
        """
        return TransactionBlock(
            PlainTransactions(lambda: self.putter, self._environment.clock),
            lambda: self._transaction_ends,
            producer_message(message, producer_group, self.new_unique_key()),
            self.open_blocks,
        )

    def new_unique_key(self) -> str:
        """Return a new id, as a client gives to a message."""
        with self._changing:
            if self._message_ids is None:
                address = self._store_host[:-_HOST_PORT_BYTES]
                hashed = int.from_bytes(os.urandom(4), "big", signed=True)
                self._message_ids = ClientMessageIds(address, os.getpid(), hashed, self.clock())
            key: str = self._message_ids.next_ids(1)[0].as_py()
            return key

    def use_transactions(self, ends: TransactionEnds | None) -> None:
        """Set the service that knows the open transactions and ends those of blocks, or None.

        Raises
        ------
        TransactionError
            Another service is set: two would end a transaction twice.
        """
        with self._changing:
            if ends is not None and self._transaction_ends not in (None, ends):
                raise TransactionError(
                    "another service already ends this store's transactions: stop it first"
                )
            self._transaction_ends = ends

    def use_timers(self, waiting_at: Callable[[int], int] | None) -> None:
        """Set the function that returns how many timer messages wait for a time (ms), or None.

        Puts call it (``timerCongestNumEachSlot``).
        """
        if self._timer_rules is not None:
            self._timer_rules.waiting_at = waiting_at or nobody_waits

    def refuse_timers(self, reason: str) -> None:
        """Refuse messages that name the time of their delivery; an empty reason accepts them."""
        if self._timer_rules is not None:
            self._timer_rules.refusal = reason

    def append_to_commit_log(self, offset: int, data: Buffer) -> None:
        """Append unchanged bytes of a master's log to that of a slave, and dispatch them.

        They may begin and end anywhere, also within a record: an incomplete record waits for its
        rest, and is cut off if the store is shut down before that.

        Parameters
        ----------
        offset
            The end of the log, or the beginning of any segment while the log is empty.
        data
            Bytes that end within their segment.

        Raises
        ------
        ValueError
            The offset is another one, or the bytes go past the end of their segment.
        StoreConfigError
            ``brokerRole`` is not SLAVE.
        StoreClosedError, StoreWriteError
            The store is not open, or a file cannot be written.
        """
        found = self._opened()
        if not found.config.is_slave:
            raise StoreConfigError(
                f"brokerRole is {found.config.broker_role}: only a SLAVE takes its log from "
                "another store"
            )
        found.append_data(offset, data)

    def commit_log_data(self, offset: int, most: int) -> AbstractContextManager[Bytes | None]:
        """Lend readable bytes of the log from an offset on, up to ``most``, of one segment.

        None if there are none: after the end, or in a segment that was deleted.

        Raises
        ------
        StoreClosedError
            The store is not open.
        """
        return self._opened().log_data(offset, most)

    def use_replication(self, replication: Replication | None) -> None:
        """Set the service that sends the log to slaves, or None.

        A ``SYNC_MASTER`` with ``inSyncReplicas`` above 1 answers puts when the service confirms
        them, or ``FLUSH_SLAVE_TIMEOUT`` without a service. The setting ends with `shutdown`.

        Raises
        ------
        HAError
            Another service is set.
        StoreClosedError
            The store is not open.
        """
        with self._changing:
            flush = self._opened().flush
            if replication is not None and flush.replication not in (None, replication):
                raise HAError("another service replicates this store: shut it down first")
            flush.replication = replication

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: AnyFilter | MessageFilter | None = None,
    ) -> GetMessageResult:
        """Pull messages of one queue, and count them; see ``StoreQueries.get_message``."""
        found = self._opened()
        stats, clock = found.stats, found.clock
        begin = clock()
        result = super().get_message(group, topic, queue_id, offset, max_msg_nums, message_filter)
        stats.record_get(len(result.messages), clock() - begin)
        return result

    def reading(self) -> AbstractContextManager[PinnedStore]:
        """Pin the store as it is now for the length of a block: for services that read columns.

        Raises
        ------
        StoreClosedError
            The store is not open, or was closed meanwhile.
        """
        return self._reading()

    @property
    def clock(self) -> Callable[[], int]:
        """Returns ms since the epoch, as for store times."""
        return self._environment.clock

    @property
    def consumer_filters(self) -> ConsumerFilterManager:
        """The filters of consumer groups in ``config/consumerFilter.json``.

        With ``enableConsumeQueueExt`` and ``enableCalcFilterBitMap`` dispatch records for each
        message which of them it passes. A change is saved immediately.

        Raises
        ------
        StoreClosedError
            The store is not open.
        """
        self._opened()
        known = self._consumer_filters
        if known is None:
            with self._changing:
                known = self._consumer_filters = self._consumer_filters or self._load_filters()
        return known

    @property
    def min_phy_offset(self) -> int:
        """Offset of the first byte of the log; -1 if it is empty."""
        return self._opened().files.segments.min_offset

    @property
    def flushed_where(self) -> int:
        """Offset up to which the log is forced to the disk."""
        return self._opened().files.segments.flushed_where

    @property
    def max_phy_offset(self) -> int:
        """End of the readable log, exclusive; 0 if it is empty."""
        return self._opened().files.segments.max_offset

    @property
    def recovered_end(self) -> int:
        """End of the log after `load`: all bytes after it were appended since."""
        return self._opened().files.recovery.log_end

    @property
    def replicable_offset(self) -> int:
        """End of the bytes that slaves may have: without a blank record at the end."""
        return self._opened().replicable_offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that may be dispatched and are not yet in queues and index."""
        return self.services.dispatch_behind_bytes

    @property
    def lock_time_ms(self) -> int:
        """How long (ms) an append has been running; 0 while there is none."""
        return self._opened().lock_time_ms

    @property
    def remain_transient_store_buffer_nums(self) -> int:
        """Free buffers of the transient store pool; 2^31 - 1 without a pool."""
        pool = self.services.pool
        return NO_TRANSIENT_POOL if pool is None else pool.available

    @property
    def services(self) -> OpenStore:
        """The services, each with ``run_once``."""
        return self._opened()

    def runtime_info(self) -> dict[str, str]:
        """Return counters, rates, offsets and disk usage, with RocketMQ's keys."""
        return self._opened().runtime_info()

    def flush(self) -> int:
        """Force all bytes appended before the call to the disk; return the flushed offset.

        Raises
        ------
        StoreWriteError
            The log cannot be written.
        """
        return self._opened().flush_log()

    def dispatch_soon(self) -> None:
        """Dispatch messages now, not together with later ones; does not wait for it."""
        reput = self.services.reput
        if reput.behind_bytes:
            reput.wakeup()

    def wait_for_dispatch(self, timeout_s: float = 60.0) -> bool:
        """Wait until all messages put before are in queues and index; False after the timeout.

        Raises
        ------
        StoreWriteError
            The log cannot be written out: under sync flush, and with a transient store pool, that
            comes before dispatch.
        """
        return self._opened().wait_for_dispatch(timeout_s)

    def wait_for_queues(self, timeout_s: float = 1.0) -> bool:
        """Wait until all messages acknowledged before are in queues; False after the timeout."""
        return self._opened().wait_for_queues(timeout_s)

    def delete_topic(self, topic: str) -> bool:
        """Delete the queues of a topic, as ``deleteTopics``; return whether it had any.

        A message that is put to it later is the first of its queue again. The records stay in the
        log, and can be found by key, until their segments expire. Puts wait meanwhile.

        Raises
        ------
        StoreWriteError
            A file cannot be deleted.
        """
        return self._opened().delete_topic(topic)

    def rebuild_index(self, progress: Progress | None = None) -> None:
        """Delete the index and rebuild it from the log, before returning.

        The store may be in use: queries by key read the log meanwhile. A kill leaves part of the
        index, which the next `load` completes, but a broker does not.

        Parameters
        ----------
        progress
            Called with the bytes of the log that are done, and their total.

        Raises
        ------
        StoreConfigError
            ``messageIndexEnable`` is false.
        StoreWriteError, StoreReadError
            A file cannot be written or read.
        """
        self._opened().rebuild_index(progress)

    def rebuild_consume_queue(
        self,
        *,
        accept_moved: bool = False,
        accept_lost: bool = False,
        progress: Progress | None = None,
    ) -> RebuiltQueues:
        """Rebuild all queues from the log; see ``rebuild_queues_in_place``.

        The store is shut down for that, and opened again as it was; meanwhile puts are refused and
        reads raise `StoreClosedError`. Replication goes on afterwards, with new connections from
        slaves. A kill leaves the old queues or the new ones.

        Parameters
        ----------
        accept_moved
            Go on if messages get other queue offsets, as after damage in the log.
        accept_lost
            Go on if queues lose messages that the log has.
        progress
            Called with the bytes of the log that are done, and their total.

        Raises
        ------
        StoreFormatError
            Messages would move, or be lost to consumers. The old queues are in place, the store is
            open again.
        StoreLockedError
            A broker opened the store in the short time in which it was not locked.
        StoreWriteError
            A file cannot be written; the old queues are in place.
        """
        # Few stores are ever repaired while they are open.
        from store_core.tools.repair import rebuild_in_place  # noqa: PLC0415

        root = self.config.store_path_root_dir
        with self._shut_meanwhile():
            return rebuild_in_place.rebuild_queues_in_place(
                root,
                self.config,
                accept_moved=accept_moved,
                accept_lost=accept_lost,
                progress=progress,
            )

    def cut_log(self, offset: int) -> str:
        """Cut the log where a record ends, with its queues and index; see ``cut_log``.

        The store is shut down for that, and opened again as it was; meanwhile puts are refused and
        reads raise `StoreClosedError`. Replication goes on afterwards, with new connections from
        slaves. After a kill the next `load` completes it.

        Returns
        -------
        str
            The directory with a copy of the part that was cut off.

        Raises
        ------
        OffsetOutOfRangeError
            Nothing would be left, or the log ends before.
        StoreLockedError
            A broker opened the store in the short time in which it was not locked.
        StoreWriteError
            A file cannot be written.
        """
        from store_core.tools.repair.cut_log import cut_log  # noqa: PLC0415 (as above)

        root = self.config.store_path_root_dir
        with self._shut_meanwhile():
            return cut_log(root, self.config, offset, clock=self.clock)

    @contextmanager
    def _shut_meanwhile(self) -> Iterator[None]:
        """Shut the store down for a block, and then open it again as it was."""
        with self._changing:
            is_loaded = self._open is not None
            is_started = self._open is not None and self._open.is_started
            replication = None
            if self._open is not None:
                replication = self._open.flush.pause_replication()
            try:
                self.shutdown()
                yield
            finally:
                try:
                    if is_loaded:
                        self.load()
                finally:
                    if replication is not None:
                        self._go_on_with(replication)
                if is_started:
                    self.start()

    def _go_on_with(self, replication: Replication) -> None:
        """Let replication go on, or end it if the store could not be opened again."""
        if self._open is None:
            replication.store_closed()
        else:
            replication.store_goes_on()
            self.use_replication(replication)

    def _load_filters(self) -> ConsumerFilterManager:
        from store_core.filter.consumer_filter_manager import (  # noqa: PLC0415 (few have filters)
            open_consumer_filters,
        )

        return open_consumer_filters(
            StoreDirectory(self.config.store_path_root_dir),
            self.config,
            self._environment.clock,
            self._save_filters,
        )

    def _save_filters(self, filters: tuple[ConsumerFilterData, ...]) -> None:
        root, steps = self._opened().config.store_path_root_dir, CrashPoints()
        save_consumer_filters(root, filters, partial(steps.replace_file, "consumer filters"))

    def _bitmaps(self) -> FilterBitmapsOf | None:
        """Return the function that gives the filter bitmaps in this run of the store."""
        self._consumer_filters = None
        if self._filter_bitmaps is not None or not self.config.enable_calc_filter_bit_map:
            return self._filter_bitmaps
        from store_core.filter.filter_bitmaps import FilterBitmaps  # noqa: PLC0415 (see above)

        self._consumer_filters = self._load_filters()
        return FilterBitmaps(self._consumer_filters)

    def _load(self, cut: bool, progress: Progress | None) -> OpenStore:
        # They load half of all modules: programs that only name a store need none of these.
        from store_core.recovery.store_files import OpenOptions, open_store_files  # noqa: PLC0415
        from store_core.services.open_store import OpenStore  # noqa: PLC0415

        options = OpenOptions(
            self._environment.clock,
            progress,
            cut,
            self._is_batch_topic,
            filter_bitmaps=self._bitmaps(),
        )
        files = open_store_files(self.config, options)
        try:
            return OpenStore(
                files,
                self.flags,
                self._environment,
                self._dispatchers,
                self._store_host,
                self._handle_schedule_message,
                self._timer_rules,
                self._is_awaited,
            )
        except BaseException:
            files.close(clean=False)
            raise

    def _opened(self) -> OpenStore:
        found = self._open
        if found is None:
            raise self._closed()
        return found

    def _leave_to_parent(self, parent: int) -> None:
        """Close and write nothing: everything belongs to the process that forked this one.

        Its threads do not exist here, and their locks stay locked.
        """
        self._changing = threading.RLock()
        if self._open is not None:
            self._forked_from = parent
        self._open = self._putter = self._message_ids = None

    def _closed(self) -> StoreClosedError:
        reason = _FORKED.format(self._forked_from) if self._forked_from else _CLOSED
        return StoreClosedError(reason, self.config.store_path_root_dir)

    @contextmanager
    def _reading(self, *, whole: bool = False) -> Iterator[PinnedStore]:
        """Read, and raise if the store was closed meanwhile: results may then be incomplete."""
        found = self._opened()
        if not found.flags.is_readable:
            raise StoreClosedError("was made not readable", found.config.store_path_root_dir)
        with found.pinned(whole=whole) as store:
            yield store
        if self._open is not found:
            raise StoreClosedError("was shut down meanwhile", found.config.store_path_root_dir)

    @property
    def putter(self) -> MessagePutter:
        """Puts messages; refuses them after `shutdown`."""
        if self._putter is None:
            raise self._closed()
        return self._putter


def _leave_all_to_parent() -> None:
    for store in tuple(_stores):
        store._leave_to_parent(os.getppid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)
