# SPDX-License-Identifier: Apache-2.0
"""Turn frames of records into batches of the requested columns, and handle damage by ``mode``."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, NamedTuple, Union

import numpy as np

from rmqsource.errors import DamagedStoreError
from rmqsource.scan.predicate import load_keys
from rmqsource.scan.row_filter import (
    bounds_queue_offsets,
    column_mask,
    frame_mask,
    needs_properties,
    queue_offset_mask,
    sql_result,
)
from rmqsource.scan.splits import COMMIT_LOG, COMPACTION, SegmentPositions
from rmqsource.tables import CORRUPT_RECORD
from store_core.arrow import pa, pc
from store_core.codec.compression import CorruptBodyError, inflate
from store_core.codec.crc32 import BadBody, body_crc_failures
from store_core.codec.inner_columns import UnwrappedColumns, cut_rows
from store_core.codec.message_batch_codec import MessageColumns, message_schema
from store_core.codec.record_frames import holds_inner_batch
from store_core.layout import COMPRESSED_FLAG
from store_core.log.log_scan import Gap, LogSlice
from store_core.read.key_match import is_any_of, text_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from rmqsource.damage import OnDamage
    from rmqsource.options.source_options import SourceOptions
    from rmqsource.scan.predicate import ScanPredicate
    from store_core.arrow_types import Array, Columns
    from store_core.codec.inner_columns import UnwrappedRows
    from store_core.codec.record_frames import RecordFrames

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]
    LastFilter = Callable[[Union[MessageColumns, UnwrappedRows], Bools], Bools]
    _Place = Union[LogSlice, SegmentPositions]

logger = logging.getLogger(__name__)
_FAILFAST = "FAILFAST"
_PERMISSIVE = "PERMISSIVE"
_KEYS_TABLE = "keys"
KEYS_KIND = "KEYS"
UNIQUE_KIND = "UNIQ_KEY"
_FEW = 8  # batches; rows with no more bytes are one part, as messages have few keys


class MessageBatches:
    """Makes the batches of one split and handles damage in it."""

    def __init__(
        self, store: str, request: ReadRequest, last_filter: LastFilter | None = None
    ) -> None:
        self.request, self._last_filter = request, last_filter
        self.store = store
        self._store_names: Array = pa.nulls(0, pa.string())
        self._dropped = 0
        self._dropped_bytes = 0
        self._failed = 0
        self._first_failure = ""

    def of_frames(self, frames: RecordFrames, place: _Place) -> Iterator[Columns]:
        """Yield the matching messages of some records, in one or a few batches."""
        request = self.request
        keep = frame_mask(frames, request.predicate, undispatched=request.undispatched)
        if not keep.all():
            frames = frames.take(np.flatnonzero(keep))
        if request.check_crc and len(frames):
            failures = body_crc_failures(frames)
            yield from self._bad_rows(frames, place, failures)
            frames = _without(frames, [bad.row for bad in failures])
        if len(frames) == 0:
            return
        if holds_inner_batch(frames.column("sys_flag")).any():
            yield from self._unwrapped(frames, place)
            return
        columns: MessageColumns | None = None
        if needs_properties(request.predicate) or self._last_filter is not None:
            columns = MessageColumns(frames, raw_body=request.raw_body)
            every = np.ones(len(frames), np.bool_)
            found = self._matches(columns, every, frames.column("commit_log_offset"))
            if not found.all():
                frames = frames.take(np.flatnonzero(found))
                columns = None
        yield from self._plain(frames, place, columns)

    def _plain(
        self, frames: RecordFrames, place: _Place, columns: MessageColumns | None
    ) -> Iterator[Columns]:
        for records, bad in self._decoded(frames, columns):
            yield from self._bad_rows(frames, place, bad)
            if len(records.frames):
                yield from self._assemble(records, len(records.frames), None)

    def _unwrapped(self, frames: RecordFrames, place: _Place) -> Iterator[Columns]:
        """Yield batches of records, some of which hold several messages."""
        request = self.request
        for records, bad in self._decoded(frames):
            yield from self._bad_rows(frames, place, bad)
            columns = UnwrappedColumns(records)
            yield from self._bad_rows(records.frames, place, columns.bad_bodies)
            for rows in columns.parts(request.batch_rows, request.batch_bytes):
                found = self._found(rows)
                if found.any():
                    yield from self._assemble(rows, len(rows), found)

    def _decoded(
        self, frames: RecordFrames, columns: MessageColumns | None = None
    ) -> Iterator[tuple[MessageColumns, list[BadBody]]]:
        """Yield columns of all records in order, in parts whose inflated bodies fit a batch.

        Each part has the rows of ``frames`` that it omits because their bodies cannot be decoded.
        ``columns`` of the same frames are reused if no body needs inflating.
        """
        request = self.request
        sys_flag = frames.column("sys_flag")
        wanted = sys_flag & COMPRESSED_FLAG != 0
        if request.raw_body or "body" not in request.columns:
            wanted &= holds_inner_batch(sys_flag)
        if not wanted.any():
            yield columns or MessageColumns(frames, raw_body=request.raw_body), []
            return
        rows = np.flatnonzero(wanted)
        for part in decoded_parts(frames, rows, request.batch_bytes, request.max_decoded_bytes):
            columns = MessageColumns(part.frames, raw_body=request.raw_body, inflated=part.inflated)
            yield columns, part.bad

    def _found(self, columns: UnwrappedRows) -> Bools:
        """Return which messages of inner batches match."""
        predicate = self.request.predicate
        keep = np.ones(len(columns), np.bool_)
        if bounds_queue_offsets(predicate):
            keep = queue_offset_mask(
                columns.column("topic"),
                columns.column("queue_id").to_numpy(),
                columns.column("queue_offset").to_numpy(),
                predicate,
            )
        return self._matches(columns, keep, columns.column("commit_log_offset").to_numpy())

    def _matches(
        self, columns: MessageColumns | UnwrappedRows, keep: Bools, offsets: Int64s
    ) -> Bools:
        """Return which of the messages in ``keep`` match by their properties.

        Counts the messages for which the SQL filter has no result.
        """
        found = self._filtered(columns, keep, offsets)
        return found if self._last_filter is None else self._last_filter(columns, found)

    def _filtered(
        self, columns: MessageColumns | UnwrappedRows, keep: Bools, offsets: Int64s
    ) -> Bools:
        predicate = self.request.predicate
        found = keep & column_mask(columns, len(keep), predicate)
        if predicate.sql_filter is None:
            return found
        result = sql_result(predicate.sql_filter, columns, found)
        if result.first_failure and not self._failed:
            at = int(offsets[result.failed.argmax()])
            self._first_failure = f"first at offset {at}: {result.first_failure}"
        self._failed += int(np.count_nonzero(result.failed))
        return result.true

    def _assemble(
        self, columns: MessageColumns | UnwrappedRows, rows: int, found: Bools | None
    ) -> Iterator[Columns]:
        """Yield the requested columns of the rows that ``found`` marks; of all rows if None."""
        request = self.request
        keep = None if found is None or found.all() else pa.array(found)
        known = set(message_schema().names)
        wanted = [name for name in request.columns if name in known]
        batch = columns.columns(wanted)
        if request.table == _KEYS_TABLE:
            key, kind, row = explode_keys(
                columns.column("keys"), columns.column("unique_key"), keep, request.predicate
            )
            for start, stop in repeated_parts(batch.values(), row, request.batch_bytes):
                some = row.slice(start, stop - start)
                part = {name: column.take(some) for name, column in batch.items()}
                part["key"] = key.slice(start, stop - start)
                part["key_kind"] = kind.slice(start, stop - start)
                yield self._completed(part, stop - start)
            return
        if keep is not None:
            batch = {name: column.filter(keep) for name, column in batch.items()}
            rows = int(keep.true_count)
        yield self._completed(batch, rows)

    def _completed(self, batch: Columns, rows: int) -> Columns:
        """Return the requested columns in order, adding those that records do not have."""
        request = self.request
        if "store" in request.columns:
            if len(self._store_names) < rows:
                self._store_names = pa.repeat(pa.scalar(self.store), rows)
            batch["store"] = self._store_names.slice(0, rows)
        if CORRUPT_RECORD.name in request.columns:
            batch[CORRUPT_RECORD.name] = pa.nulls(rows, pa.string())
        if not request.columns or not batch:
            return {"": pa.nulls(rows)}
        return {name: batch[name] for name in request.columns}

    def _bad_rows(
        self, frames: RecordFrames, place: _Place, bad: list[BadBody]
    ) -> Iterator[Columns]:
        sizes, offsets = frames.column("total_size"), frames.column("commit_log_offset")
        for failure in bad:
            offset = int(offsets[failure.row])
            position = offset - place.from_offset
            size = int(sizes[failure.row])
            yield from self.gap(Gap(offset, size, place.path, position, failure.reason))

    def gap(self, gap: Gap) -> Iterator[Columns]:
        """Raise an error, yield a row or count the damage, as ``mode`` says."""
        request = self.request
        if request.mode == _FAILFAST:
            raise DamagedStoreError(self.store, gap.path, gap.position, gap.reason)
        shown = request.mode == _PERMISSIVE and CORRUPT_RECORD.name in request.columns
        if not shown or request.predicate.drops_gaps:
            self._dropped += 1
            self._dropped_bytes += gap.bytes_lost
            return
        text = json.dumps(
            {
                "reason": gap.reason,
                "file": gap.path,
                "position": gap.position,
                "commit_log_offset": gap.commit_log_offset,
                "bytes_lost": gap.bytes_lost,
            }
        )
        yield {
            name: pa.array([text], pa.string()) if name == CORRUPT_RECORD.name else pa.nulls(1)
            for name in request.columns
        }

    def report(self) -> None:
        """Report dropped damage and failed filters, unless another read has done so."""
        if self.request.drops_reported:
            return
        if self._dropped:
            self.request.on_damage(
                f"store {self.store}: dropped {self._dropped} damaged places, "
                f"{self._dropped_bytes} bytes"
            )
        if self._failed:
            logger.warning(
                "store %s: %d messages for which the SQL filter has no result are skipped, %s",
                self.store,
                self._failed,
                self._first_failure,
            )


def _without(frames: RecordFrames, rows: list[int]) -> RecordFrames:
    if not rows:
        return frames
    keep = np.ones(len(frames), np.bool_)
    keep[rows] = False
    return frames.take(np.flatnonzero(keep))


def explode_keys(
    keys: Array, unique_keys: Array, found: Array | None, predicate: ScanPredicate
) -> tuple[Array, Array, Array]:
    """Return the columns (key, key kind, row), by row; words of KEYS precede the unique key.

    A word that repeats, or equals the message's unique key, gives one row, of kind ``KEYS``.

    Parameters
    ----------
    keys, unique_keys
        ``list<string>`` and ``string`` columns of the messages.
    found
        Boolean array of the messages to take; all if None.
    """
    word_rows = pc.list_parent_indices(keys).to_numpy()
    unique_rows = np.flatnonzero(unique_keys.is_valid().to_numpy(zero_copy_only=False))
    key = pa.concat_arrays([keys.flatten(), unique_keys.take(pa.array(unique_rows))])
    row = np.concatenate([word_rows, unique_rows])
    is_unique = np.arange(len(row)) >= len(word_rows)
    order = np.lexsort((np.arange(len(row)), row))
    keep = _first_of_row(key, row, order)
    if found is not None:
        keep &= found.to_numpy(zero_copy_only=False)[row[order]]
    if predicate.key_equals is not None:
        keep &= is_any_of(key, text_set(predicate.key_equals))[order]
    if predicate.key_files is not None:
        keep &= is_any_of(key, load_keys(predicate.key_files))[order]
    chosen = order[keep]
    kind = np.where(is_unique[chosen], UNIQUE_KIND, KEYS_KIND)
    return key.take(pa.array(chosen)), pa.array(kind.tolist(), pa.string()), pa.array(row[chosen])


def repeated_parts(
    columns: Iterable[Array], row: Array, most_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of parts of rows that repeat messages, each of about a batch's bytes."""
    columns = list(columns)
    taken = row.to_numpy()
    most = int(np.bincount(taken).max(initial=0)) * sum(column.nbytes for column in columns)
    if most <= _FEW * most_bytes:
        yield 0, len(row)
        return
    sizes = np.zeros(int(taken.max()) + 1, np.int64)
    for column in columns:
        sizes += _row_bytes(column)[: len(sizes)]
    yield from cut_rows(sizes[taken], len(row), most_bytes)


