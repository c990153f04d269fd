# SPDX-License-Identifier: Apache-2.0
"""Records that a task staged: final except for queue offset, physical offset and store time.

``<name>.00000.records``, ``<name>.00001.records``, … contain the records back to back (see
`staged_records`). ``<name>.rows`` is an Arrow stream with one row per record, with everything the
commit needs to know, so that it decodes no record.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.arrow import pa
from store_core.errors import StoreFormatError, StoreWriteError
from store_core.files.byte_source import check_regular, open_to_read, read_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.arrow_types import RecordBatch, Schema

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

ROWS_SUFFIX = ".rows"
RELATIVE_TO_STORE_TIME = 1 << 60
"""A tags code from here on is a delivery time: the excess is ms after the store time."""
OTHER_BYTES = (
    "the file system returned other bytes than were written. Nothing was appended; check its log, "
    "and run the write again"
)
_WORD_BYTES = 8
_READ_BYTES = 4 << 20  # whole words


def rows_schema() -> Schema:
    """Return the columns that a part has for each of its records."""
    return pa.schema(
        [
            ("size", pa.int32()),  # bytes of the record
            ("queue", pa.int32()),  # number of the queue in StagedPart.queues
            ("rank", pa.int32()),  # number of the part's earlier messages in the same queue
            ("store_timestamp_at", pa.int16()),  # position of the store time in the record
            ("tags_code", pa.int64()),  # of the queue's unit; see RELATIVE_TO_STORE_TIME
            ("key_hashes", pa.list_(pa.int32())),  # of the index entries, in order
        ]
    )


class StagedChunk(NamedTuple):
    """Whole records that are read in one piece."""

    file: int
    messages: int
    bytes: int
    checksum: int


class QueueCount(NamedTuple):
    """A queue, and the number of a part's messages for it."""

    topic: str
    queue_id: int
    messages: int


