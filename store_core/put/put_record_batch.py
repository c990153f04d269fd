# SPDX-License-Identifier: Apache-2.0
"""Put many messages in one call, in columns.

Source: the result is that of ``put_message`` for each row in turn (RocketMQ ``CommitLog``,
``QueueOffsetOperator``, release 5.3.3); a test checks that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core import native
from store_core.arrow import binary_parts, pa, replace_rows
from store_core.codec.java_string import string_hash
from store_core.codec.record_encoder import encode_records, stored_flags
from store_core.errors import StoreWriteError
from store_core.layout import INNER_BATCH_FLAG, PROPERTY_INNER_BASE
from store_core.log.recent_appends import AppendedColumns
from store_core.native.dispatch_columns import encoded_dispatch_columns
from store_core.put.put_checks import Refusal
from store_core.put.put_columns import PutColumns, put_columns, uniform_batch
from store_core.put.put_context import append_failure
from store_core.put.put_properties import queue_names, set_property, with_light_offsets
from store_core.put.put_schedule import scheduled_batch, timed_batch
from store_core.results import AppendBatchResult, PutMessageStatus

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import RecordBatch
    from store_core.log.commit_log_appender import AppendedRecords
    from store_core.native.dispatch_columns import DispatchColumns
    from store_core.put.put_context import PutContext
    from store_core.queue.consume_queue_store import Queue

    Int64s = npt.NDArray[np.int64]

_CHUNK_ROWS = 65_536
_CHUNK_BYTES = 8 << 20  # much less alternates with dispatch too often; much more needs new memory
_MAX_SMALL_CODES = 1 << 16  # codes of 16 bits are sorted by radix


@dataclass(frozen=True)
class _Queues:
    """The queues of a batch, and the queue of each row."""

    names: list[Queue]
    code: npt.NDArray[Any]


@dataclass
class _Appended:
    """The rows appended so far, from the first on, and why the rest failed."""

    commit_log_offsets: list[Int64s]
    queue_offsets: list[Int64s]
    rows: int = 0
    size_bytes: int = 0
    next_offset: int = 0
    failure: Refusal | None = None


class _Known(NamedTuple):
    """What is known of the records of a chunk before they are appended."""

    queue_id: npt.NDArray[np.int32]
    sys_flag: npt.NDArray[np.int32]
    dispatched: DispatchColumns

    def appended(
        self, part: AppendedRecords, sizes: Int64s, queue_offsets: Int64s
    ) -> AppendedColumns:
        """Return the columns of the rows that were appended."""
        rows = slice(part.first, part.stop)
        fields: dict[str, npt.NDArray[Any]] = {
            "queue_id": self.queue_id[rows],
            "sys_flag": self.sys_flag[rows],
            "queue_offset": queue_offsets[rows],
            "total_size": sizes[rows].astype(np.int32),
            "commit_log_offset": part.commit_log_offsets,
            "store_timestamp": np.full(part.stop - part.first, part.store_timestamp, np.int64),
        }
        return AppendedColumns(fields, self.dispatched.rows(part.first, part.stop))


class RecordBatchPutter:
    """Appends record batches; see `MessagePutter`."""

    def __init__(self, context: PutContext) -> None:
        self._context = context

    def append_batch(self, batch: RecordBatch, *, is_raw: bool = False) -> AppendBatchResult:
        """Put the rows of a ``pa.RecordBatch``, in order, across as many segments as needed.

        If a row is refused, none is appended, and the result names the first refused row. Only if a
        segment cannot be created or written, the rows before it stay. With sync flush the call
        returns when all rows are on the disk, whatever property WAIT says.

        Parameters
        ----------
        batch
            Columns ``topic`` and ``body`` (bytes or strings, also dictionaries), and optionally
            ``properties_raw`` (bytes, stored as they are, without the CRC of another record at
            their end), ``queue_id``, ``flag``, ``sys_flag``, ``born_timestamp`` (ms), ``born_host``
            and ``store_host`` (8 or 20 raw bytes), ``reconsume_times``,
            ``prepared_transaction_offset``. Missing or null birth times are now, missing hosts the
            store's, other values empty or 0. If the store handles delay levels, rows with one
            (property DELAY above 0) are stored in the schedule topic until they are due; if it has
            timer rules, so are timer messages in the timer's topic.
        is_raw
            The caller has handled the rows' delays: they go to their own topics.

        Raises
        ------
        ValueError
            A column is unknown, missing, or of a type that cannot be converted.
        """
        context = self._context
        begin = context.clock()
        batch = uniform_batch(batch, context.store_host, begin)
        refusal, row, columns = context.refused_now() or context.busy(begin), -1, None
        if refusal is None and batch.num_rows:
            refused: dict[int, Refusal] = {}
            if not is_raw:
                batch, refused = timed_batch(batch, context)
            if context.max_delay_level and not is_raw:
                batch, bad_levels = scheduled_batch(batch, context)
                refused = {**bad_levels, **refused}
            columns, first = put_columns(batch, context, refused)
            if first is not None:
                row, refusal = first
        done = _Appended([], [])
        if columns is not None and refusal is None:
            self._append(columns, done)
            refusal = done.failure
        if refusal is not None:
            context.stats.record_put_failure()
        status = PutMessageStatus.PUT_OK
        if done.rows:
            status = context.flush.handle(done.next_offset, True)
            context.stats.record_put(done.rows, done.size_bytes, context.clock() - begin)
        return AppendBatchResult(
            status=status if refusal is None else refusal.status,
            rows=done.rows,
            commit_log_offsets=_joined(done.commit_log_offsets),
            queue_offsets=_joined(done.queue_offsets),
            row=row,
            reason="" if refusal is None else refusal.reason,
        )

    def _append(self, columns: PutColumns, done: _Appended) -> None:
        queues = _queues_of(columns)
        sizes = columns.batch.nbytes // columns.batch.num_rows + 1
        rows = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // sizes))
        if len(columns.special) and any(
            self._context.facts_of(topic).is_light for topic in columns.topics
        ):
            rows = 1  # rows of a light queue and rows that fan out to it take its offsets in turn
        for first in range(0, columns.batch.num_rows, rows):
            self._append_chunk(columns, queues, first, first + rows, done)
            if done.failure is not None:
                return

    def _append_chunk(
        self, columns: PutColumns, queues: _Queues, first: int, stop: int, done: _Appended
    ) -> None:
        offsets = self._context.offsets
        code, counts = queues.code[first:stop], columns.counts[first:stop]
        present = np.flatnonzero(np.bincount(code, minlength=len(queues.names))).tolist()
        special = columns.special[(columns.special >= first) & (columns.special < stop)]
        batch = columns.batch.slice(first, stop - first)
        is_plain = len(special) == 0
        records = self._encoded(batch) if is_plain else None
        known = self._known(columns, batch, first) if is_plain else None
        light = not is_plain or any(
            self._context.facts_of(queues.names[q][0]).is_light for q in present
        )
        with offsets.locks([queues.names[q] for q in present], light=light):
            bases = np.zeros(len(queues.names), np.int64)
            for q in present:
                bases[q] = self._counters(queues.names[q]).get(queues.names[q], 0)
            queue_offsets = bases[code] + _counts_before(code, counts)
            queue_offsets[counts == 0] = 0
            fans: dict[int, list[str]] = {}
            if records is None:
                batch, fans = self._completed(columns, batch, special, first, queue_offsets)
                records = self._encoded(batch)
            rows = self._append_records(records, queue_offsets, done, known)
            used = np.bincount(code[:rows], counts[:rows], len(queues.names)).astype(np.int64)
            for q in present:
                if used[q]:
                    queue = queues.names[q]
                    self._counters(queue)[queue] = int(bases[q] + used[q])
            for row, names in fans.items():
                if row < rows:
                    offsets.advance_light(names)

    def _known(self, columns: PutColumns, batch: RecordBatch, first: int) -> _Known | None:
        """Return what dispatch needs of a chunk, from the kernel; None if it will read the log."""
        context = self._context
        if native.kernel is None or context.recent is None:
            return None
        if len(columns.topics) > batch.num_rows:  # the whole batch's: too many for a small chunk
            return None
        rows = slice(first, first + batch.num_rows)
        sys_flag = stored_flags(batch, columns.sys_flag[rows])
        dispatched = encoded_dispatch_columns(
            binary_parts(batch.column("properties_raw")),
            columns.topic_code[rows],
            [topic.encode() for topic in columns.topics],
            np.array([string_hash(topic) for topic in columns.topics], np.int32).view(np.uint32),
            sys_flag,
        )
        # A copy: the batch's own numbers may change after the put.
        return _Known(columns.queue_id[rows].astype(np.int32), sys_flag, dispatched)

    def _append_records(
        self, records: Any, queue_offsets: Int64s, done: _Appended, known: _Known | None
    ) -> int:
        """Append a chunk segment by segment; return how many of its rows were appended."""
        rows = 0
        try:
            while rows < len(records):
                part = self._context.appender.append_records(records, queue_offsets, first=rows)
                if known is not None and self._context.recent is not None:
                    self._context.recent.add(known.appended(part, records.sizes, queue_offsets))
                done.commit_log_offsets.append(part.commit_log_offsets)
                done.queue_offsets.append(queue_offsets[rows : part.stop])
                done.rows += part.stop - rows
                size = int(records.sizes[rows : part.stop].sum())
                done.size_bytes += size
                done.next_offset = int(part.commit_log_offsets[0]) + size
                rows = part.stop
        except (StoreWriteError, ValueError) as err:
            done.failure = append_failure(err)
        return rows

    def _completed(
        self,
        columns: PutColumns,
        batch: RecordBatch,
        special: Int64s,
        first: int,
        queue_offsets: Int64s,
    ) -> tuple[Any, dict[int, list[str]]]:
        """Return the chunk with properties completed by the store, and light queues to advance."""
        column, offsets = batch.column("properties_raw"), self._context.offsets
        pending: dict[str, int] = {}
        fans: dict[int, list[str]] = {}
        values = []
        for row in (special - first).tolist():
            raw = column[row].as_py()
            if columns.sys_flag[first + row] & INNER_BATCH_FLAG:
                raw = set_property(raw, PROPERTY_INNER_BASE, str(queue_offsets[row]))
            topic = columns.topics[columns.topic_code[first + row]]
            may_fan_out = self._context.facts_of(topic).may_fan_out
            names = queue_names(raw) if may_fan_out else []
            if names:
                raw, light = with_light_offsets(
                    raw, names, lambda name: offsets.next_light(name) + pending.get(name, 0)
                )
                fans[row] = light
                pending.update((name, pending.get(name, 0) + 1) for name in light)
            values.append(raw)
        column = replace_rows(column, special - first, pa.array(values, pa.binary()))
        at = batch.schema.get_field_index("properties_raw")
        return batch.set_column(at, "properties_raw", column), fans

    def _encoded(self, batch: RecordBatch) -> Any:
        return encode_records(
            batch,
            store_host=self._context.store_host,
            property_crc=self._context.config.enabled_append_prop_crc,
        )

    def _counters(self, queue: Queue) -> dict[Queue, int]:
        return self._context.offsets.counters(self._context.is_batch_topic(queue[0]))


def _queues_of(columns: PutColumns) -> _Queues:
    key = (columns.topic_code.astype(np.int64) << 32) | columns.queue_id
    encoded = pa.array(key).dictionary_encode()
    names = [
        (columns.topics[number >> 32], number & 0xFFFFFFFF)
        for number in encoded.dictionary.to_pylist()
    ]
    code = encoded.indices.to_numpy()
    return _Queues(names, code.astype(np.uint16) if len(names) <= _MAX_SMALL_CODES else code)


def _counts_before(code: npt.NDArray[Any], counts: Int64s) -> Int64s:
    """Return for every row the sum of the counts of earlier rows with the same code."""
    # Codes [7, 8, 7, 7] with counts [1, 2, 3, 4], sorted by code: counts [1, 3, 4, 2],
    # before = [0, 1, 4, 8]. Code 7 begins where before is 0, code 8 where it is 8.
    # Subtracting that gives [0, 1, 4, 0]; back in row order, [0, 0, 1, 4].
    order = np.argsort(code, kind="stable")
    ordered = counts[order]
    before = np.cumsum(ordered) - ordered
    sorted_code = code[order]
    begins = np.flatnonzero(np.concatenate(([True], sorted_code[1:] != sorted_code[:-1])))
    lengths = np.diff(np.append(begins, len(code)))
    result = np.empty(len(code), np.int64)
    result[order] = before - np.repeat(before[begins], lengths)
    return result


def _joined(parts: list[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