def _row_bytes(column: Array) -> Int64s:
    """Return roughly how many bytes each row of a column takes."""
    if pa.types.is_map(column.type):
        inner = _row_bytes(column.keys) + _row_bytes(column.items)
    elif pa.types.is_list(column.type):
        inner = _row_bytes(column.values)
    elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        lengths: Int64s = pc.binary_length(column).fill_null(0).to_numpy().astype(np.int64)
        return lengths + 4
    else:
        return np.full(len(column), 8, np.int64)
    ends = np.concatenate([[0], np.cumsum(inner)])
    sizes: Int64s = np.diff(ends[column.offsets.to_numpy()])
    return sizes + 4


def _first_of_row(key: Array, row: Int64s, order: Int64s) -> npt.NDArray[np.bool_]:
    """Return which rows in ``order`` have the first occurrence of their key in the message."""
    codes = key.dictionary_encode().indices.to_numpy()
    pairs = row.astype(np.int64) * (int(codes.max(initial=0)) + 1) + codes
    _, first = np.unique(pairs[order], return_index=True)
    keep = np.zeros(len(order), np.bool_)
    keep[first] = True
    return keep


class DecodedPart(NamedTuple):
    """Some records with their inflated bodies.

    ``inflated`` maps rows of ``frames`` to bodies. Rows of ``bad`` count all records, and are not
    in ``frames``.
    """

    frames: RecordFrames
    inflated: dict[int, bytes]
    bad: list[BadBody]


