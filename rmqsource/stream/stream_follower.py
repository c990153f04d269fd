# SPDX-License-Identifier: Apache-2.0
"""All stores of a stream: where the next batch ends, within its limits."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqsource.errors import StreamDataLossError
from rmqsource.options.source_options import check_commit_log_paths
from rmqsource.scan.predicate import ScanPredicate
from rmqsource.scan.store_versions import open_snapshot, store_config
from rmqsource.stream.batch_cut import BatchBudget, count_messages, shares
from rmqsource.stream.followed_store import FollowedStore, StreamStart
from rmqsource.stream.stream_offset import StreamOffset, check_selection, selection_of
from store_core.errors import StoreNotFoundError
from store_core.files.store_directory import expand_paths

if TYPE_CHECKING:
    from typing import Callable

    from rmqsource.options.source_options import SourceOptions
    from rmqsource.stream.followed_store import Waiting


class StreamFollower:
    """Follows stores; not thread-safe."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options, self._clock = options, clock
        self._config = store_config(options)
        self._counted = ScanPredicate(
            topics=None if options.topics is None else frozenset(options.topics),
            topic_pattern=options.topic_pattern,
            queue_ids=None if options.queue_ids is None else frozenset(options.queue_ids),
        )
        self._selection = selection_of(options)
        self._start = StreamStart.from_options(options)
        self._stores: dict[str, FollowedStore] = {}
        self._target: dict[str, int] | None = None
        self._last_batch: float | None = None
        self._reached: StreamOffset | None = None
        self._idle: list[str] = []

    @property
    def initial(self) -> StreamOffset:
        """The offset before the first batch, whose end says where the stores begin."""
        return StreamOffset({}, self._selection, is_initial=True)

    def pin_target(self) -> None:
        """Let the stream end where the stores end now (``Trigger.AvailableNow``)."""
        target = {}
        for path in self._paths():
            end = self._store(path).end_now()
            if end is not None:
                target[path] = end
        self._target = target

    def next_offset(self, start: StreamOffset, *, limited: bool) -> StreamOffset:
        """Return where the next batch ends; ``start`` itself if there is no batch."""
        check_selection(start, self._selection)
        paths = self._paths()
        waiting = self._look(start, paths)
        is_idle = len(waiting) == len(paths) and all(part.is_empty for part in waiting.values())
        self._idle = paths if is_idle else []
        self._reached = start
        if limited and not self._is_due(start, waiting):
            return start
        by_bytes = [part.bytes_waiting for part in waiting.values()]
        options = self._options
        messages = shares(options.max_offsets_per_trigger if limited else None, by_bytes)
        log_bytes = shares(options.max_bytes_per_trigger if limited else None, by_bytes)
        ends = {
            path: self._store(path).cut(part, BatchBudget(*budget))
            for (path, part), budget in zip(waiting.items(), zip(messages, log_bytes))
        }
        if all(end is start.stores.get(path) for path, end in ends.items()):
            return start
        self._last_batch = self._clock()
        kept = {path: replace(store, begin=None) for path, store in start.stores.items()}
        moved = {p: e for p, e in ends.items() if e is not None and e is not start.stores.get(p)}
        self._reached = StreamOffset({**kept, **moved}, self._selection)
        return self._reached

    def is_idle(self) -> bool:
        """Return whether `next_offset` returned no batch and would surely still return none."""
        return (
            bool(self._idle)
            and self._paths() == self._idle
            and all(self._stores[path].is_unchanged() for path in self._idle)
        )

    def reported(self) -> StreamOffset | None:
        """Return how far the stores go, with the messages waiting past the last batch."""
        if self._reached is None or self._reached.is_initial:
            return None
        stores = {
            path: self._store(path).reported(read) for path, read in self._reached.stores.items()
        }
        known = {path: store for path, store in stores.items() if store is not None}
        return StreamOffset(known, self._selection)

    def _look(self, start: StreamOffset, paths: list[str]) -> dict[str, Waiting]:
        self._check_dropped(start, paths)
        found = {}
        for path in paths:
            offset = start.stores.get(path)
            is_late = offset is None and not start.is_initial
            if is_late and self._target is not None and path not in self._target:
                continue  # added after the query began
            waiting = self._store(path).look(offset, self._start if start.is_initial else None)
            if waiting is not None:
                found[path] = self._until_target(path, waiting)
        return found

    def _until_target(self, path: str, waiting: Waiting) -> Waiting:
        """Return what waits up to the target, if the query has one."""
        if self._target is None:
            return waiting
        return waiting._replace(end=min(waiting.end, self._target.get(path, waiting.start)))

    def _paths(self) -> list[str]:
        """Return the present stores; a glob may match more of them at each call."""
        paths = []
        for given in self._options.paths:
            try:
                paths += expand_paths([given])
            except StoreNotFoundError:
                if self._options.fail_on_data_loss:
                    raise
        check_commit_log_paths(self._options, tuple(paths))
        return list(dict.fromkeys(paths))

    def _check_dropped(self, start: StreamOffset, paths: list[str]) -> None:
        """Raise for a store of earlier batches that is no longer among the paths."""
        for path, store in start.stores.items():
            if path not in paths and self._options.fail_on_data_loss:
                raise StreamDataLossError(
                    path,
                    f"it was read up to offset {store.offset}, and option 'path' no longer names "
                    "or matches it",
                    "it is skipped until it is named again",
                )

    def _is_due(self, start: StreamOffset, waiting: dict[str, Waiting]) -> bool:
        """Return whether enough messages wait for a batch, or the trigger delay is over."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or start.is_initial:
            return True
        if self._last_batch is None:
            self._last_batch = self._clock()
        waited_ms = (self._clock() - self._last_batch) * 1000
        if waited_ms >= self._options.max_trigger_delay_ms:
            return True
        found = 0
        for path, part in waiting.items():
            if part.bytes_waiting and found < least:
                with open_snapshot(path, self._config, part.end) as snapshot:
                    found += count_messages(
                        snapshot, part.start, part.end, self._counted, least - found
                    )
        return found >= least

    def _store(self, path: str) -> FollowedStore:
        if path not in self._stores:
            self._stores[path] = FollowedStore(path, self._options, self._config, self._counted)
        return self._stores[path]
