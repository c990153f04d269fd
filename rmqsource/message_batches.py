"""Batches of the asked-for columns from frames of records, and what is done about damage."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import pyarrow as pa

from rmqsource.errors import DamagedStoreError
from rmqsource.key_rows import explode_keys
from rmqsource.plan import SegmentPositions
from rmqsource.row_filter import (
    bounds_queue_offsets,
    column_mask,
    frame_mask,
    needs_properties,
    queue_offset_mask,
)
from rmqsource.tables import CORRUPT_RECORD
from store_core.codec.inner_columns import UnwrappedColumns, holds_inner_batch
from store_core.codec.message_batch_codec import (
    MESSAGE_SCHEMA,
    InflatedTooLargeError,
    MessageColumns,
)
from store_core.codec.record_crcs import body_crc_failures
from store_core.log.log_scan import Gap, LogSlice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.read_request import ReadRequest
    from store_core.codec.record_frames import RecordFrames

    Columns = dict[str, Any]
    _Place = Union[LogSlice, SegmentPositions]

logger = logging.getLogger(__name__)

_FAILFAST = "FAILFAST"
_PERMISSIVE = "PERMISSIVE"
_KEYS_TABLE = "keys"


class MessageBatches:
    """Batches of one split, and what is to be done about damage in it."""

    def __init__(self, store: str, request: ReadRequest) -> None:
        self.request = request
        self._store = store
        self._dropped = 0
        self._dropped_bytes = 0

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
        if needs_properties(request.predicate):
            found = column_mask(MessageColumns(frames), len(frames), request.predicate)
            frames = frames.take(np.flatnonzero(found))
        yield from self._plain(frames, place)

    def _plain(self, frames: RecordFrames, place: _Place) -> Iterator[Columns]:
        if len(frames) == 0:
            return
        columns = MessageColumns(
            frames, raw_body=self.request.raw_body, inflate_budget=self.request.batch_bytes
        )
        try:
            if "body" in self.request.columns:
                columns.column("body")
        except InflatedTooLargeError as err:
            yield from self._plain(frames.take(np.arange(err.row)), place)
            yield from self._plain(frames.take(np.arange(err.row, len(frames))), place)
            return
        if columns.bad_bodies:
            yield from self._bad_rows(frames, place, columns.bad_bodies)
            yield from self._plain(_without(frames, [bad.row for bad in columns.bad_bodies]), place)
            return
        yield self._assemble(columns, len(frames), None)

    def _unwrapped(self, frames: RecordFrames, place: _Place) -> Iterator[Columns]:
        """Yield batches of records of which some hold several messages."""
        request = self.request
        try:
            records = MessageColumns(
                frames, raw_body=request.raw_body, inflate_budget=request.batch_bytes
            )
            columns = UnwrappedColumns(records)
            if "body" in request.columns and not columns.bad_bodies:
                columns.column("body")
        except InflatedTooLargeError as err:
            yield from self._unwrapped(frames.take(np.arange(err.row)), place)
            yield from self._unwrapped(frames.take(np.arange(err.row, len(frames))), place)
            return
        if columns.bad_bodies:
            yield from self._bad_rows(frames, place, columns.bad_bodies)
            good = _without(frames, [bad.row for bad in columns.bad_bodies])
            if len(good):
                yield from self._unwrapped(good, place)
            return
        rows = len(columns.record_row)
        found = column_mask(columns, rows, request.predicate)
        if bounds_queue_offsets(request.predicate):
            found &= queue_offset_mask(
                columns.column("topic"),
                columns.column("queue_id").to_numpy(),
                columns.column("queue_offset").to_numpy(),
                request.predicate,
            )
        if found.any():
            yield self._assemble(columns, rows, None if found.all() else pa.array(found))

    def _assemble(self, columns: Any, rows: int, found: Any) -> Columns:
        """Return the asked-for columns of the rows that ``found`` marks (None: all)."""
        request = self.request
        wanted = [name for name in request.columns if name in MESSAGE_SCHEMA.names]
        batch = {name: columns.column(name) for name in wanted}
        if request.table == _KEYS_TABLE:
            key, kind, row = explode_keys(
                columns.column("keys"), columns.column("unique_key"), found, request.predicate
            )
            batch = {name: column.take(row) for name, column in batch.items()}
            batch["key"], batch["key_kind"] = key, kind
            rows = len(row)
        elif found is not None:
            batch = {name: column.filter(found) for name, column in batch.items()}
            rows = int(found.true_count)
        if "store" in request.columns:
            batch["store"] = pa.repeat(pa.scalar(self._store), rows)
        if CORRUPT_RECORD.name in request.columns:
            batch[CORRUPT_RECORD.name] = pa.nulls(rows, pa.string())
        if not request.columns or not batch:
            return {"": pa.nulls(rows)}
        return {name: batch[name] for name in request.columns}

    def _bad_rows(self, frames: RecordFrames, place: _Place, bad: Any) -> Iterator[Columns]:
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
            raise DamagedStoreError(self._store, gap.path, gap.position, gap.reason)
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
                self._store,
                self._dropped,
                self._dropped_bytes,
            )


def _without(frames: RecordFrames, rows: list[int]) -> RecordFrames:
    if not rows:
        return frames
    keep = np.ones(len(frames), np.bool_)
    keep[rows] = False
    return frames.take(np.flatnonzero(keep))
