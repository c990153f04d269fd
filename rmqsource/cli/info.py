# SPDX-License-Identifier: Apache-2.0
"""The facts about a store that ``rocketmq-store info`` shows."""

from __future__ import annotations

import posixpath
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.cli.metadata import for_stores, in_bytes
from rmqsource.cli.output import Form, Shape, row_writer
from rmqsource.explore.store_health import broker_names, lost_log, no_log
from rmqsource.explore.topic_growth import GROWTH_COLUMNS, topic_growth
from rmqsource.metadata import read_metadata
from rmqsource.plots.style import duration_text
from store_core.errors import StoreError, StoreReadError
from store_core.layout import INDEX_DIR, QUEUE_DIRS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.cli.output import Display
    from rmqsource.cli.report import Report
    from rmqsource.options.source_options import SourceOptions
    from store_core.snapshot.store_snapshot import StoreSnapshot

    Facts = dict[str, Any]

_PLACES = {
    **dict.fromkeys(QUEUE_DIRS, "disk_queues"),
    INDEX_DIR: "disk_index",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_HOUR_SECONDS = 3600
_RATES_OF_DAYS = ("bytes_per_day", "growth")
_SHAPE = Shape(
    (
        *("topic", "kind", "queues", "messages", "bytes", "bytes_share", "messages_per_second"),
        *("bytes_per_day", "growth", "retention_seconds", "max_store_timestamp"),
    ),
    GROWTH_COLUMNS,
    drop=(
        *("store", "kind", "queues", "max_store_timestamp", "growth", "retention_seconds"),
        *("messages_per_second", "bytes_per_day", "bytes_share"),
    ),
    forms={
        "bytes": in_bytes("bytes"),
        "bytes_share": Form("share", lambda share: f"{100 * share:.1f} %"),
        "messages_per_second": Form("per_second", lambda rate: f"{rate:,.3g}"),
        "bytes_per_day": in_bytes("per_day"),
        "growth": Form("growth", lambda growth: f"{100 * growth:+.0f} %"),
        "retention_seconds": Form("retention", lambda s: duration_text(1000 * s)),
    },
)


def store_facts(
    snapshot: StoreSnapshot,
    options: SourceOptions,
    warn: Callable[[str], None],
    not_read: Callable[[str], None],
) -> Facts:
    """Return the facts about a store.

    Sizes are bytes; ends are exclusive. Facts from damaged parts are None.
    """
    problem = lost_log(snapshot) or no_log(snapshot)
    state = "unknown" if problem else snapshot.state.value
    if problem:
        warn(problem)
    if snapshot.lost_end is not None:
        warn(str(snapshot.lost_end))
    facts: Facts = {"store": snapshot.directory.uri, "state": state}
    parts: tuple[tuple[Callable[[StoreSnapshot], Facts], tuple[str, ...]], ...] = (
        (lambda view: _broker(view, options), BROKER_FACTS),
        (_log, LOG_FACTS),
        (_queues, QUEUE_FACTS),
        (lambda view: _messages(view, options), MESSAGE_FACTS),
        (_index, INDEX_FACTS),
        (_checkpoint, CHECKPOINT_FACTS),
        (_disk, DISK_FACTS),
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


LOG_FACTS = (
    "log_begin",
    "log_end",
    "log_bytes",
    "log_ends_because",
    "segments",
    "segment_bytes",
    "first_store_timestamp",
)


BROKER_FACTS = ("broker", "cluster")


QUEUE_FACTS = ("topics", "queues", "batch_queues", "last_dispatched_store_timestamp")


MESSAGE_FACTS = ("messages",)


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


DISK_FACTS = ("disk_log", "disk_queues", "disk_index", "disk_other")


FACTS = (
    *("store", "state", *BROKER_FACTS, *LOG_FACTS, *QUEUE_FACTS, *MESSAGE_FACTS),
    *(*INDEX_FACTS, *CHECKPOINT_FACTS, *DISK_FACTS),
)


def _broker(snapshot: StoreSnapshot, options: SourceOptions) -> Facts:
    return dict(zip(BROKER_FACTS, broker_names(snapshot, options)))


def _log(snapshot: StoreSnapshot) -> Facts:
    segments = snapshot.log.segments
    begin = max(snapshot.min_phy_offset, 0)
    return {
        "log_begin": begin,
        "log_end": snapshot.end_offset,
        "log_bytes": snapshot.end_offset - begin,
        "log_ends_because": snapshot.end_reason,
        "segments": len(segments),
        "segment_bytes": segments.file_size if len(segments) else None,
        "first_store_timestamp": _time(snapshot.oldest_store_timestamp()),
    }


def _queues(snapshot: StoreSnapshot) -> Facts:
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


def _messages(snapshot: StoreSnapshot, options: SourceOptions) -> Facts:
    """Return the number of messages in the queues."""
    if snapshot.kind.queue_database:
        return {}
    held = (batch["messages"] for batch in read_metadata("queues", snapshot, options))
    return {"messages": sum(sum(part.to_pylist()) for part in held)}


def _disk(snapshot: StoreSnapshot) -> Facts:
    """Return the total length of the files, by kind; brokers preallocate files."""
    sizes = dict.fromkeys(DISK_FACTS, 0)
    sizes["disk_log"] = sum(segment.size for segment in snapshot.log.segments)
    logs = {posixpath.dirname(segment.path) for segment in snapshot.log.segments}
    for path, size in _files(snapshot, snapshot.directory.resolve(), logs):
        place = path[len(snapshot.directory.resolve()) :].strip("/").partition("/")[0]
        sizes[_PLACES.get(place, "disk_other")] += size
    return sizes


def _files(snapshot: StoreSnapshot, root: str, passed_over: set[str]) -> Iterator[tuple[str, int]]:
    pending = [root]
    while pending:
        for entry in snapshot.directory.list(pending.pop()):
            if not entry.is_dir:
                yield entry.path, entry.size
            elif entry.path not in passed_over:
                pending.append(entry.path)


def _index(snapshot: StoreSnapshot) -> Facts:
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


def _checkpoint(snapshot: StoreSnapshot) -> Facts:
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
    """Return an instant; None for 0 (never) and for times outside the range of dates."""
    if not milliseconds:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def show_topics(options: SourceOptions, display: Display, limit: int, report: Report) -> None:
    """Write a row for each topic; a table shows values with units."""
    shape = for_stores(_SHAPE, options)
    shape.chosen(display)  # reports a wrong column before anything is read
    found = list(topic_growth(options))
    span, rows = _span_seconds(found), found[: limit or None]
    is_short = display.is_table and not display.columns and span < _HOUR_SECONDS
    if is_short:
        shape = shape._replace(shown=tuple(n for n in shape.shown if n not in _RATES_OF_DAYS))
    writer = row_writer(display, shape)
    for row in rows:
        writer.write(row)
    writer.close()
    report.rows = len(rows)
    if rows and is_short:
        report.note(
            f"these messages cover only {duration_text(1000 * span)}: rates per day and "
            "growth are not meaningful yet (--columns shows them)"
        )


def _span_seconds(rows: list[dict[str, Any]]) -> float:
    """Return the time from the first to the last message of all topics."""
    begins = [row["min_store_timestamp"] for row in rows if row["min_store_timestamp"]]
    ends = [row["max_store_timestamp"] for row in rows if row["max_store_timestamp"]]
    return (max(ends) - min(begins)).total_seconds() if begins and ends else 0.0
