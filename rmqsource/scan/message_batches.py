"""Batches of the asked-for columns from frames of records, and what is done about damage."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Callable, Union

import numpy as np

from rmqsource.errors import DamagedStoreError
from rmqsource.scan.key_rows import explode_keys, repeated_parts
from rmqsource.scan.row_filter import (
    bounds_queue_offsets,
    column_mask,
    frame_mask,
    needs_properties,
    queue_offset_mask,
    sql_result,
)
from rmqsource.scan.splits import SegmentPositions
from rmqsource.tables import CORRUPT_RECORD
from store_core.arrow import pa
from store_core.codec.decoded_parts import decoded_parts
from store_core.codec.inner_columns import UnwrappedColumns, holds_inner_batch
from store_core.codec.message_batch_codec import MessageColumns, message_schema
from store_core.codec.record_crcs import body_crc_failures
from store_core.errors import NOT_DAMAGE
from store_core.layout.message import COMPRESSED_FLAG
from store_core.log.log_scan import Gap, LogSlice

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rmqsource.scan.read_request import ReadRequest
    from store_core.arrow_types import Columns
    from store_core.codec.inner_columns import UnwrappedRows
    from store_core.codec.record_crcs import BadBody
    from store_core.codec.record_frames import RecordFrames

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]
    LastFilter = Callable[[Union[MessageColumns, UnwrappedRows], Bools], Bools]
    _Place = Union[LogSlice, SegmentPositions]

logger = logging.getLogger(__name__)

_FAILFAST = "FAILFAST"
_PERMISSIVE = "PERMISSIVE"
_KEYS_TABLE = "keys"


class MessageBatches:
    """Batches of one split, and what is to be done about damage in it.

    Parameters
    ----------
    store
        Of the rows.
    request
        Columns, filters, sizes.
    last_filter
        Is asked last, in order: which of the matching messages stay.
    """

    def __init__(
        self, store: str, request: ReadRequest, last_filter: LastFilter | None = None
    ) -> None:
        self.request, self._last_filter = request, last_filter
        self.store = store
        self._dropped = 0
        self._dropped_bytes = 0
        self._failed = 0
        self._first_failure = ""

    def of_frames(self, frames: RecordFrames, place: _Place) -> Iterator[Columns]:
        """Yield the matching messages of some records as at most a few batches."""
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
        """Yield batches of records of which some hold several messages."""
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

        With the rows of ``frames`` that are left out, as their bodies cannot be decoded. Where
        columns of the same frames are there, what they have decoded is used.
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
        """Return of messages of inner batches whether they match."""
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
        """Return which of the messages to keep match by their properties.

        Those for which the SQL filter has no result are counted.
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
        """Yield the asked-for columns of the rows that ``found`` marks (None: all)."""
        request = self.request
        keep = None if found is None or found.all() else pa.array(found)
        wanted = [name for name in request.columns if name in message_schema().names]
        batch = {name: columns.column(name) for name in wanted}
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
        """Return the asked-for columns in their order, with those that no record has."""
        request = self.request
        if "store" in request.columns:
            batch["store"] = pa.repeat(pa.scalar(self.store), rows)
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
        """Decide what damage means: an error, a row, or a count."""
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
        """Log what was dropped."""
        if self._dropped:
            logger.warning(
                "store %s: dropped %d damaged places, %d bytes",
                self.store,
                self._dropped,
                self._dropped_bytes,
            )
        if self._failed:
            logger.warning(
                "store %s: %d messages for which the SQL filter has no result are left out, %s",
                self.store,
                self._failed,
                self._first_failure,
                extra={NOT_DAMAGE: True},
            )


def _without(frames: RecordFrames, rows: list[int]) -> RecordFrames:
    if not rows:
        return frames
    keep = np.ones(len(frames), np.bool_)
    keep[rows] = False
    return frames.take(np.flatnonzero(keep))
