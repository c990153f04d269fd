# SPDX-License-Identifier: Apache-2.0
"""Table ``segments``: one row per file of the store's parts that consist of numbered files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqsource.metadata.columns import NO_TIME, table_part
from rmqsource.metadata.damage import skip_damaged
from rmqsource.metadata.queue_facts import NO_RECORD, store_times
from rmqsource.metadata.queue_units import read_batch_queue
from rmqsource.metadata.selection import SelectedQueue, selected_queues
from store_core.errors import CorruptRecordError, StoreFormatError
from store_core.layout import (
    BATCH_CONSUME_QUEUE_DIR,
    BATCH_CQ_UNIT,
    COMMIT_LOG_DIR,
    CONSUME_QUEUE_DIR,
    CONSUME_QUEUE_EXT_DIR,
    CQ_UNIT,
    INDEX_DIR,
    index_file_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Table
    from store_core.files.byte_source import ByteSource
    from store_core.files.store_directory import FileEntry
    from store_core.queue.queue_range import QueueRange
    from store_core.snapshot.store_snapshot import StoreSnapshot

_SEGMENT_NAME = re.compile(r"[0-9]{20}", re.ASCII)
_MAX_OFFSET = 2**63 - 1
_DEEPEST = 2
"""Queues are in directories below their topic: ``<topic>/<queue id>``."""


def rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Table]:
    """Yield the files, by kind and path.

    The kind is the directory of the files: ``commitlog``, ``consumequeue``, ``batchconsumequeue``,
    ``consumequeue_ext``, ``index``, ``timerlog``, ``compactionLog`` or ``compactionCq``.

    Known values:

    - ``commitlog``: the first store time, and ``used_bytes`` up to the end of the log (all bytes of
      a full segment, including the blank record that closes it). The last store time and the number
      of messages are null, as they would need a walk through all records.
    - queues: ``used_bytes`` up to the last unit of the snapshot, the number of messages whose
      records are in the log, and the store times of the first and last of them.
    - ``index``: ``used_bytes`` up to the last entry, and the times in the header. Messages are
      null, as a message has as many entries as keys.
    - the others: the length only.

    Every file of the log and the queues is opened to read its first record or the ends of its
    units, and a queue's last three files again to find its end. Index files are opened for their
    headers, the others not at all. In modes other than ``FAILFAST`` a damaged queue or index file
    is listed with the facts in its name and length.
    """
    files = [
        *commit_log_files(snapshot),
        *queue_files(snapshot, options),
        *other_files(snapshot, CONSUME_QUEUE_EXT_DIR),
        *index_files(snapshot, options),
        *other_files(snapshot, "timerlog"),
        *other_files(snapshot, "compaction", "compactionLog"),
        *other_files(snapshot, "compaction", "compactionCq"),
    ]
    first_times, last_times = _times(snapshot, options, files)
    yield table_part(
        "segments",
        snapshot.directory.uri,
        len(files),
        kind=[file.kind for file in files],
        path=[file.path for file in files],
        from_offset=[file.from_offset for file in files],
        file_size=[file.file_size for file in files],
        used_bytes=[file.used_bytes for file in files],
        first_store_timestamp=first_times,
        last_store_timestamp=last_times,
        messages=[file.messages for file in files],
    )


def _times(
    snapshot: StoreSnapshot, options: SourceOptions, files: list[StoreFile]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first and last store times, from records if a file names them."""
    records = [file.first_record for file in files] + [file.last_record for file in files]
    known = [file.first_ms for file in files] + [file.last_ms for file in files]
    of_records = np.array(records, np.int64)
    times = store_times(snapshot, options, of_records)
    given = np.array([NO_TIME if time is None else time for time in known], np.int64)
    times = np.where(of_records == NO_RECORD, given, times)
    return times[: len(files)], times[len(files) :]


