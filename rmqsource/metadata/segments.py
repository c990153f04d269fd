"""Table ``segments``: one row per file of the parts that are kept in numbered files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqsource.metadata.columns import NO_TIME, table_part
from rmqsource.metadata.queue_facts import NO_RECORD, store_times
from rmqsource.metadata.segment_files import (
    StoreFile,
    commit_log_files,
    index_files,
    other_files,
)
from rmqsource.metadata.segment_queue_files import queue_files
from store_core.layout.store_paths import CONSUME_QUEUE_EXT_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Table
    from store_core.store_snapshot import StoreSnapshot


def rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Table]:
    """Yield the files, by kind and place.

    Kinds: ``commitlog``, ``consumequeue``, ``batchconsumequeue``, ``consumequeue_ext``,
    ``index``, ``timerlog``, ``compactionLog``, ``compactionCq``: the directory that holds them.

    What is known:

    - ``commitlog``: ``used_bytes`` up to the end of the log; a full segment is used wholly, the
      blank record that closes it included. The first store time. The last one and the number of
      messages are null, as they would need a walk through all records.
    - queues: ``used_bytes`` up to the last unit of the snapshot, the messages whose records are
      in the log, and the store times of the first and the last of them.
    - ``index``: ``used_bytes`` up to the last entry, and the times in the header. Messages are
      null: a message has as many entries as keys.
    - the others: the length only.

    Every file of log and queues is opened to read its first record or the ends of its units, and
    a queue's last three files once more to find its end; index files for their headers; the
    others are not opened. In modes other than ``FAILFAST`` a damaged queue or index file is
    listed with what its name and length say.
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
    """Return first and last times, from the records where a file names them."""
    records = [file.first_record for file in files] + [file.last_record for file in files]
    known = [file.first_ms for file in files] + [file.last_ms for file in files]
    of_records = np.array(records, np.int64)
    times = store_times(snapshot, options, of_records)
    given = np.array([NO_TIME if time is None else time for time in known], np.int64)
    times = np.where(of_records == NO_RECORD, given, times)
    return times[: len(files)], times[len(files) :]
