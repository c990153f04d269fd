# SPDX-License-Identifier: Apache-2.0
"""Table ``index``: one row per entry of the index files."""

from __future__ import annotations

import logging
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from rmqsource.metadata.columns import table_part
from rmqsource.metadata.damage import skip_damaged, until_damage
from store_core.errors import CorruptRecordError, FileVanishedError, StoreFormatError
from store_core.index.index_file import IndexFile
from store_core.layout import INDEX_ENTRY, index_file_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Table
    from store_core.index.index_queries import IndexFileEntry
    from store_core.snapshot.store_snapshot import StoreSnapshot

logger = logging.getLogger(__name__)
_CHUNK_ENTRIES = 1 << 18
_MS_PER_SECOND = 1000


def rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Table]:
    """Yield the entries of all usable files in the order of their creation.

    Entries that point past the end of the log are not data and are omitted; entries of expired
    records are included. ``store_timestamp`` is the file's begin time plus whole seconds, and too
    late if the clock stepped back before that time (RocketMQ ``IndexFile.putKey``).
    """
    for unusable in snapshot.index.unusable:
        with skip_damaged("the index file", options):
            raise StoreFormatError(unusable.reason, unusable.path)
    for file in snapshot.index.files:
        what = f"index file {file.path}"
        try:
            yield from until_damage(_file_rows(snapshot, file), what, options)
        except FileVanishedError:  # its records have expired
            logger.info("%s was deleted in the meantime", what)


def _file_rows(snapshot: StoreSnapshot, file: IndexFileEntry) -> Iterator[Table]:
    sizes = snapshot.index.sizes
    if sizes is None:
        return  # no file is usable
    header = file.header
    name = PurePosixPath(file.path).name
    with snapshot.directory.open(file.path) as source:
        index_file = IndexFile(source, *sizes)
        for start in range(1, header.index_count, _CHUNK_ENTRIES):
            stop = min(start + _CHUNK_ENTRIES, header.index_count)
            entries = index_file.entries(start, stop)
            number = start + np.arange(len(entries), dtype=np.int64)
            _check(entries, number, file.path, sizes[0])
            is_data = entries["commit_log_offset"] < snapshot.end_offset
            entries, number = entries[is_data], number[is_data]
            diff = entries["time_diff_seconds"].astype(np.int64)
            diff[number == 1] = 0  # relative to the end of the previous file, so not a time
            yield table_part(
                "index",
                snapshot.directory.uri,
                len(entries),
                index_file=name,
                entry=number.astype(np.int32),
                key_hash=entries["key_hash"],
                commit_log_offset=entries["commit_log_offset"],
                time_diff_seconds=entries["time_diff_seconds"],
                store_timestamp=header.begin_timestamp + diff * _MS_PER_SECOND,
                slot=entries["key_hash"] % np.int32(sizes[0]),
                previous=entries["previous_entry"],
            )


def _check(
    entries: npt.NDArray[np.void], number: npt.NDArray[np.int64], path: str, slots: int
) -> None:
    strange = (entries["key_hash"] < 0) | (entries["commit_log_offset"] < 0)
    strange |= (entries["previous_entry"] < 0) | (entries["previous_entry"] >= number)
    bad = np.flatnonzero(strange)
    if len(bad):
        row, entry = entries[bad[0]].tolist(), int(number[bad[0]])
        position = index_file_bytes(slots, 0) + entry * INDEX_ENTRY.size
        raise CorruptRecordError(f"entry {entry} is impossible: {row}", path, position)