def decoded_parts(
    frames: RecordFrames,
    rows: npt.NDArray[np.int64],
    most_bytes: int,
    max_decoded_bytes: int,
) -> Iterator[DecodedPart]:
    """Yield all records in order, in parts; a part ends before a body that does not fit into it.

    Parameters
    ----------
    rows
        Rows whose bodies are inflated, ascending; all must be compressed.
    max_decoded_bytes
        Limit of the bytes of an inflated body.
    """
    start = total = 0
    inflated: dict[int, bytes] = {}
    bad: list[BadBody] = []
    places = (frames.body_start[rows], frames.body_length[rows], frames.column("sys_flag")[rows])
    for row, at, length, flag in zip(rows.tolist(), *(place.tolist() for place in places)):
        try:
            body = inflate(frames.data[at : at + length].tobytes(), flag, max_decoded_bytes)
        except CorruptBodyError as err:
            bad.append(BadBody(row, str(err)))
            continue
        if inflated and total + len(body) > most_bytes:
            yield _part(frames, start, row, inflated, bad)
            start, inflated, bad, total = row, {}, [], 0
        inflated[row] = body
        total += len(body)
    yield _part(frames, start, len(frames), inflated, bad)


def _part(
    frames: RecordFrames, start: int, stop: int, inflated: dict[int, bytes], bad: list[BadBody]
) -> DecodedPart:
    if not bad and stop - start == len(frames):
        return DecodedPart(frames, inflated, bad)
    keep = np.ones(stop - start, np.bool_)
    keep[[item.row - start for item in bad]] = False
    rows = start + np.flatnonzero(keep)
    placed = np.searchsorted(rows, list(inflated)).tolist()
    return DecodedPart(frames.take(rows), dict(zip(placed, inflated.values())), bad)


