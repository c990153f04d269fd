"""Make all queues of a store anew from its commit log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from store_core.errors import StoreFormatError
from store_core.layout.store_paths import QUEUE_DIRS
from store_core.log.log_scan import Gap, scan_log
from store_core.queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.dispatch_request import DispatchDecoder, DispatchRequests, concat_requests
from store_core.queue.queue_directories import (
    CONSUME_QUEUE_EXT,
    list_consume_queues,
    queue_file_sizes,
)
from store_core.queue.unit_placement import Appended

if TYPE_CHECKING:
    from store_core.progress import Progress
    from store_core.queue.dispatch_request import FilterBitmapsOf
    from store_core.store_snapshot import StoreSnapshot

_HELD_ROWS = 1 << 20  # 60 MB of columns; so each queue is written to once in a million records


@dataclass(frozen=True)
class RebuildOptions:
    """What the commit log does not say about its queues.

    Attributes
    ----------
    batch_topics
        Topics with batch consume queues; None: those with ``queue.type=BatchCQ`` in
        ``topics.json`` and those that have such queues in the source.
    consume_queue_ext
        Write extensions (``enableConsumeQueueExt``); None: if the source has any.
    filter_bitmaps
        Gives the filter bitmaps of records for their extension units; None: no bitmaps. A reader
        takes a message without a bitmap for one that may match, so none is always right.
    """

    batch_topics: frozenset[str] | None = None
    consume_queue_ext: bool | None = None
    filter_bitmaps: FilterBitmapsOf | None = None


class RebuildResult(NamedTuple):
    """What a rebuild did.

    Attributes
    ----------
    records
        Records read.
    queues
        Queues that records belong to.
    units
        Units written, batch units included.
    known, repeated, moved
        See `Appended`.
    refused
        Queues that no directory can be made for, and the rows that each would have got.
    gaps
        Parts of the log in which no record could be read; what was there is in no queue.
    """

    records: int
    queues: int
    units: int
    known: int
    repeated: int
    moved: int
    refused: dict[tuple[str, int], int]
    gaps: tuple[Gap, ...]


def rebuild_consume_queues(
    view: StoreSnapshot,
    target_root: str,
    options: RebuildOptions | None = None,
    progress: Progress | None = None,
) -> RebuildResult:
    """Read the log of a store and write all its queues below another directory.

    The source is only read. Sizes of files are those of ``view.config``, else those of the
    source's own queues, else RocketMQ's defaults.

    Parameters
    ----------
    view
        The store; its log is read up to ``max_phy_offset``.
    target_root
        Local directory that gets ``consumequeue``, ``consumequeue_ext``, ``batchconsumequeue``;
        created if need be.
    options
        What the log does not say.
    progress
        Called with the bytes of the log done and their total: after every batch, and at the end.

    Raises
    ------
    StoreFormatError
        There are queues below ``target_root``.
    StoreWriteError
        A file cannot be created or written; what was written is incomplete.
    """
    root = Path(target_root)
    for name in QUEUE_DIRS:
        if (root / name).is_dir() and any((root / name).iterdir()):
            raise StoreFormatError("queues are here already; give another directory", str(root))
    rebuild = _Rebuild(view, root, options or RebuildOptions())
    decoder = DispatchDecoder(view.config.delay_levels_ms, rebuild.filter_bitmaps)
    begin = max(view.min_phy_offset, 0)
    total = max(view.max_phy_offset - begin, 0)
    records, held, gaps = 0, [], []
    for part in scan_log(view.log, begin, view.end_offset):
        if isinstance(part, Gap):
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
    """The queues below the target, which are made with the first rows of each."""

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
        self._queues = ConsumeQueueStore(
            str(root),
            config,
            is_batch_topic=batch_topics.__contains__,
            filter_bitmaps=options.filter_bitmaps,
        )

    @property
    def filter_bitmaps(self) -> FilterBitmapsOf | None:
        return self._queues.filter_bitmaps

    def write(self, requests: DispatchRequests) -> None:
        appended = self._queues.put(requests)
        self._counts = Appended(*(a + b for a, b in zip(self._counts, appended)))

    def flush(self) -> None:
        self._queues.flush()

    def result(self, records: int, gaps: tuple[Gap, ...]) -> RebuildResult:
        queues = self._queues
        return RebuildResult(records, len(queues.queues()), *self._counts, queues.refused, gaps)


def _batch_topics(view: StoreSnapshot, options: RebuildOptions) -> frozenset[str]:
    if options.batch_topics is not None:
        return options.batch_topics
    configs = (view.topic_configs or {}).values()
    named = {config.topic_name for config in configs if config.has_batch_queues}
    return frozenset(named | {topic for topic, _ in view.batch_queue_paths})
