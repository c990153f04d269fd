"""The facts that ``rocketmq-store info`` tells of a store."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.cli_read import lost_log
from store_core.errors import StoreError, StoreReadError

if TYPE_CHECKING:
    from store_core.store_view import StoreView

    Facts = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def store_facts(
    snapshot: StoreView, warn: Callable[[str], None], not_read: Callable[[str], None]
) -> Facts:
    """Return what is known of a store.

    Sizes are bytes; ends are exclusive. A fact that a damaged part would tell is None.

    Parameters
    ----------
    snapshot
        The store.
    warn, not_read
        Are told what is damaged, and what may not be read.
    """
    problem = lost_log(snapshot) or _no_log(snapshot)
    state = "unknown" if problem else snapshot.state.value
    if problem:
        warn(problem)
    facts: Facts = {"store": snapshot.directory.uri, "state": state}
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
        except StoreReadError as err:
            not_read(str(err))
        except StoreError as err:
            warn(str(err))
    return facts


def _no_log(snapshot: StoreView) -> str:
    """Return what to say of a log that begins with no record; empty where it begins with one."""
    begin = max(snapshot.min_phy_offset, 0)
    if begin >= snapshot.end_offset or snapshot.store_timestamp_at(begin) is not None:
        return ""
    return (
        f"{snapshot.directory.uri}: the log begins with bytes that are no record, so that nothing "
        "else says how the store was stopped; check tells more"
    )


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
