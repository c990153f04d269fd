# SPDX-License-Identifier: Apache-2.0
"""Stage the records of one task; see `staged_part` for the files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.arrow import pa
from store_core.codec.group_ranks import group_ranks
from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.record_frames import KnownFrames, RecordFrames
from store_core.files.file_writing import (
    flush_directory,
    make_directory,
    sync_file,
    write_error,
    write_errors,
)
from store_core.index.index_entries import entries_by_row
from store_core.queue.dispatch_request import DispatchDecoder
from store_core.staged_commit.staged_part import (
    RELATIVE_TO_STORE_TIME,
    ROWS_SUFFIX,
    QueueCount,
    file_checksum,
    rows_schema,
)
from store_core.staged_commit.staged_records import StagedRecordsWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.codec.record_encoder import EncodedRecords
    from store_core.staged_commit.staged_part import StagedChunk

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

_ROWS_AT_ONCE = 1 << 18
_MOUNTS = "/proc/self/mountinfo"
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"})
_DEVICE_FIELD = 2


class StagedFiles(NamedTuple):
    """The content of a part's files; see `StagedPart` for the attributes."""

    rows_bytes: int = 0
    rows_checksum: int = 0
    messages: int = 0
    chunks: tuple[StagedChunk, ...] = ()
    queues: tuple[QueueCount, ...] = ()
    is_multi_dispatch: bool = False


