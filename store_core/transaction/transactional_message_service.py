# SPDX-License-Identifier: Apache-2.0
"""Open, end and check the transactions of a store.

Source: RocketMQ ``TransactionalMessageServiceImpl``, ``TransactionalMessageBridge``,
``EndTransactionProcessor``, ``TransactionalMessageCheckService``, ``TransactionalOpBatchService``,
``TransactionMetricsFlushService`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from copy import copy
from typing import TYPE_CHECKING, Callable, Protocol

import numpy as np

from store_core.config.config_files import load_consumer_offsets
from store_core.config.config_writing import merge_consumer_offsets
from store_core.errors import StoreClosedError, TransactionError
from store_core.files.file_writing import replace_file
from store_core.files.store_directory import StoreDirectory
from store_core.layout import PROPERTY_UNIQ_KEY
from store_core.services.service_thread import RepeatedService
from store_core.services.transaction_block import not_ended, opened_half, put_commit, put_half
from store_core.topics import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from store_core.transaction.bulk_end import BulkEnder
from store_core.transaction.checker import TransactionChecker, is_too_late
from store_core.transaction.end_results import BulkEnd, EndStatus, EndTransactionResult
from store_core.transaction.half_table import HalfTable, OpBuffer
from store_core.transaction.open_halves import (
    HalfPlace,
    ended_copies,
    find_open_halves,
    read_places,
)
from store_core.transaction.transaction_metrics import TransactionMetrics
from store_core.transaction_forms import TransactionState, half_facts, transaction_key
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.message import Message
    from store_core.message_store import MessageStore
    from store_core.results import PutMessageResult
    from store_core.services.open_store import OpenStore
    from store_core.transaction.end_results import CheckResult

    Int64s = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)

_QUEUE_ID = 0
_TICKS = 4  # checks of waiting op messages per interval that they may wait
_COMMIT, _UNKNOWN = TransactionState.COMMIT_MESSAGE, TransactionState.UNKNOW


class HalfMessagePlace(Protocol):
    """Place of a copy of a half message: a `Message` from a check, or a put's result."""

    @property
    def queue_offset(self) -> int:
        """Queue offset in the half queue."""

    @property
    def commit_log_offset(self) -> int:
        """Start of the record."""


class GroupOffsets(Protocol):
    """Stores the offsets of groups, as a broker does for all of them."""

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the next queue offset; -1 if none is stored."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store the next queue offset."""


Asked = Callable[["Message"], TransactionState]
"""Answers for the producer group of a half message; see `TransactionalMessageService`."""