@dataclass(frozen=True)
class ReadRequest:
    """What a read asks of each task; picklable if ``on_damage`` is a function of a module."""

    predicate: ScanPredicate
    columns: tuple[str, ...]
    """Canonical names, in the requested order."""
    table: str
    mode: str
    check_crc: bool
    raw_body: bool
    batch_rows: int
    batch_bytes: int
    max_decoded_bytes: int
    fail_on_data_loss: bool
    undispatched: bool
    """Also return records that RocketMQ never dispatches."""
    on_damage: OnDamage
    drops_reported: bool

    @classmethod
    def from_options(
        cls, options: SourceOptions, predicate: ScanPredicate, columns: tuple[str, ...]
    ) -> ReadRequest:
        """Return the request that these options make."""
        return cls(
            predicate=predicate,
            columns=columns,
            table=options.table,
            mode=options.mode,
            check_crc=options.check_crc,
            raw_body=options.body == "raw",
            batch_rows=options.batch_rows,
            batch_bytes=options.batch_bytes,
            max_decoded_bytes=options.max_decoded_bytes,
            fail_on_data_loss=options.fail_on_data_loss,
            undispatched=options.access in (COMMIT_LOG, COMPACTION),
            on_damage=options.on_damage,
            drops_reported=options.drops_reported,
        )