class StagedPartWriter:
    """Writes the files of a part.

    Parameters
    ----------
    delay_levels_ms
        Delay of each level, level 1 first.

    Raises
    ------
    StoreWriteError
        A file cannot be created or written.
    """

    def __init__(
        self, directory: str, name: str, delay_levels_ms: Sequence[int], *, with_tags: bool = False
    ) -> None:
        self._is_multi_dispatch, self._with_tags = False, with_tags
        self._decoder = DispatchDecoder(delay_levels_ms)
        self._directory, self._name = directory, name
        self._rows_path = os.path.join(directory, name + ROWS_SUFFIX)
        self._messages = 0
        self._codes: dict[tuple[str, int], int] = {}
        self._counts: list[int] = []
        self._held: list[Any] = []
        try:
            make_directory(directory)
            # A committer on this machine sees the files in memory, and is lost along with them.
            self._is_forced = not is_on_this_machine(directory)
            self._records = StagedRecordsWriter(directory, name, is_forced=self._is_forced)
            self._sink = pa.OSFile(os.fsencode(self._rows_path), "wb")
        except OSError as err:
            raise write_error(err, directory) from err
        self._rows = pa.ipc.new_stream(self._sink, rows_schema())

    def append(
        self,
        records: EncodedRecords,
        topics: Sequence[str],
        topic_code: Int32s,
        queue_id: Int32s,
        known_properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a block of records.

        Raises
        ------
        StoreWriteError
            The disk is full, or another failure.
        """
        if known_properties is None:
            columns = _decoded(records)
        else:
            columns = _known(records, topics, topic_code, queue_id, known_properties)
        tags_code, key_hashes = self._dispatch_columns(records, columns)
        queue, rank = self._number(topics, topic_code, queue_id)
        rows = [
            pa.array(records.sizes.astype(np.int32)),
            pa.array(queue),
            pa.array(rank),
            pa.array((records.store_timestamp_at - records.starts).astype(np.int16)),
            pa.array(tags_code),
            key_hashes,
        ]
        self._held.append(pa.RecordBatch.from_arrays(rows, schema=rows_schema()))
        self._messages += len(records)
        self._records.write(records.block, records.sizes)
        if sum(batch.num_rows for batch in self._held) >= _ROWS_AT_ONCE:
            with write_errors(self._rows_path):
                self._write_rows()

    def finish(self) -> StagedFiles:
        """Complete the files; those that another machine may read are forced, with their names.

        Raises
        ------
        StoreWriteError
            The files cannot be written or forced.
        """
        with write_errors(self._rows_path):
            self._write_rows()
            self._rows.close()
            self._sink.close()
        chunks = self._records.finish()
        with write_errors(self._rows_path):
            if self._is_forced:
                sync_file(self._rows_path)
                flush_directory(self._directory)
            rows_bytes = os.path.getsize(self._rows_path)
            rows_checksum = file_checksum(self._rows_path)
        return StagedFiles(
            rows_bytes=rows_bytes,
            rows_checksum=rows_checksum,
            messages=self._messages,
            chunks=chunks,
            queues=tuple(QueueCount(*key, n) for key, n in zip(self._codes, self._counts)),
            is_multi_dispatch=self._is_multi_dispatch,
        )

    def close(self) -> None:
        """Close the files; their content is valid only after `finish`."""
        self._sink.close()
        self._records.close()

    def _write_rows(self) -> None:
        """Write rows as one batch, as a commit visits slots and queues once per batch."""
        held, self._held = self._held, []
        if held:
            table = pa.Table.from_batches(held).combine_chunks()
            for batch in table.to_batches():
                self._rows.write_batch(batch)

    def _dispatch_columns(
        self, records: EncodedRecords, columns: MessageColumns
    ) -> tuple[Int64s, Any]:
        """Return what queues and index need of each record, so that a commit decodes none.

        It is the same code as for records that are in a log.
        """
        requests = self._decoder.decode_columns(columns)
        if requests.light.any():
            self._is_multi_dispatch = True
            requests = requests.take(~requests.light)
        hashes, row = entries_by_row(columns, with_tags=self._with_tags)
        bounds = np.searchsorted(row, np.arange(len(records) + 1, dtype=row.dtype))
        offsets = pa.array(bounds.astype(np.int32))
        return requests.tags_code, pa.ListArray.from_arrays(offsets, pa.array(hashes))

    def _number(
        self, topics: Sequence[str], topic_code: Int32s, queue_id: Int32s
    ) -> tuple[Int32s, Int32s]:
        """Return each row's queue number and its rank in the queue, over the whole part."""
        key = topic_code.astype(np.int64) << 32 | queue_id.view(np.uint32)
        encoded = pa.array(key).dictionary_encode()
        local: Int32s = encoded.indices.to_numpy()
        keys = encoded.dictionary.to_numpy()
        codes = np.array([self._code(topics[k >> 32], k & 0xFFFFFFFF) for k in keys.tolist()])
        ranks, counts = group_ranks(local, len(keys))
        before = np.array([self._counts[code] for code in codes.tolist()], np.int64)
        for code, count in zip(codes.tolist(), counts.tolist()):
            self._counts[code] += count
        return codes.astype(np.int32)[local], (before[local] + ranks).astype(np.int32)

    def _code(self, topic: str, queue_id: int) -> int:
        code = self._codes.setdefault((topic, queue_id), len(self._codes))
        if code == len(self._counts):
            self._counts.append(0)
        return code


def _decoded(records: EncodedRecords) -> MessageColumns:
    """Return the columns of records, decoded from them."""
    starts = records.starts
    records.patch(np.zeros_like(starts), starts, RELATIVE_TO_STORE_TIME)
    return MessageColumns(RecordFrames(records.block, 0, starts))


def _known(
    records: EncodedRecords,
    topics: Sequence[str],
    topic_code: Int32s,
    queue_id: Int32s,
    properties: Mapping[str, Any],
) -> MessageColumns:
    """Return the columns of records without decoding, from known fields and properties."""
    count = len(records)
    fields: dict[str, npt.NDArray[Any]] = {
        "commit_log_offset": records.starts,
        "total_size": records.sizes.astype(np.int32),
        "sys_flag": records.sys_flags(),
        "queue_id": queue_id,
        "queue_offset": np.zeros(count, np.int64),
        "store_timestamp": np.full(count, RELATIVE_TO_STORE_TIME, np.int64),
    }
    names = pa.array([name.encode() for name in topics], pa.binary())
    return MessageColumns(
        KnownFrames(fields),
        known_properties=properties,
        known_topics=pa.DictionaryArray.from_arrays(pa.array(topic_code), names),
    )


def is_on_this_machine(path: str) -> bool:
    """Return whether a path is on a file system that is known to be local to this machine.

    Other processes read such files from the same kernel's memory, which is lost only when the
    machine stops, and those processes with it.
    """
    try:
        device = os.stat(path).st_dev
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            kinds = {_kind(line) for line in mounts if _device(line) == device}
    except (OSError, ValueError, IndexError):
        return False
    return bool(kinds) and kinds <= _LOCAL


def _device(line: str) -> int:
    """Return the device of a mount, as of ``36 35 98:0 /mnt1 /mnt2 rw - ext3 /dev/root rw``."""
    major, minor = line.split()[_DEVICE_FIELD].split(":")
    return os.makedev(int(major), int(minor))


def _kind(line: str) -> str:
    """Return the file system's name, which follows a ``-`` on its own."""
    return line.partition(" - ")[2].split()[0]