def queue_files(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[StoreFile]:
    """Yield the files of all queues; the consume queues come first."""
    keys = sorted(selected_queues(snapshot, options), key=lambda key: (key.is_batch, key))
    for key in keys:
        kind = BATCH_CONSUME_QUEUE_DIR if key.is_batch else CONSUME_QUEUE_DIR
        paths = snapshot.batch_queue_paths if key.is_batch else snapshot.queue_paths
        path = paths[key.topic, key.queue_id]
        files = numbered_files(kind, snapshot.directory.list(path))
        with skip_damaged(f"the content of {key}", options):
            files = _batch(snapshot, key, files) if key.is_batch else _simple(snapshot, key, files)
        yield from files


def _simple(snapshot: StoreSnapshot, key: SelectedQueue, files: list[StoreFile]) -> list[StoreFile]:
    held = snapshot.queue_range(key.topic, key.queue_id)
    return [_simple_file(snapshot, held, file) for file in files]


def _simple_file(snapshot: StoreSnapshot, held: QueueRange, file: StoreFile) -> StoreFile:
    begin = (file.from_offset or 0) // CQ_UNIT.size
    end = min(begin + file.file_size // CQ_UNIT.size, held.max_offset)
    used = max(end - begin, 0) * CQ_UNIT.size
    low = max(begin, held.min_offset)
    file = file._replace(used_bytes=used, messages=max(end - low, 0))
    if low >= end:
        return file
    with snapshot.directory.open(file.path) as source:
        first = _record_at(source, low - begin)
        last = _record_at(source, end - 1 - begin)
    return file._replace(first_record=first, last_record=last)


def _record_at(source: ByteSource, unit: int) -> int:
    raw = source.read_at(unit * CQ_UNIT.size, CQ_UNIT.size)
    if len(raw) < CQ_UNIT.size:
        raise CorruptRecordError("the file became shorter", source.path, unit * CQ_UNIT.size)
    return int(CQ_UNIT.unpack(raw).commit_log_offset)


def _batch(snapshot: StoreSnapshot, key: SelectedQueue, files: list[StoreFile]) -> list[StoreFile]:
    """Assign the units of the queue to its files; they have no gaps up to the last unit."""
    units, _, expired = read_batch_queue(snapshot, key)
    first_file = files[0].from_offset or 0 if files else 0
    placed = []
    for file in files:
        # row of `units`; the file may begin before the first one
        begin = ((file.from_offset or 0) - first_file) // BATCH_CQ_UNIT.size - expired
        end = min(begin + file.file_size // BATCH_CQ_UNIT.size, len(units))
        part = units[max(begin, 0) : max(end, 0)]
        records = part["commit_log_offset"]
        placed.append(
            file._replace(
                used_bytes=max(end - begin, 0) * BATCH_CQ_UNIT.size,
                messages=int(part["batch_size"].sum(dtype=np.int64)),
                first_record=int(records[0]) if len(part) else NO_RECORD,
                last_record=int(records[-1]) if len(part) else NO_RECORD,
            )
        )
    return placed


class StoreFile(NamedTuple):
    """One row of the table; None means not known.

    Store times come from the header (``first_ms``, ``last_ms``) or from records of the log.
    """

    kind: str
    path: str
    from_offset: int | None
    file_size: int
    used_bytes: int | None = None
    messages: int | None = None
    first_record: int = NO_RECORD
    last_record: int = NO_RECORD
    first_ms: int | None = None
    last_ms: int | None = None


def numbered_files(kind: str, entries: Sequence[FileEntry]) -> list[StoreFile]:
    """Return the files of a listing whose names are byte offsets."""
    return [
        StoreFile(kind, entry.path, int(entry.name), entry.size)
        for entry in entries
        if not entry.is_dir
        and _SEGMENT_NAME.fullmatch(entry.name)
        and int(entry.name) <= _MAX_OFFSET
    ]


def commit_log_files(snapshot: StoreSnapshot) -> list[StoreFile]:
    """Return the segments of the log in all its directories."""
    files = []
    for segment in snapshot.log.segments:
        used = min(max(snapshot.end_offset - segment.from_offset, 0), segment.size)
        file = StoreFile(COMMIT_LOG_DIR, segment.path, segment.from_offset, segment.size, used)
        first = segment.from_offset + segment.header_bytes
        files.append(file._replace(first_record=first if used else NO_RECORD))
    return files


def index_files(snapshot: StoreSnapshot, options: SourceOptions) -> list[StoreFile]:
    """Return the index files, in the order of their names."""
    directory = snapshot.directory
    lengths = {e.path: e.size for e in directory.list(directory.resolve(INDEX_DIR)) if not e.is_dir}
    files = [
        StoreFile(INDEX_DIR, path, None, lengths.get(path, 0))
        for path, _ in snapshot.index.unusable
    ]
    for unusable in snapshot.index.unusable:
        with skip_damaged("the content of an index file", options):
            raise StoreFormatError(unusable.reason, unusable.path)
    slots = snapshot.index.sizes[0] if snapshot.index.sizes else 0
    for path, header in snapshot.index.files:
        has_entries = header.entry_count > 0
        file = StoreFile(
            INDEX_DIR,
            path,
            None,
            lengths.get(path, 0),
            used_bytes=index_file_bytes(slots, header.index_count),
            first_ms=header.begin_timestamp if has_entries else None,
            last_ms=header.end_timestamp if has_entries else None,
        )
        files.append(file)
    return sorted(files, key=lambda file: file.path)


def other_files(snapshot: StoreSnapshot, *place: str) -> Iterator[StoreFile]:
    """Yield the numbered files in and below a directory, without opening them."""
    directory = snapshot.directory
    root = directory.stat(directory.resolve(*place))
    pending = [(root.path, 0)] if root is not None and root.is_dir else []
    while pending:
        path, depth = pending.pop()
        entries = directory.list(path)
        yield from numbered_files(place[-1], entries)
        if depth < _DEEPEST:
            pending += [(e.path, depth + 1) for e in reversed(entries) if e.is_dir]
