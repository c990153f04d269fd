"""Records that a task staged: final but for queue offset, physical offset and store time.

A part is two files. ``<name>.records`` holds the records back to back. ``<name>.rows`` is an Arrow
stream with a row for each of them: what the commit must know, so that it looks into none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.arrow import pa
from store_core.errors import StoreFormatError, StoreWriteError
from store_core.files.regular_file import check_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.arrow_types import RecordBatch, Schema

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

RECORDS_SUFFIX, ROWS_SUFFIX = ".records", ".rows"
RELATIVE_TO_STORE_TIME = 1 << 60
"""A tags code from here on is a time of delivery: so many ms behind the store time."""


def rows_schema() -> Schema:
    """Return what a part tells of each of its records."""
    return pa.schema(
        [
            ("size", pa.int32()),  # bytes of the record
            ("queue", pa.int32()),  # number of the queue in StagedPart.queues
            ("rank", pa.int32()),  # messages of the part before it in its queue
            ("store_timestamp_at", pa.int16()),  # byte of the record where the store time lies
            ("tags_code", pa.int64()),  # of the queue's unit; see RELATIVE_TO_STORE_TIME
            ("key_hashes", pa.list_(pa.int32())),  # of the index's entries, in their order
        ]
    )


class QueueCount(NamedTuple):
    """A queue, and how many messages of a part go to it."""

    topic: str
    queue_id: int
    messages: int


@dataclass(frozen=True)
class StagedPart:
    """What one task staged. Plain values only, so that it can be pickled.

    Attributes
    ----------
    partition_id
        Parts follow each other in the log by it.
    directory, name
        Where the two files are, and their name without suffix; empty when there are none.
    records_bytes, rows_bytes
        Lengths of the files.
    messages
        Records in the part.
    queues
        The queues that they go to, in the order of their numbers.
    topics
        Topics that consumers ask for, and how many queues each must have.
    delay_levels
        Levels at which messages of the part wait.
    dropped
        Rows that could be no message, by column.
    host
        Machine that staged it.
    property_crc
        Records end with ``__CRC32#``.
    is_multi_dispatch
        Some records go to further queues, which only their properties name.
    """

    partition_id: int
    directory: str
    name: str
    records_bytes: int
    rows_bytes: int
    messages: int
    queues: tuple[QueueCount, ...]
    topics: tuple[tuple[str, int], ...] = ()
    delay_levels: tuple[int, ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()
    host: str = ""
    property_crc: bool = False
    is_multi_dispatch: bool = False


class StagedBlock(NamedTuple):
    """Some records of a part: where they lie in ``.records``, and a number a row."""

    start: int
    sizes: Int32s
    queue: Int32s
    rank: Int32s
    store_timestamp_at: npt.NDArray[np.int16]
    tags_code: Int64s
    key_count: Int64s
    """Entries of the index."""
    key_hash: Int32s
    """Of all rows, one after the other; empty in a `part`."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all its records."""
        return int(self.sizes.sum(dtype=np.int64))

    def part(self, start: int, first: int, stop: int) -> StagedBlock:
        """Return the rows ``[first, stop)``, which begin at byte ``start`` of the file."""
        rows = slice(first, stop)
        return StagedBlock(
            start=start,
            sizes=self.sizes[rows],
            queue=self.queue[rows],
            rank=self.rank[rows],
            store_timestamp_at=self.store_timestamp_at[rows],
            tags_code=self.tags_code[rows],
            key_count=self.key_count[rows],
            key_hash=self.key_hash[:0],
        )


def read_blocks(part: StagedPart) -> Iterator[StagedBlock]:
    """Yield the blocks of a part in order, one in memory at a time.

    Raises
    ------
    StoreFormatError
        The rows cannot be read, or contradict the part: the files are not those of the part.
    """
    if part.messages == 0:
        return
    path = os.path.join(part.directory, part.name + ROWS_SUFFIX)
    start = messages = 0
    try:
        check_regular(path)
        with pa.memory_map(path) as source, pa.ipc.open_stream(source) as rows:
            for batch in rows:
                block = _block(start, batch)
                _check_block(block, part, path)
                yield block
                start += block.total_bytes
                messages += batch.num_rows
    except (pa.ArrowInvalid, OSError) as err:
        raise StoreFormatError(f"not what a task staged: {err}", path) from err
    if (start, messages) != (part.records_bytes, part.messages):
        raise StoreFormatError(
            f"{messages} messages of {start} bytes; the task staged {part.messages} of "
            f"{part.records_bytes}",
            path,
        )


def _block(start: int, batch: RecordBatch) -> StagedBlock:
    *columns, key_hashes = batch.columns
    size, queue, rank, store_timestamp_at, tags_code = (column.to_numpy() for column in columns)
    key_count = np.diff(key_hashes.offsets.to_numpy()).astype(np.int64)
    key_hash = key_hashes.values.to_numpy()
    return StagedBlock(
        start=start,
        sizes=size,
        queue=queue,
        rank=rank,
        store_timestamp_at=store_timestamp_at,
        tags_code=tags_code,
        key_count=key_count,
        key_hash=key_hash,
    )


def _check_block(block: StagedBlock, part: StagedPart, path: str) -> None:
    if len(block.sizes) == 0 or int(block.sizes.min()) <= 0:
        raise StoreFormatError("a record without bytes", path)
    if int(block.queue.min()) < 0 or int(block.queue.max()) >= len(part.queues):
        raise StoreFormatError("a queue that the task did not name", path)
    if int(block.key_count.sum()) != len(block.key_hash):
        raise StoreFormatError("keys that belong to no record", path)


def check_staged_files(part: StagedPart) -> None:
    """Raise where the files of a part are not there, or not whole.

    Raises
    ------
    StoreWriteError
        They are not; the text says where they were staged.
    """
    if part.messages == 0:
        return
    expected = ((RECORDS_SUFFIX, part.records_bytes), (ROWS_SUFFIX, part.rows_bytes))
    for suffix, length in expected:
        path = os.path.join(part.directory, part.name + suffix)
        try:
            found = os.path.getsize(path)
        except OSError as err:
            reason = (
                f"a task on {part.host or 'another machine'} staged this file, and it cannot be "
                f"seen here ({err.strerror}): tasks and driver must share the store's file system"
            )
            raise StoreWriteError(reason, path) from err
        if found != length:
            raise StoreWriteError(f"has {found} bytes, the task staged {length}", path)
