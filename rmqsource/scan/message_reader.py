# SPDX-License-Identifier: Apache-2.0
"""Read a split of the tables ``messages`` and ``keys``: places in the log -> columns.

No Spark here. `MessageBatches` alone decides from ``mode`` what damage leads to.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

import numpy as np

from rmqsource.errors import DamagedStoreError, DataLossError
from rmqsource.scan.message_batches import MessageBatches
from rmqsource.scan.splits import CompactedSlice, SegmentPositions, fetched_bytes
from store_core.errors import FileVanishedError, StoreNotFoundError
from store_core.files.store_directory import StoreDirectory
from store_core.layout import COMPACTION_DIR
from store_core.log.log_scan import BatchSizer, Gap, LogSlice, SegmentRecords, scan_slice
from store_core.state.store_state import StoreState, store_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rmqsource.scan.message_batches import ReadRequest
    from rmqsource.scan.splits import Part, Split
    from store_core.arrow_types import Columns
    from store_core.files.byte_source import ByteSource
    from store_core.queue.compaction_log import CompactionLog

_MOST_FETCHED_BYTES = 32 << 20
_NO_RECORD = "a consume queue unit or index entry points here, but there is no valid record"


def read_split(split: Split, request: ReadRequest) -> Iterator[Columns]:
    """Yield batches of the requested columns, by canonical name.

    Raises
    ------
    DamagedStoreError
        There is damage and ``mode`` is ``FAILFAST``.
    DataLossError
        A segment or compacted log vanished since planning and ``failOnDataLoss`` is true.
    """
    directory = StoreDirectory(split.store)
    directory.expect(split.versions)
    sizer = BatchSizer(request.batch_rows, request.batch_bytes)
    batches = MessageBatches(split.store, request)
    for part in split.parts:
        if isinstance(part, LogSlice):
            found = _read_slice(directory, part, sizer, batches)
        elif isinstance(part, CompactedSlice):
            found = _read_compacted(directory, part, sizer, batches)
        else:
            found = _read_positions(directory, part, sizer, batches)
        for batch in _told_if_lost(found, directory, part, batches):
            yield from _cut(batch, request.batch_rows)
    batches.report()


def _cut(batch: Columns, max_rows: int) -> Iterator[Columns]:
    """Cut a batch: one record can give many rows, by its inner batch or its keys."""
    rows = len(next(iter(batch.values())))
    if rows <= max_rows:
        yield batch
        return
    for at in range(0, rows, max_rows):
        yield {name: column.slice(at, max_rows) for name, column in batch.items()}


def _read_slice(
    directory: StoreDirectory, part: LogSlice, sizer: BatchSizer, batches: MessageBatches
) -> Iterator[Columns]:
    with _opened(directory, part.path) as source:
        for found in scan_slice(source, part, sizer):
            if isinstance(found, Gap):
                yield from batches.gap(found)
            else:
                yield from batches.of_frames(found, part)
        end, surplus = part.from_offset + part.file_size, source.size - part.file_size
        if surplus > 0 and part.start == part.from_offset:  # one slice has its first byte
            reason = f"the file has {surplus} bytes more than a segment of this store"
            yield from batches.gap(Gap(end, surplus, part.path, part.file_size, reason))


def _read_positions(
    directory: StoreDirectory, places: SegmentPositions, sizer: BatchSizer, batches: MessageBatches
) -> Iterator[Columns]:
    offsets, sizes = places.array(), places.record_bytes()
    with _opened(directory, places.path) as source:
        records = SegmentRecords(source, places.from_offset, places.file_size, places.end_offset)
        at = 0
        while at < len(offsets):
            rows = slice(at, at + _rows_at_once(offsets, sizes, at, sizer))
            some, known = offsets[rows], None if sizes is None else sizes[rows]
            frames = records.frames_at(some - places.from_offset, known)
            # Records need not be adjacent, so rows are cut by the sum of their sizes.
            total = np.cumsum(np.where(frames.ok, frames.column("total_size"), 0))
            count = max(int(np.searchsorted(total, sizer.max_bytes, "right")), 1)
            if count < len(some):
                some, frames = some[:count], frames.take(np.arange(count))
            at += count
            for offset in some[~frames.ok].tolist():
                position = offset - places.from_offset
                yield from batches.gap(Gap(offset, 0, places.path, position, _NO_RECORD))
            if not frames.ok.all():
                frames = frames.take(np.flatnonzero(frames.ok))
            yield from batches.of_frames(frames, places)


def _rows_at_once(
    offsets: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64] | None,
    at: int,
    sizer: BatchSizer,
) -> int:
    """Return how many records to read; in a remote file the bytes between them count as well."""
    rows = min(sizer.next_rows(), len(offsets) - at)
    if sizes is None:
        return rows
    fetched = np.cumsum(fetched_bytes(offsets[at : at + rows], sizes[at : at + rows], 0))
    return max(int(np.searchsorted(fetched, _MOST_FETCHED_BYTES, "right")), 1)


def _read_compacted(
    directory: StoreDirectory, part: CompactedSlice, sizer: BatchSizer, batches: MessageBatches
) -> Iterator[Columns]:
    from store_core.queue.compaction_log import CompactionLog  # noqa: PLC0415 (rarely needed)

    is_live = store_state(directory) is StoreState.LIVE
    within = (part.start, part.stop)
    with CompactionLog(directory, part.topic, part.queue_id, is_live=is_live, within=within) as log:
        _check_planned(directory, part, log, batches)
        for gap in [*(log.file_gaps if part.is_first else ()), *log.unit_gaps]:
            yield from batches.gap(gap)
        for segment, frames in log.parts(sizer):
            start, end = segment.from_offset, segment.from_offset + segment.size
            place = SegmentPositions(segment.path, start, segment.size, end, b"")
            yield from batches.of_frames(frames, place)


def _check_planned(
    directory: StoreDirectory, part: CompactedSlice, log: CompactionLog, batches: MessageBatches
) -> None:
    """Report a log that is gone, or whose number of units changed though it must not."""
    name = f"compacted log {part.topic}/{part.queue_id}"
    found = len(log.units) + len(log.unit_gaps)
    if not log.files() and part.units:
        _check_place(directory, directory.resolve(COMPACTION_DIR))
        _tell_lost(directory, f"{name} was deleted between planning and reading", batches)
    elif found != part.units >= 0:
        text = (
            f"{name} had {part.units} units of this split when the read was planned, but has "
            f"{found}"
        )
        _tell_lost(directory, f"{text} now: a broker has compacted it; load again", batches)


@contextmanager
def _opened(directory: StoreDirectory, path: str) -> Iterator[ByteSource]:
    """Open a segment; check at the end, or on damage, that it is still the planned file."""
    with closing(directory.open(path)) as source:
        try:
            yield source
        except DamagedStoreError:
            source.check_unchanged()
            raise
        source.check_unchanged()


def _told_if_lost(
    found: Iterator[Columns], directory: StoreDirectory, part: Part, batches: MessageBatches
) -> Iterator[Columns]:
    """Yield batches; raise or report if the segment was deleted since planning."""
    try:
        yield from found
    except FileVanishedError as err:
        if isinstance(part, CompactedSlice):  # its log reports lost files itself
            raise
        _check_place(directory, part.path)
        reason = f"segment {part.path} was deleted between planning and reading"
        _tell_lost(directory, reason, batches, err)


def _check_place(directory: StoreDirectory, path: str) -> None:
    """Raise if the segment's directory is gone as well: that is not a loss of data.

    A broker deletes segments but leaves their directory. If that is missing too, this machine does
    not see the store that was planned on another one.
    """
    place = Path(path).parent
    if directory.is_local and not place.is_dir():
        raise StoreNotFoundError(
            f"{directory.uri}: {place} existed when the read was planned, but {gethostname()} "
            "does not see it. Every node of a cluster must see the store under the same "
            "path; mount it there, or read a copy on a shared file system"
        )


def _tell_lost(
    directory: StoreDirectory, reason: str, batches: MessageBatches, cause: Exception | None = None
) -> None:
    if batches.request.fail_on_data_loss:
        raise DataLossError(directory.uri, reason) from cause
    batches.request.on_damage(f"{reason}; skipped")