@dataclass(frozen=True)
class StagedPart:
    """The files that one task staged. Plain values only, so that it can be pickled.

    Attributes
    ----------
    directory, name
        The files' directory, and the prefix of their names; empty if there are none.
    property_crc
        Whether records end with ``__CRC32#``.
    """

    partition_id: int
    directory: str
    name: str
    rows_bytes: int
    rows_checksum: int
    messages: int
    chunks: tuple[StagedChunk, ...]
    queues: tuple[QueueCount, ...]
    topics: tuple[tuple[str, int], ...] = ()
    delay_levels: tuple[int, ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()
    host: str = ""
    property_crc: bool = False
    is_multi_dispatch: bool = False

    @property
    def records_bytes(self) -> int:
        """Bytes of all records."""
        return sum(chunk.bytes for chunk in self.chunks)

    def records_path(self, file: int) -> str:
        """Return the path of a file of records."""
        return records_path(self.directory, self.name, file)

    @property
    def rows_path(self) -> str:
        """Path of the file of rows."""
        return os.path.join(self.directory, self.name + ROWS_SUFFIX)


def records_path(directory: str, name: str, file: int) -> str:
    """Return the path of a part's file of records."""
    return os.path.join(directory, f"{name}.{file:05d}.records")


class StagedBlock(NamedTuple):
    """Some records of a part, in columns."""

    sizes: Int32s
    queue: Int32s
    rank: Int32s
    store_timestamp_at: npt.NDArray[np.int16]
    tags_code: Int64s
    key_count: Int64s
    """Number of index entries."""
    key_hash: Int32s
    """Concatenated hashes of all rows; empty in a `part`."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all records."""
        return int(self.sizes.sum(dtype=np.int64))

    def part(self, first: int, stop: int) -> StagedBlock:
        """Return the rows ``[first, stop)``."""
        rows = slice(first, stop)
        return StagedBlock(
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
        The rows cannot be read, or contradict the part, so the files are not the part's.
    """
    if part.messages == 0:
        return
    path = part.rows_path
    total_bytes = messages = 0
    try:
        check_regular(path)
        with pa.memory_map(os.fsencode(path)) as source, pa.ipc.open_stream(source) as rows:
            for batch in rows:
                block = _block(batch)
                _check_block(block, part, path)
                yield block
                total_bytes += block.total_bytes
                messages += batch.num_rows
    except (pa.ArrowInvalid, OSError) as err:
        raise StoreFormatError(f"not what a task staged: {err}", path) from err
    if (total_bytes, messages) != (part.records_bytes, part.messages):
        raise StoreFormatError(
            f"{messages} messages of {total_bytes} bytes; the task staged {part.messages} of "
            f"{part.records_bytes}",
            path,
        )


def _block(batch: RecordBatch) -> StagedBlock:
    *columns, key_hashes = batch.columns
    size, queue, rank, store_timestamp_at, tags_code = (column.to_numpy() for column in columns)
    key_count = np.diff(key_hashes.offsets.to_numpy()).astype(np.int64)
    key_hash = key_hashes.values.to_numpy()
    return StagedBlock(
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
        raise StoreFormatError("a record has no bytes", path)
    if int(block.queue.min()) < 0 or int(block.queue.max()) >= len(part.queues):
        raise StoreFormatError("a queue that the task did not name", path)
    if int(block.key_count.sum()) != len(block.key_hash):
        raise StoreFormatError("keys that belong to no record", path)
    if int(block.key_hash.min(initial=0)) < 0:
        raise StoreFormatError("a negative hash of a key", path)


def check_staged_files(part: StagedPart) -> None:
    """Raise if files of a part are missing or not whole, or the rows are not as staged.

    `StagedRecordsReader` checks the records.

    Raises
    ------
    StoreWriteError
        Files are missing or not whole; the text says where they were staged.
    StoreFormatError
        The rows are not those that were staged.
    StoreReadError
        The rows cannot be read.
    """
    for path, length in _expected_files(part).items():
        try:
            found = os.path.getsize(path)
        except OSError as err:
            reason = (
                f"a task on {part.host or 'another machine'} staged this file, but it is not "
                f"visible here ({err.strerror}): tasks and driver must share the store's file "
                "system"
            )
            raise StoreWriteError(reason, path) from err
        if found != length:
            raise StoreWriteError(f"has {found} bytes, but the task staged {length}", path)
    try:
        is_other = part.messages and file_checksum(part.rows_path) != part.rows_checksum
    except OSError as err:
        raise read_error(err, part.rows_path) from err
    if is_other:
        raise StoreFormatError(f"not what a task staged: {OTHER_BYTES}", part.rows_path)


def _expected_files(part: StagedPart) -> dict[str, int]:
    """Return the length of each file, by path."""
    if part.messages == 0:
        return {}
    expected = {part.rows_path: part.rows_bytes}
    for chunk in part.chunks:
        path = part.records_path(chunk.file)
        expected[path] = expected.get(path, 0) + chunk.bytes
    return expected


# The checksum is the sum of the bytes as 64-bit little-endian numbers, modulo 2**64, the last one
# padded with zeros. It takes at most a tenth of a CRC's time, and detects what a disk or a network
# file system can do to a file between two processes: pages that are zeros, or out of date.
def checksum(data: npt.NDArray[np.uint8]) -> int:
    """Return the checksum of bytes."""
    whole = len(data) - len(data) % _WORD_BYTES
    rest = int.from_bytes(data[whole:].tobytes(), "little")
    return (int(data[:whole].view("<u8").sum(dtype=np.uint64)) + rest) % (1 << 64)


def file_checksum(path: str) -> int:
    """Return the checksum of a file.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    total = 0
    with os.fdopen(open_to_read(path), "rb") as file:
        while data := file.read(_READ_BYTES):
            total += checksum(np.frombuffer(data, np.uint8))
    return total % (1 << 64)
