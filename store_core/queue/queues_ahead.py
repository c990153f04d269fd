"""Read queues of a remote store before they are asked for: each takes a chain of requests."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import StoreError
from store_core.queue.queue_range import queue_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from store_core.log.commit_log import CommitLog
    from store_core.queue.stored_units import StoredUnits

    QueueKey = tuple[str, int]

QUEUES_AT_ONCE = 8
"""What is read of so many is kept until it is asked for: 6 MB each at the default size."""


def queues_ahead(
    keys: Iterable[QueueKey],
    open_queue: Callable[[str, int], StoredUnits | None],
    log: CommitLog,
    end_offset: int,
    *,
    units: bool = False,
    whole: bool = False,
) -> Iterator[QueueKey]:
    """Yield the keys of queues; some of those that come next are read meanwhile.

    Reading them again costs no request: what is read of a remote store is kept for a while.

    Parameters
    ----------
    keys, open_queue
        The queues.
    log, end_offset
        The log, and where it ends.
    units, whole
        All units are needed, not only where they begin and end; also what lies after them.
    """
    wanted = list(keys)
    if log.directory.is_local:
        yield from wanted
        return
    from store_core.files.remote_requests import at_once  # noqa: PLC0415 (starts threads)

    def look(key: QueueKey) -> None:
        with suppress(StoreError):  # whoever reads it is told
            queue = open_queue(*key)
            if queue is not None:
                _read(queue, log.twin(), end_offset, units=units, whole=whole)

    for at in range(0, len(wanted), QUEUES_AT_ONCE):
        some: Sequence[QueueKey] = wanted[at : at + QUEUES_AT_ONCE]
        at_once(look, some)
        yield from some


def _read(queue: StoredUnits, log: CommitLog, end_offset: int, *, units: bool, whole: bool) -> None:
    if whole:  # a few requests for all, instead of a chain that looks for the end
        queue.read_units(min(queue.file_boundaries(), default=0), queue.stored_end())
    held = queue_range(queue, log, end_offset)
    if not (units or whole) or held.max_offset <= held.min_offset:
        return
    found = queue.read_units(held.min_offset, held.max_offset)
    for offset in (int(found["commit_log_offset"][row]) for row in (0, -1)):
        segment = log.segments.find(offset)
        if segment is not None:
            log.frames_at(segment, np.array([offset]), end_offset)
