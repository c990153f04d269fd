# SPDX-License-Identifier: Apache-2.0
"""Questions about a store, answered as pandas data frames: traffic, sizes, latency, lag.

Each function takes a store root (or a list of them) with options of the source, or the `Survey`
of one pass over the log. Needs the extra ``notebook``.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.explore.dead_letter_rows import DEAD_LETTER_COLUMNS
from rmqsource.explore.dead_letter_rows import read_dead_letters as _dead_letters
from rmqsource.explore.log_survey import Survey, class_bounds, quantile
from rmqsource.explore.log_survey import survey_log as _survey
from rmqsource.explore.message_trace import trace_messages as _trace
from rmqsource.explore.topic_growth import GROWTH_COLUMNS, topic_growth
from rmqsource.explore.trace_events import TraceEvent
from rmqsource.extras import notebook_package
from rmqsource.metadata import read_metadata
from rmqsource.options.source_options import options_for
from rmqsource.scan.predicate import from_options
from rmqsource.scan.read_columns import no_progress, plan_read, plan_text, read_columns
from rmqsource.scan.store_versions import open_snapshots
from rmqsource.tables import TABLES
from store_core.arrow import pa, pc
from store_core.topics import NORMAL, topic_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqsource.options.source_options import SourceOptions

    PathOrPaths = str | list[str]
    OptionMapping = Mapping[str, Any] | None

__all__ = [
    "consumer_lag",
    "dead_letters",
    "delayed",
    "latency",
    "latency_summary",
    "lookup_and_scan",
    "queue_skew",
    "sizes",
    "survey",
    "tags",
    "top_keys",
    "topics",
    "trace",
    "traffic",
    "transactions",
]

_DAY_MS = 86_400_000
_MOST_MS = (1 << 63) // 1_000_000
_USUAL_STEPS_MS = (
    *(10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 1_200_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000),
    *(86_400_000, 172_800_000, 604_800_000),
)


def survey(
    path: PathOrPaths,
    options: OptionMapping = None,
    progress: Callable[[int, int], None] = no_progress,
) -> Survey:
    """Count the messages of stores in one pass over their logs; bodies are not decoded."""
    return _survey(options_for(path, options), progress)


def traffic(counts: Survey, most_steps: int = 120) -> Any:
    """Return time, topic, messages and bytes, in equal time steps aligned to UTC.

    ``attrs["step_ms"]`` is the width of a step: the smallest usual one (1 s, 5 min, 1 h) of which
    ``most_steps`` are longer than the log, else a multiple of ``counts.step_ms``.
    """
    frame = counts.traffic.to_pandas()
    step_ms = _step_ms(counts, most_steps)
    # A damaged store time counts at the limit of the years that pandas supports (1677 to 2262).
    first, last = -_MOST_MS // step_ms + 1, _MOST_MS // step_ms - 2
    start = (frame["step"] * counts.step_ms // step_ms).clip(first, last) * step_ms
    frame["time"] = notebook_package("pandas").to_datetime(start, unit="ms", utc=True)
    found = frame.groupby(["time", "topic"], as_index=False)[["messages", "bytes"]].sum()
    found.attrs["step_ms"] = step_ms
    return found


def _step_ms(counts: Survey, most_steps: int) -> int:
    span = (counts.last_ms or 0) - (counts.first_ms or 0)
    for width in _USUAL_STEPS_MS:
        if width % counts.step_ms == 0 and span // width < most_steps:
            return width
    return counts.step_ms * max(-(-span // counts.step_ms // most_steps), 1)


def sizes(counts: Survey) -> Any:
    """Return topic, low, high (bytes of whole records, high exclusive), messages, bytes, greatest.

    ``greatest`` is the largest record of the class; `log_survey.quantile` uses it.
    """
    return _with_bounds(counts.sizes.to_pandas(), "size_class")


def latency(counts: Survey) -> Any:
    """Return topic, kind, is_direct, low, high, messages, greatest.

    ``low`` and ``high`` are ms from born to stored, high exclusive; ``greatest`` is the longest of
    the class. Below 0 the producer's clock is ahead of the broker's. ``is_direct``: sent to an
    application's topic and stored there immediately. Messages that a broker stored again, after a
    delay, a retry or a commit, keep their born time, so that their latency includes that wait.
    """
    frame = _with_bounds(counts.latency.to_pandas(), "latency_class")
    return _with_direct(_with_kind(frame.drop(columns="bytes")))


def _with_direct(frame: Any) -> Any:
    is_direct = ~frame.pop("is_later") & (frame["kind"] == NORMAL)
    frame.insert(2, "is_direct", is_direct)
    return frame


def _with_kind(frame: Any) -> Any:
    frame.insert(1, "kind", [topic_kind(topic) for topic in frame["topic"]])
    return frame


def _with_bounds(frame: Any, column: str) -> Any:
    bounds = [class_bounds(number) for number in frame[column].tolist()]
    frame["low"] = [low for low, _ in bounds]
    frame["high"] = [high for _, high in bounds]
    return frame.drop(columns=column).sort_values(["topic", "low"], ignore_index=True)


def latency_summary(counts: Survey) -> Any:
    """Return topic, kind, is_direct, messages, p50_ms, p95_ms, p99_ms, max_ms and clock_ahead.

    A topic has one row for direct messages and one for those stored again; see `latency`.
    ``p95_ms`` is the 95th percentile: a value that occurs, exact below half a second, else at most
    0.4 % too long, and never above ``max_ms``. ``clock_ahead`` counts messages whose born time is
    after their store time.
    """
    frame = counts.latency.to_pandas()
    frame = _with_direct(_with_kind(frame))
    rows = []
    for (topic, kind, is_direct), part in frame.groupby(["topic", "kind", "is_direct"]):
        greatest, messages = part["greatest"].to_numpy(), part["messages"].to_numpy()
        row = {"topic": topic, "kind": kind, "is_direct": is_direct}
        row["messages"] = int(messages.sum())
        for percent in (50, 95, 99):
            row[f"p{percent}_ms"] = quantile(greatest, messages, percent)
        row["max_ms"] = int(greatest.max())
        row["clock_ahead"] = int(messages[greatest < 0].sum())
        rows.append(row)
    columns = ["topic", "kind", "is_direct", "messages", "p50_ms", "p95_ms", "p99_ms", "max_ms"]
    found = notebook_package("pandas").DataFrame(rows, columns=[*columns, "clock_ahead"])
    return found.sort_values("messages", ascending=False, ignore_index=True)


def queue_skew(counts: Survey) -> Any:
    """Return topic, kind, queue_id, messages, bytes, share (of the topic), times_even.

    ``times_even`` is the queue's share divided by an even share: 2 means twice as many messages.
    Queues without messages are not counted.
    """
    frame = counts.queues.to_pandas()
    by_topic = frame.groupby("topic")["messages"]
    frame["share"] = frame["messages"] / by_topic.transform("sum")
    frame["times_even"] = frame["share"] * by_topic.transform("size")
    return _with_kind(frame.sort_values(["topic", "queue_id"], ignore_index=True))


def tags(counts: Survey) -> Any:
    """Return topic, kind, tags (null if none), messages, the most frequent first."""
    return _with_kind(counts.tags.to_pandas())


def top_keys(counts: Survey, count: int = 20) -> Any:
    """Return topic, key, messages of the most frequent keys in topics of applications.

    The broker's own topics (retries, delays, half messages, dead letters) contain copies, which
    would count a key again. ``attrs["missed"]`` is the most by which a count may be too low.
    """
    names = counts.keys["topic"].unique().to_pylist()
    normal = pa.array([name for name in names if topic_kind(name) == NORMAL], pa.string())
    own = counts.keys.filter(pc.is_in(counts.keys["topic"], normal))
    frame = own.slice(0, count).to_pandas()
    frame.attrs["missed"] = counts.keys_missed
    return frame


def topics(path: PathOrPaths, options: OptionMapping = None) -> Any:
    """Return bytes, rates, retention and growth of each topic; see `topic_growth`."""
    return topics_of(options_for(path, options, table="topics"))


def topics_of(options: SourceOptions) -> Any:
    """Return the frame of `topics` for parsed options."""
    rows = list(topic_growth(options))
    return notebook_package("pandas").DataFrame(rows, columns=list(GROWTH_COLUMNS))


def topics_in_log(counts: Survey) -> Any:
    """Return the frame of `topics` from a survey alone, for stores whose queues cannot be read.

    ``queues`` counts those with messages in the log; growth, retention and times are missing.
    """
    by_topic = counts.queues.to_pandas().groupby("topic", as_index=False)
    frame = by_topic.agg(
        queues=("queue_id", "size"), messages=("messages", "sum"), bytes=("bytes", "sum")
    )
    span = (counts.last_ms or 0) - (counts.first_ms or 0)
    frame["bytes_share"] = frame["bytes"] / max(counts.bytes, 1)
    if span > 0:
        frame["messages_per_second"] = frame["messages"] * 1000 / span
        frame["bytes_per_day"] = frame["bytes"] * _DAY_MS / span
    frame = _with_kind(frame).reindex(columns=list(GROWTH_COLUMNS))
    return frame.sort_values(["bytes", "topic"], ascending=[False, True], ignore_index=True)


def consumer_lag(path: PathOrPaths, options: OptionMapping = None) -> Any:
    """Return table ``consumer_offsets``, the groups with the largest lag first."""
    return consumer_lag_of(options_for(path, options, table="consumer_offsets"))


def consumer_lag_of(options: SourceOptions) -> Any:
    """Return the frame of `consumer_lag` for parsed options."""
    frame = _table("consumer_offsets", options)
    by_group = frame["lag"].clip(lower=0).groupby(frame["group"]).transform("sum")
    order = frame.assign(_group=-by_group, _lag=-frame["lag"])
    keys = ["_group", "group", "_lag", "topic", "queue_id"]
    return order.sort_values(keys, ignore_index=True).drop(columns=["_group", "_lag"])


def delayed(path: PathOrPaths, options: OptionMapping = None) -> Any:
    """Return table ``delayed``."""
    return _table("delayed", options_for(path, options, table="delayed"))


def transactions(path: PathOrPaths, options: OptionMapping = None) -> Any:
    """Return table ``transactions``."""
    return _table("transactions", options_for(path, options, table="transactions"))


def dead_letters(path: PathOrPaths, options: OptionMapping = None) -> Any:
    """Return the messages of the dead-letter topics, and why they ended up there."""
    rows = list(_dead_letters(options_for(path, options)))
    return notebook_package("pandas").DataFrame(rows, columns=list(DEAD_LETTER_COLUMNS))


def trace(
    path: PathOrPaths,
    *,
    key: str | None = None,
    message_id: str | None = None,
    options: OptionMapping = None,
) -> Any:
    """Return the events of the messages with a key, an id, or both, a row for each event.

    Columns: life (a number), unique_key, sent_to, state, then those of ``TraceEvent``, with ``at``
    as a time and ``wait_ms`` since the previous event. Option ``topic`` narrows the search.
    """
    pandas = notebook_package("pandas")
    lives = _trace(
        options_for(path, options),
        keys=[] if key is None else [key],
        ids=[] if message_id is None else [message_id],
    )
    rows = [
        {
            "life": number,
            "unique_key": life.unique_key,
            "sent_to": life.topic,
            "state": life.state,
            "at": pandas.Timestamp(event.at_ms, unit="ms", tz="UTC"),
            **{name: value for name, value in asdict(event).items() if name != "at_ms"},
        }
        for number, life in enumerate(lives, 1)
        for event in life.events
    ]
    names = ["life", "unique_key", "sent_to", "state", "at"]
    names += [field.name for field in fields(TraceEvent) if field.name != "at_ms"]
    gaps = ("queue_id", "queue_offset", "commit_log_offset", "wait_ms")
    return pandas.DataFrame(rows, columns=names).astype(dict.fromkeys(gaps, "Int64"))


def lookup_and_scan(path: PathOrPaths, topic: str, key: str, options: OptionMapping = None) -> Any:
    """Find a key's messages through the index and by a scan; return a row for each way.

    Columns: way, access_path, messages, seconds, bytes_to_read, plan (its text).
    """
    rows = []
    for way, access in (("look-up", "auto"), ("full scan", "commitlog")):
        given = {**(options or {}), "topic": topic, "keys": json.dumps([key]), "access": access}
        chosen = options_for(path, given, table="messages")
        start = time.perf_counter()
        batches = read_columns(chosen, ("message_id",))
        found = sum(len(batch["message_id"]) for batch in batches)
        taken = time.perf_counter() - start
        plans = plan_read(chosen, from_options(chosen))
        rows.append(
            {
                "way": way,
                "access_path": ", ".join(sorted({plan.access_path for plan in plans})),
                "messages": found,
                "seconds": taken,
                "bytes_to_read": sum(plan.bytes_to_read for plan in plans),
                "plan": plan_text(plans),
            }
        )
    return notebook_package("pandas").DataFrame(rows)


def _table(name: str, options: SourceOptions) -> Any:
    """Return a whole metadata table."""
    rows: list[dict[str, Any]] = []
    for snapshot in open_snapshots(options):
        with snapshot:
            for batch in read_metadata(name, snapshot, options):
                columns = [column.to_pylist() for column in batch.values()]
                rows += [dict(zip(batch, values)) for values in zip(*columns)]
    declared = TABLES[name].columns
    frame = notebook_package("pandas").DataFrame(rows, columns=[c.name for c in declared])
    # Integers with nulls would become floats.
    gaps = [c.name for c in declared if c.nullable and c.type in {"int", "bigint"}]
    return frame.astype(dict.fromkeys(gaps, "Int64"))
