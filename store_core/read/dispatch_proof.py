"""Up to where the queues of a store hold a unit of every record, whoever writes to it meanwhile.

Files that are read one after the other are of different moments: what the last one shows says
nothing of those that were read before it. So the proof is taken first, and whatever queue is read
afterwards holds at least what the proof says.

What proves it:

- A record in the index was in its queue before: RocketMQ dispatches record by record, in the order
  of the log, to the queue, then to the index (with ``enableBuildConsumeQueueConcurrently`` too:
  what is prepared by several threads is dispatched by one, in order). `MessageStore` does so a
  round at a time.
- A record in a queue was dispatched; with RocketMQ all before it were. `MessageStore` gives the
  units of a round to one queue after the other, so in a store that is being written what lies less
  than a round before the record is not believed.
- What the sink commits goes to the index while it goes to the queues: nothing of a job whose
  journal is open is believed.
- After a crash only what the checkpoint says was flushed, less what recovery does not believe.
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
"""A tail of this size is scanned rather than narrowed by looking at every queue of the store."""


def proved_dispatch(
    store: ReadableStore,
    directory: StoreDirectory,
    range_of: RangeOf,
    near: Iterable[tuple[str, int]],
    margin_ms: int,
) -> int:
    """Return an offset of the log below which queues that are read from now on lack no unit.

    ``margin_ms``: how long units may not have been on the disk when the checkpoint named them.
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
    """Return where the newest record ends that is in one of some queues; 0 if none is."""
    last = 0
    for topic, queue_id in queues:
        try:
            last = max(last, range_of(topic, queue_id).last_end)
        except (CorruptRecordError, StoreFormatError, StoreReadError):
            continue  # it proves nothing
    return last


def _flushed(store: ReadableStore, margin_ms: int) -> int:
    """Return from where recovery would dispatch again after a crash."""
    flushed_ms = store.checkpoint.min_timestamp - margin_ms if store.checkpoint else 0
    return last_begun_by(store.log, store.end_offset, flushed_ms)
