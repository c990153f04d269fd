# SPDX-License-Identifier: Apache-2.0
"""Tables that need no decoded message: queues, units, index, files, offsets, checkpoint."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Callable

from rmqsource.errors import DataLossError
from rmqsource.metadata import (
    checkpoint,
    consume_queue,
    consumer_offsets,
    delayed,
    index,
    queues,
    segments,
    timers,
    topics,
    transactions,
)
from rmqsource.scan.store_versions import VANISHED_ATTEMPTS
from store_core.arrow import pa
from store_core.errors import FileVanishedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Columns, Table
    from store_core.snapshot.store_snapshot import StoreSnapshot

    TableRows = Callable[[StoreSnapshot, SourceOptions], Iterator[Table]]

METADATA_TABLES: dict[str, TableRows] = {
    "consume_queue": consume_queue.rows,
    "index": index.rows,
    "segments": segments.rows,
    "topics": topics.rows,
    "queues": queues.rows,
    "consumer_offsets": consumer_offsets.rows,
    "delayed": delayed.rows,
    "timers": timers.rows,
    "transactions": transactions.rows,
    "checkpoint": checkpoint.rows,
}
"""Table -> function that yields ``pa.Table`` parts of any length with all columns."""


def read_metadata(table: str, snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Columns]:
    """Yield batches of a table: Arrow arrays by column, in the order of ``TABLES``.

    Batches have 1 to ``options.batch_rows`` rows; a table without rows gives no batch.

    Raises
    ------
    StoreError
        In mode ``FAILFAST``, a part is damaged; in every mode, the store cannot be read.
    """
    is_begun = False
    for attempt in range(VANISHED_ATTEMPTS):
        current = snapshot if attempt == 0 else snapshot.reopened()
        try:
            with ExitStack() as opened:
                if current is not snapshot:
                    opened.enter_context(current)
                parts = METADATA_TABLES[table](current, options)
                for batch in batches_of(parts, options.batch_rows):
                    is_begun = True
                    yield batch
                return
        except (DataLossError, FileVanishedError):  # both if files are deleted while they are read
            if is_begun or attempt + 1 == VANISHED_ATTEMPTS:
                raise


def batches_of(parts: Iterable[Table], batch_rows: int) -> Iterator[Columns]:
    """Yield batches by column; small parts, such as those of small queues, are joined."""
    pending: list[Table] = []
    held = 0
    for part in parts:
        pending.append(part)
        held += part.num_rows
        if held >= batch_rows:
            yield from _cut(pending, batch_rows)
            pending, held = [], 0
    if held:
        yield from _cut(pending, batch_rows)


def _cut(parts: list[Table], batch_rows: int) -> Iterator[Columns]:
    whole = pa.concat_tables(parts).combine_chunks()
    for batch in whole.to_batches(max_chunksize=batch_rows):
        yield dict(zip(batch.schema.names, batch.columns))
