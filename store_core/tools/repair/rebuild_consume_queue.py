# SPDX-License-Identifier: Apache-2.0
"""Rebuild all queues of a store from its commit log."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

from store_core.errors import StoreFormatError
from store_core.layout import QUEUE_DIRS
from store_core.log.commit_log import scan_log
from store_core.log.log_scan import Gap
from store_core.queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.dispatch_request import DispatchDecoder, DispatchRequests, concat_requests
from store_core.queue.queue_directories import (
    CONSUME_QUEUE_EXT,
    list_consume_queues,
    queue_file_sizes,
)
from store_core.queue.unit_placement import Appended, begin_of_life

if TYPE_CHECKING:
    from store_core.progress import Progress
    from store_core.queue.dispatch_request import FilterBitmapsOf
    from store_core.snapshot.store_snapshot import StoreSnapshot

_HELD_ROWS = 1 << 20  # 60 MB of columns; each queue is written to once per million records


@dataclass(frozen=True)
class RebuildOptions:
    """Properties of the queues that do not follow from the commit log.

    Attributes
    ----------
    batch_topics
        Topics with batch consume queues; if None, those with ``queue.type=BatchCQ`` in
        ``topics.json`` and those that have such queues in the source.
    consume_queue_ext
        Whether to write extensions (``enableConsumeQueueExt``); if None, if the source has any.
    filter_bitmaps
        Returns the filter bitmaps of records for their extension units; if None, they have none.
        Readers treat a message without a bitmap as a possible match, so None is always safe.
    warn
        Called with a message about queues that can have no directory.
    """

    batch_topics: frozenset[str] | None = None
    consume_queue_ext: bool | None = None
    filter_bitmaps: FilterBitmapsOf | None = None
    warn: Callable[[str], None] = logging.getLogger(__name__).warning


class RebuildResult(NamedTuple):
    """Result of a rebuild.

    Attributes
    ----------
    earlier
        Records of each queue from before it began at 0 again; they are in no new queue.
    """

    records: int
    queues: int
    units: int
    known: int
    unusable: int
    moved: int
    contradicted: int
    earlier: dict[tuple[str, int], int]
    moved_from: dict[tuple[str, int], int]
    refused: dict[tuple[str, int], int]
    gaps: tuple[Gap, ...]


def rebuild_consume_queues(
    view: StoreSnapshot,
    target_root: str,
    options: RebuildOptions | None = None,
    progress: Progress | None = None,
) -> RebuildResult:
    """Read the log of a store and write all its queues below another directory.

    The source is only read. File sizes are those of ``view.config``, else those of the source's own
    queues, else RocketMQ's defaults.

    Parameters
    ----------
    progress
        Called with the bytes of the log done and their total: after every batch, and at the end.

    Raises
    ------
    StoreFormatError
        There are queues below ``target_root`` already.
    StoreWriteError
        A file cannot be created or written; what was written is incomplete.
    """
    root = Path(target_root)
    for name in QUEUE_DIRS:
        if (root / name).is_dir() and any((root / name).iterdir()):
            raise StoreFormatError("there are queues already; give another directory", str(root))
    rebuild = _Rebuild(view, root, options or RebuildOptions())
    decoder = DispatchDecoder(view.config.delay_levels_ms, rebuild.filter_bitmaps)
    begin = max(view.min_phy_offset, 0)
    total = max(view.max_phy_offset - begin, 0)
    records = 0
    held: list[DispatchRequests] = []
    gaps: list[Gap] = []
    for part in scan_log(view.log, begin, view.end_offset):
        if isinstance(part, Gap):
            if held:
                rebuild.write(concat_requests(held))
                held = []
            rebuild.pass_gap()
            gaps.append(part)
            continue
        records += len(part)
        held.append(decoder.decode(part).queued())
        if sum(map(len, held)) >= _HELD_ROWS:
            rebuild.write(concat_requests(held))
            held = []
        if progress is not None:
            last = int(part.column("commit_log_offset")[-1]) + int(part.column("total_size")[-1])
            progress(last - begin, total)
    if held:
        rebuild.write(concat_requests(held))
    rebuild.flush()
    if progress is not None:
        progress(total, total)
    return rebuild.result(records, tuple(gaps))


class _Rebuild:
    """The queues below the target; each is created with its first rows."""

    def __init__(self, view: StoreSnapshot, root: Path, options: RebuildOptions) -> None:
        sizes = queue_file_sizes(view.directory, view.config)
        batch_topics = _batch_topics(view, options)
        with_ext = options.consume_queue_ext
        if with_ext is None:
            with_ext = bool(list_consume_queues(view.directory, CONSUME_QUEUE_EXT).queues)
        config = replace(
            view.config,
            mapped_file_size_consume_queue=sizes.simple,
            mapped_file_size_consume_queue_ext=sizes.ext,
            mapper_file_size_batch_consume_queue=sizes.batch,
            enable_consume_queue_ext=with_ext,
            enable_multi_dispatch=True,
        )
        self._counts = Appended()
        self._earlier: dict[tuple[str, int], int] = {}
        self._moved_from: dict[tuple[str, int], int] = {}
        self._may_live_again: set[tuple[str, int]] = set()
        self._queues = ConsumeQueueStore(
            str(root),
            config,
            is_batch_topic=batch_topics.__contains__,
            filter_bitmaps=options.filter_bitmaps,
            warn=options.warn,
        )
        self._from_zero = view.min_phy_offset == 0

    @property
    def filter_bitmaps(self) -> FilterBitmapsOf | None:
        return self._queues.filter_bitmaps

    def pass_gap(self) -> None:
        """Note that from here on, queues may have lost their first records."""
        self._from_zero = False

    def write(self, requests: DispatchRequests) -> None:
        for key, rows in self._queues.by_queue(requests):
            self._write_queue(key, self._of_last_life(key, rows))

    def _write_queue(self, key: tuple[str, int], rows: DispatchRequests) -> None:
        appended = self._queues.put_queue(key, rows, from_zero=self._from_zero)
        self._counts = Appended(*(a + b for a, b in zip(self._counts, appended)))
        queue = self._queues.find_simple(*key)
        if queue is None:
            return
        if appended.units > appended.moved:  # these confirm the places before them
            self._moved_from.pop(key, None)
        if appended.moved:
            self._moved_from.setdefault(key, queue.max_offset - appended.moved)
            if int(rows.queue_offset[-1]) == 0:
                self._may_live_again.add(key)

    def _of_last_life(self, key: tuple[str, int], rows: DispatchRequests) -> DispatchRequests:
        """Return the rows since a topic was recreated; drop what its queue had before."""
        begin = begin_of_life(rows.queue_offset)
        if begin is None or self._queues.is_batch_topic(key[0]):
            return rows
        queue, count = self._queues.find_simple(*key), begin
        if queue is not None:
            count += queue.max_offset - queue.min_offset
            queue.truncate(0)
            self._moved_from.pop(key, None)
        if count:
            self._earlier[key] = self._earlier.get(key, 0) + count
        return rows.take(slice(begin, None))

    def flush(self) -> None:
        self._queues.flush()

    def result(self, records: int, gaps: tuple[Gap, ...]) -> RebuildResult:
        queues = self._queues
        if not gaps:  # a last record alone is belied by those before it: no gap explains it
            for key in [key for key in self._moved_from if self._is_last_alone(key)]:
                del self._moved_from[key]
        return RebuildResult(
            records,
            len(queues.queues()),
            *self._counts,
            self._earlier,
            self._moved_from,
            queues.refused,
            gaps,
        )

    def _is_last_alone(self, key: tuple[str, int]) -> bool:
        queue, start = self._queues.find_simple(*key), self._moved_from[key]
        if key in self._may_live_again:
            return False
        return queue is not None and queue.min_offset + 1 < start == queue.max_offset - 1


def _batch_topics(view: StoreSnapshot, options: RebuildOptions) -> frozenset[str]:
    if options.batch_topics is not None:
        return options.batch_topics
    configs = (view.topic_configs or {}).values()
    named = {config.topic_name for config in configs if config.has_batch_queues}
    return frozenset(named | {topic for topic, _ in view.batch_queue_paths})
