# SPDX-License-Identifier: Apache-2.0
"""Proves up to which log offset every record has its queue unit, while other processes write.

Files read one after the other show different moments: the last one says nothing of those read
before it. So the proof is taken first, and any queue read afterwards has at least the units that
the proof promises.

The evidence:

- A record in the index was in its queue before: RocketMQ dispatches record by record, in log order,
  to the queue, then to the index (also with ``enableBuildConsumeQueueConcurrently``: several
  threads prepare, one dispatches in order). `MessageStore` does so a round at a time.
- A record in a queue was dispatched, and with RocketMQ so were all records before it.
  `MessageStore` writes the units of a round to one queue after the other, so in a store that is
  being written the last round of bytes before the record is not proved.
- A commit of the sink writes to index and queues at the same time: records of a job whose journal
  is open are not proved.
- After a crash, only what the checkpoint says was flushed, minus recovery's safety margin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.log.commit_log import last_begun_by
from store_core.queue.dispatch_request import ROUND_BYTES
from store_core.staged_commit.staging import open_intents
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Callable

    from store_core.files.store_directory import StoreDirectory
    from store_core.queue.queue_range import QueueRange
    from store_core.read.readable_store import ReadableStore

    RangeOf = Callable[[str, int], QueueRange]

_NEAR_BYTES = 1 << 20
"""A tail up to this size is scanned; only a longer one is narrowed by reading every queue."""


def proved_dispatch(
    store: ReadableStore,
    directory: StoreDirectory,
    range_of: RangeOf,
    near: Iterable[tuple[str, int]],
    margin_ms: int,
) -> int:
    """Return a log offset below which no unit is missing from queues read from now on.

    ``margin_ms`` is how far the checkpoint's times may be ahead of the units on the disk.
    """
    if store.state is StoreState.CRASHED:
        return min(_flushed(store, margin_ms), _last_end(range_of, store.queue_paths))
    journals = [commit.start_offset for commit in open_intents(directory).values()]
    known = _indexed(store)
    behind = ROUND_BYTES if store.state is StoreState.LIVE else 0
    if store.end_offset - known > behind:
        known = max(known, _last_end(range_of, near) - behind)
    if store.end_offset - known > behind + _NEAR_BYTES:
        known = max(known, _last_end(range_of, store.queue_paths) - behind)
    return max(min([known, store.end_offset, *journals]), 0)


def _indexed(store: ReadableStore) -> int:
    """Return the start of the newest record that is in the index; 0 if none is known."""
    for newest in store.index.files[-1:]:
        indexed = newest.header.end_phy_offset
        if store.store_timestamp_at(indexed) == newest.header.end_timestamp:
            return indexed
    return 0


def _last_end(range_of: RangeOf, queues: Iterable[tuple[str, int]]) -> int:
    """Return the end of the newest record in the given queues; 0 if there is none."""
    last = 0
    for topic, queue_id in queues:
        try:
            last = max(last, range_of(topic, queue_id).last_end)
        except (CorruptRecordError, StoreFormatError, StoreReadError):
            continue  # a damaged queue proves nothing
    return last


def _flushed(store: ReadableStore, margin_ms: int) -> int:
    """Return the offset from which recovery would dispatch again after a crash."""
    flushed_ms = store.checkpoint.min_timestamp - margin_ms if store.checkpoint else 0
    return last_begun_by(store.log, store.end_offset, flushed_ms)
