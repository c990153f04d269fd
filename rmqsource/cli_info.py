"""The facts that ``rocketmq-store info`` tells of a store."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Callable

from store_core.errors import StoreError

if TYPE_CHECKING:
    from store_core.store_view import StoreView

    Facts = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def store_facts(
    snapshot: StoreView, warn: Callable[[str], None], note: Callable[[str], None]
) -> Facts:
    """Return what is known of a store; ``warn`` is told what could not be read.

    ``note`` is told of parts that are never read here, such as queues in a database.

    Sizes are bytes; ends are exclusive. A fact that a damaged part would tell is None.
    """
    facts: Facts = {"store": snapshot.directory.uri, "state": snapshot.state.value}
    for text in snapshot.kind.notes():
        note(text)
    parts: tuple[tuple[Callable[[StoreView], Facts], tuple[str, ...]], ...] = (
        (_log, LOG_FACTS),
        (_queues, QUEUE_FACTS),
        (_index, INDEX_FACTS),
        (_checkpoint, CHECKPOINT_FACTS),
    )
    for read, names in parts:
        facts.update(dict.fromkeys(names))
        try:
            facts.update(read(snapshot))
        except StoreError as err:
            warn(str(err))
    return facts


LOG_FACTS = (
    "log_begin",
    "log_end",
    "log_bytes",
    "log_ends_because",
    "segments",
    "segment_bytes",
    "first_store_timestamp",
)
QUEUE_FACTS = ("topics", "queues", "batch_queues", "last_dispatched_store_timestamp")
INDEX_FACTS = (
    "index_files",
    "index_files_unusable",
    "index_first_record",
    "index_last_record",
    "index_first_store_timestamp",
    "index_last_store_timestamp",
)
CHECKPOINT_FACTS = (
    "checkpoint_log_flushed_until",
    "checkpoint_queues_until",
    "checkpoint_index_until",
    "checkpoint_confirmed_record",
)
FACTS = ("store", "state", *LOG_FACTS, *QUEUE_FACTS, *INDEX_FACTS, *CHECKPOINT_FACTS)


def _log(snapshot: StoreView) -> Facts:
    segments = snapshot.log.segments
    begin = max(snapshot.min_phy_offset, 0)
    return {
        "log_begin": begin,
        "log_end": snapshot.end_offset,
        "log_bytes": snapshot.end_offset - begin,
        "log_ends_because": snapshot.end_reason,
        "segments": len(segments),
        "segment_bytes": segments.file_size if len(segments) else None,
        "first_store_timestamp": _time(snapshot.store_timestamp_at(begin)),
    }


def _queues(snapshot: StoreView) -> Facts:
    if snapshot.kind.queue_database:
        return {}
    queues = [*snapshot.queue_paths, *snapshot.batch_queue_paths]
    last, _ = snapshot.last_dispatched()
    return {
        "topics": len({topic for topic, _ in queues} | set(snapshot.topic_configs or {})),
        "queues": len(snapshot.queue_paths),
        "batch_queues": len(snapshot.batch_queue_paths),
        "last_dispatched_store_timestamp": (
            _time(snapshot.store_timestamp_at(last)) if last >= 0 else None
        ),
    }


def _index(snapshot: StoreView) -> Facts:
    index = snapshot.index
    facts: Facts = {
        "index_files": len(index.files),
        "index_files_unusable": len(index.unusable),
    }
    headers = [entry.header for entry in index.files if entry.header.entry_count > 0]
    if headers:
        facts["index_first_record"] = min(h.begin_phy_offset for h in headers)
        facts["index_last_record"] = max(h.end_phy_offset for h in headers)
        facts["index_first_store_timestamp"] = _time(min(h.begin_timestamp for h in headers))
        facts["index_last_store_timestamp"] = _time(max(h.end_timestamp for h in headers))
    return facts


def _checkpoint(snapshot: StoreView) -> Facts:
    checkpoint = snapshot.checkpoint
    if checkpoint is None:
        return {}
    return {
        "checkpoint_log_flushed_until": _time(checkpoint.physic_msg_timestamp),
        "checkpoint_queues_until": _time(checkpoint.logics_msg_timestamp),
        "checkpoint_index_until": _time(checkpoint.index_msg_timestamp),
        "checkpoint_confirmed_record": checkpoint.confirm_phy_offset,
    }


def _time(milliseconds: int | None) -> datetime | None:
    """Return an instant; None for 0 (never) and for what no calendar holds."""
    if not milliseconds:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