class TransactionalMessageService(ShuttingDown):
    """Transactions of an open store, as in a broker; safe for any thread.

    ``load`` it on a started store (``start`` does so too), then prepare, end and check; shut it
    down before the store, when no block is open. As a context manager it starts and shuts down
    itself. A half message that was committed before a crash is not committed again: `load` searches
    the log for the commits of open ones.

    Parameters
    ----------
    store
        The store; blocks of ``store.transaction(…)`` go through this service from `load` on.
    ask
        Called for each half message to check, with the topic, queue and properties of the message
        that it opens and the place of its newest copy; returns a `TransactionState`. After UNKNOW
        it is called again, unless `end_transaction` answers for that message first. If None, all
        states are unknown. Called without locks, in the thread that checks.
    offsets
        Stores the offsets of the half and op queues; if None, this service does, in
        ``config/consumerOffset.json``.
    discarded
        Called after each half message that was copied to ``TRANS_CHECK_MAX_TIME_TOPIC``.

    Attributes
    ----------
    metrics
        Number of open half messages by topic.
    check_service, op_batch_service, metrics_flush_service
        Services with ``run_once``; `start` runs them in threads.
    """

    def __init__(
        self,
        store: MessageStore,
        ask: Asked | None = None,
        offsets: GroupOffsets | None = None,
        discarded: Callable[[], object] | None = None,
    ) -> None:
        self._store, self._asked, self._offsets = store, ask, offsets
        self._discarded = discarded
        config = store.config
        self.metrics = TransactionMetrics(config.store_path_root_dir)
        self._table = HalfTable()
        self.op_batch_service = RepeatedService(
            "TransactionalOpBatchService",
            lambda: self._ops.write() > 0,
            max(config.transaction_op_batch_interval // _TICKS, 1),
        )
        self._ops = OpBuffer(store, store.clock, self.op_batch_service.wakeup)
        self._checker = TransactionChecker(store, self._table, self._answer, self._on_discard)
        self.check_service = RepeatedService(
            "TransactionalMessageCheckService",
            lambda: self.check().asked > 0,
            config.transaction_check_interval,
            is_late=True,
        )
        self.metrics_flush_service = RepeatedService(
            "TransactionMetricsFlushService",
            self._persist_metrics,
            config.transaction_metric_flush_interval,
        )
        self._is_loaded = False
        self._loaded_for: OpenStore | None = None

    def load(self) -> None:
        """Read the open transactions, and write the op messages that are missing after a crash.

        Call it once per opening of the store; after a reopening, other methods call it.

        Raises
        ------
        StoreFormatError
            ``config/consumerOffset.json`` is not what a broker writes.
        TransactionError
            The log is not dispatched within a minute, or the store has another service.
        """
        with self._table.lock:
            services = self._store.services
            if self._is_loaded and services is self._loaded_for:
                return
            self._store.use_transactions(self)
            try:
                self._read_store()
            except BaseException:
                self._store.use_transactions(None)
                raise
            self._is_loaded, self._loaded_for = True, services

    def start(self) -> None:
        """Load, and start the services."""
        self.load()
        for service in self._services:
            service.start()

    def shutdown(self) -> None:
        """Stop the services, write waiting op messages, offsets and counters.

        Raises
        ------
        StoreWriteError
            A file of ``config`` cannot be written.
        """
        for service in self._services:
            service.shutdown()
        if not self._is_loaded:
            return
        is_stale = self._is_stale()
        self._store.use_transactions(None)
        self._is_loaded = False
        if is_stale:
            logger.warning(
                "the store was reopened meanwhile: nothing is saved, as its files may be newer"
            )
            return
        self._ops.write(everything=True)
        try:
            self._persist_offsets()
            self._persist_metrics()
        except StoreClosedError as err:  # its files belong to the next opener
            logger.warning("transactions were stopped after their store; nothing is saved: %s", err)

    def prepare_message(self, message: Message) -> PutMessageResult:
        """Open a transaction: put the half message, which no consumer sees.

        Parameters
        ----------
        message
            The message as sent by a producer: with ``TRAN_MSG``, ``PGROUP``, ``UNIQ_KEY``. Without
            a UNIQ_KEY it gets one, as in a broker (``SendMessageProcessor.sendMessage``).

        Returns
        -------
        result
            Result of the put, with the half message's place for `end_transaction`.
        """
        self._require_loaded()
        half, result = put_half(self._store.putter, self._with_key(message), self._store.clock())
        if half is not None:
            self.metrics.add({message.topic: 1}, self._store.clock())
        return result

    def end_transaction(
        self,
        half: HalfMessagePlace,
        state: TransactionState,
        *,
        from_check: bool = False,
        producer_group: str | None = None,
    ) -> EndTransactionResult:
        """Commit or roll back a transaction; only the first answer ends it.

        Parameters
        ----------
        half
            Any copy of the half message.
        state
            The answer; UNKNOW changes nothing.
        from_check
            Whether this answers a check. Any other answer is too late after the time that the
            producer set (``CHECK_IMMUNITY_TIME_IN_SECONDS``), if it did.
        producer_group
            Group of the answering producer, which must be that of the message; not checked if None.
        """
        self._require_loaded()
        if state is _UNKNOWN:
            return EndTransactionResult(EndStatus.IGNORED)
        stored = self._store.look_stored_message(half.commit_log_offset)
        if stored is None:  # it may not be written out yet
            self._store.flush()
            stored = self._store.look_stored_message(half.commit_log_offset)
        fault = _mismatch(stored, half, producer_group)
        if stored is None or fault:
            return EndTransactionResult(EndStatus.NOT_FOUND, reason=fault)
        if not from_check and is_too_late(stored, self._store.clock(), self._store.config):
            return EndTransactionResult(
                EndStatus.ILLEGAL_OPERATION,
                reason="the time that the producer set has passed: wait for a check",
            )
        return self._end(stored, state)

    def end_transactions(
        self, half_queue_offsets: npt.ArrayLike, state: TransactionState
    ) -> BulkEnd:
        """End many transactions in one call, in columns.

        Parameters
        ----------
        half_queue_offsets
            Queue offsets of open half messages: of their newest copies (see `open_queue_offsets`).
        state
            COMMIT_MESSAGE or ROLLBACK_MESSAGE.

        Raises
        ------
        ValueError
            ``state`` is UNKNOW.
        """
        self._require_loaded()
        if state is _UNKNOWN:
            raise ValueError(
                "UNKNOW ends no transaction: expected COMMIT_MESSAGE or ROLLBACK_MESSAGE"
            )
        wanted: Int64s = np.unique(np.asarray(half_queue_offsets, np.int64))
        with self._table.lock:
            may_be_open = self._table.not_done(wanted)
            ender = BulkEnder(self._store, self._note_ended)
            ender.end(wanted[may_be_open], state)
            is_found = np.isin(wanted, np.concatenate([wanted[:0], *ender.seen]))
        self.metrics.add(
            {topic: -count for topic, count in ender.topics.items()}, self._store.clock()
        )
        self._ops.write(everything=True)
        return BulkEnd(ender.ended, wanted[~is_found].tolist(), ender.refused)

    def open_queue_offsets(self) -> Int64s:
        """Return the queue offsets of the open half messages, ascending."""
        self._require_loaded()
        with self._table.lock:
            offsets, _ = read_places(self._store, self._table.half_offset)
            return offsets[self._table.not_done(offsets)]

    def check(self) -> CheckResult:
        """Check the half messages that are due, ask their producers, and store the offsets reached.

        Raises
        ------
        TransactionError
            A copy was refused; all half messages before it are checked.
        StoreWriteError
            The log, or ``config/consumerOffset.json``, cannot be written.
        """
        self._require_loaded()
        self._ops.write()
        try:
            return self._checker.run()
        finally:
            self._persist_offsets()

    def open_block(self, message: Message) -> Message:
        """Open the transaction of a block; see ``MessageStore.transaction``."""
        half = opened_half(*put_half(self._store.putter, message, self._store.clock()))
        self.metrics.add({message.topic: 1}, self._store.clock())
        return half

    def end_block(self, half: Message, state: TransactionState) -> PutMessageResult | None:
        """End the transaction of a block."""
        if self._is_loaded and self._is_stale():
            self.load()
        result = self._end(half, state)
        if not self._is_loaded:  # the block ends after the service
            self._ops.write(everything=True)
        if result.status is EndStatus.PUT_FAILED and result.put_result is not None:
            raise not_ended(half, result.put_result)
        if result.status is not EndStatus.ENDED:
            raise TransactionError(f"the transaction is {result.status.value}: {result.reason}")
        return result.put_result

    @property
    def _services(self) -> tuple[RepeatedService, ...]:
        return self.check_service, self.op_batch_service, self.metrics_flush_service

    def _require_loaded(self) -> None:
        if not self._is_loaded:
            raise TransactionError(
                "the service does not know which transactions are open: load() or start() it first"
            )
        if self._is_stale():
            self.load()

    def _is_stale(self) -> bool:
        """Return whether the store was reopened: a broker may have written to it in between."""
        try:
            return self._store.services is not self._loaded_for
        except StoreClosedError:
            return False

    def _read_store(self) -> None:
        self._ops.write(everything=True)  # op messages that a closed store refused
        if not self._store.wait_for_dispatch():
            raise TransactionError(
                "it is not known which transactions are open: the log is not dispatched yet "
                "(services.reput.last_error says why); load again later"
            )
        half_offset, op_offset = self._offset_of(HALF_TOPIC), self._offset_of(OP_TOPIC)
        found = find_open_halves(self._store, half_offset, op_offset)
        self._table.fill(found, half_offset, op_offset)
        if len(found.without_op):
            logger.info(
                "%d half messages had ended before a stop, without op messages: these are put now",
                len(found.without_op),
            )
            self._ops.add(found.without_op.tolist())
            self._ops.write(everything=True)
        self.metrics.load()

    def _with_key(self, message: Message) -> Message:
        if message.unique_key or message.properties_raw is not None:
            return message
        found = copy(message)
        found.properties = {**message.properties, PROPERTY_UNIQ_KEY: self._store.new_unique_key()}
        return found

    def _end(self, half: Message, state: TransactionState) -> EndTransactionResult:
        key = transaction_key(half)
        answered = HalfPlace(half.queue_offset, half.commit_log_offset)
        table = self._table
        with table.lock:
            newest = table.newest(answered)
            if table.is_ended(newest.queue_offset):
                return EndTransactionResult(
                    EndStatus.ALREADY_ENDED, reason="it was answered before"
                )
            is_open = newest.queue_offset >= table.half_offset
            if not is_open and not self._may_still_commit(answered, key, state):
                return EndTransactionResult(
                    EndStatus.ALREADY_ENDED,
                    reason="it has ended, or was given up after too many checks",
                )
            put = None
            if state is _COMMIT:
                try:
                    put = put_commit(self._store.putter, half)
                except TransactionError as err:
                    return EndTransactionResult(EndStatus.PUT_FAILED, reason=str(err))
                if not put.is_appended:
                    return EndTransactionResult(EndStatus.PUT_FAILED, put, put.reason)
            if is_open:
                self._note_ended([newest.queue_offset])
                topic = half_facts(half.properties).topic or ""
                self.metrics.add({topic: -1}, self._store.clock())
        return EndTransactionResult(EndStatus.ENDED, put)

    def _may_still_commit(
        self, answered: HalfPlace, key: str | None, state: TransactionState
    ) -> bool:
        """Return whether an answer, the first one, counts for a half message that checks passed.

        Without a key it is unknown whether a newer copy is open, about which the producer is asked.
        """
        if state is not _COMMIT or key is None:
            return False
        return not ended_copies(self._store, answered, key)

    def _note_ended(self, queue_offsets: list[int]) -> None:
        self._table.end(queue_offsets)
        self._ops.add(queue_offsets)

    def _answer(self, half: Message) -> None:
        if self._asked is None:
            return
        try:
            state = self._asked(half)
        except Exception:  # the check goes on after any error, and asks again later
            logger.exception("no answer for the half message %s", half.unique_key)
            return
        self.end_transaction(half, state, from_check=True)

    def _on_discard(self, topic: str) -> None:
        self.metrics.add({topic: -1}, self._store.clock())
        if self._discarded is not None:
            self._discarded()

    def _offset_of(self, topic: str) -> int:
        """Return the group's offset, limited to the queue: a crash may have cut its end."""
        noted = self._noted_offset(topic)
        first = self._store.get_min_offset_in_queue(topic, _QUEUE_ID)
        stop = self._store.get_max_offset_in_queue(topic, _QUEUE_ID)
        return min(max(noted, first, 0), max(stop, 0))

    def _noted_offset(self, topic: str) -> int:
        if self._offsets is not None:
            return self._offsets.query(TRANSACTION_GROUP, topic, _QUEUE_ID)
        directory = StoreDirectory(self._store.config.store_path_root_dir)
        offsets = load_consumer_offsets(directory, is_needed=True)  # also saved there
        return offsets.get((TRANSACTION_GROUP, topic), {}).get(_QUEUE_ID, 0)

    def _persist_metrics(self) -> bool:
        with self._store.reading():  # a closed store belongs to others
            return self.metrics.persist(replace_file)

    def _persist_offsets(self) -> None:
        with self._table.lock, self._store.reading():
            if self._offsets is not None:
                for topic, at in (
                    (HALF_TOPIC, self._table.half_offset),
                    (OP_TOPIC, self._table.op_offset),
                ):
                    self._offsets.commit(TRANSACTION_GROUP, topic, _QUEUE_ID, at)
                return
            offsets = {
                (TRANSACTION_GROUP, HALF_TOPIC): {_QUEUE_ID: self._table.half_offset},
                (TRANSACTION_GROUP, OP_TOPIC): {_QUEUE_ID: self._table.op_offset},
            }
            root = self._store.config.store_path_root_dir
            merge_consumer_offsets(root, offsets, self._store.clock(), replace_file)


def _mismatch(stored: Message | None, half: HalfMessagePlace, producer_group: str | None) -> str:
    """Return why a record is not the answered half message; empty if it is."""
    if stored is None or stored.topic != HALF_TOPIC:
        return f"there is no half message at {half.commit_log_offset}"
    if stored.queue_offset != half.queue_offset:
        return (
            f"the half message at {half.commit_log_offset} has queue offset "
            f"{stored.queue_offset}, not {half.queue_offset}"
        )
    group = half_facts(stored.properties).producer_group
    if producer_group is not None and group != producer_group:
        return f"it belongs to producer group {group}, not {producer_group}"
    return ""
