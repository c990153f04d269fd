# SPDX-License-Identifier: Apache-2.0
"""The commands about backlogs: lag, groups, dlq, delayed, timers, transactions.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import typer

from rmqsource.cli.arguments import (
    All,
    AnyPaths,
    ClusterSource,
    GivenFlags,
    Group,
    Limit,
    SelectionFlags,
    Since,
    Source,
    StorePaths,
    Topic,
    Until,
    View,
    examples,
)
from rmqsource.cli.metadata import (
    columns_of,
    for_stores,
    in_time,
    only,
    ordered,
    show_rows,
    tell_unknown,
    whole_table,
)
from rmqsource.cli.output import Display, Shape
from rmqsource.cli.read import listed, source_options, table_options
from rmqsource.cli.report import Report, reporting
from rmqsource.cli.times import CountOrSpan, FailAbove, Threshold, count, count_or_span
from rmqsource.exit_codes import FOUND
from rmqsource.explore.dead_letter_rows import DEAD_LETTER_COLUMNS, newest_dead_letters
from rmqsource.explore.group_standing import GROUP_COLUMNS, group_standing, offsets_outside
from store_core.arrow import pa, pc

if TYPE_CHECKING:
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Array, Table

_LAG = Shape(
    ("group", "topic", "queue_id", "lag", "lag_ms", "expired", "consumer_offset", "broker_offset"),
    columns_of("consumer_offsets"),
    drop=("store", "expired", "broker_offset", "consumer_offset", "queue_id"),
    forms={"lag_ms": in_time("lag_time")},
)
_GROUPS = Shape(
    GROUP_COLUMNS[:-1],
    GROUP_COLUMNS,
    drop=(
        *("store", "retry_max_times", "expired", "beyond_end", "queues", "topics"),
        "retry_messages",
    ),
    forms={"lag_ms": in_time("lag_time")},
)
_DEAD = Shape(
    ("store_timestamp", "group", "topic", "tries", "message_id", "why", "keys", "body"),
    DEAD_LETTER_COLUMNS,
    drop=("keys", "body", "why", "tries", "topic", "store_timestamp"),
)
_SHOWN_OUTSIDE = 10
_PENDING, _GIVEN_UP, _UNKNOWN = "pending", "check_exceeded", "unknown"
_DELAYED = Shape(
    (
        *("deliver_timestamp", "overdue_ms", "state", "real_topic", "real_queue_id", "level"),
        *("unique_key", "store_timestamp"),
    ),
    (*columns_of("delayed"), "overdue_ms"),
    drop=("store", "store_timestamp", "real_queue_id", "level", "unique_key", "state"),
    forms={"overdue_ms": in_time("overdue")},
)
_TIMERS = Shape(
    (
        *("deliver_timestamp", "overdue_ms", "state", "real_topic", "real_queue_id", "keys"),
        *("unique_key", "roll_times", "store_timestamp"),
    ),
    (*columns_of("timers"), "overdue_ms"),
    drop=(
        *("store", "store_timestamp", "roll_times", "real_queue_id", "keys", "unique_key"),
        "state",
    ),
    forms={"overdue_ms": in_time("overdue")},
)
_TRANSACTIONS = Shape(
    (
        *("store_timestamp", "state", "topic", "producer_group", "checks", "transaction_id"),
        "end_timestamp",
    ),
    columns_of("transactions"),
    drop=("store", "end_timestamp", "checks", "producer_group", "topic"),
)
Everything = Annotated[
    bool, typer.Option("--all", help="Include those that are no longer waiting.")
]


def add_group_commands(app: typer.Typer) -> None:
    """Add the commands about consumer groups."""
    app.command(
        epilog=examples(
            "lag /data/store",
            "lag /data/store --group billing --fail-above 5m",
            "lag /data/store --topic orders --fail-above 10000 --format json",
            "lag --namesrv 10.0.0.5:9876 --group billing",
        )
    )(lag)
    app.command(epilog=examples("groups /data/store", "groups /data/store --format csv"))(groups)
    app.command(
        epilog=examples(
            "dlq /data/store", "dlq /data/store --group billing --since 1d --fail-above 0"
        )
    )(dlq)


def lag(
    path: AnyPaths = None,
    group: Group = [],  # noqa: B006 (typer copies it)
    topic: Topic = [],  # noqa: B006 (typer copies it)
    fail_above: CountOrSpan = None,
    limit: Limit = None,
    *,
    cluster: ClusterSource,
    source: Source,
    view: View,
) -> None:
    """Show how far behind consumer groups are.

    There is one row per queue, the furthest behind first. lag_time is the store time of the queue's
    newest message minus that of the first message not consumed. --fail-above applies to each group
    and topic: to the messages over all its queues, or to its longest lag time. With it, an offset
    outside its queue is always an alert.
    """
    with reporting() as said:
        most, limited = count_or_span(fail_above), view.limit(limit)
        shown = _Shown(view.display(), limited, listed("--group", group), most)
        flags: GivenFlags = {"topic": ("--topic", topic)}
        rows = cluster.rows(path or [], source, flags, said, "consumer_offsets")
        table, shape = rows.table("consumer_offsets", _LAG)
        _show_lag(table, shape, shown, said)
        rows.tell_missing()


class _Shown(NamedTuple):
    """The part of the lag to show, and the limit for alerts (optional)."""

    display: Display
    limit: int
    groups: list[str]
    most: Optional[Threshold]


def _show_lag(table: "Table", shape: Shape, shown: _Shown, said: Report) -> None:
    tell_unknown(shown.groups, table["group"], "consumer group with an offset", said)
    keys = (("lag", "descending"), ("lag_ms", "descending"), ("group", "ascending"))
    rows = ordered(only(table, "group", shown.groups), *keys, ("topic", "ascending"))
    show_rows(rows, shape, shown.display, shown.limit, said)
    if not rows.num_rows:
        said.note("no consumer group has committed an offset here")
    tell_outside(rows, said, is_alert=shown.most is not None)
    if shown.most is not None:
        _judge_lag(rows, shown.most, said)


def tell_outside(rows: "Table", said: Report, *, is_alert: bool = False) -> None:
    """Report the groups that have an offset outside its queue."""
    found = offsets_outside(rows)
    for text in found[:_SHOWN_OUTSIDE]:
        said.note(f"alert: {text}" if is_alert else text)
    if len(found) > _SHOWN_OUTSIDE:
        said.note(f"and {len(found) - _SHOWN_OUTSIDE:,} more offsets outside their queues")
    if found and is_alert:
        said.end_with(FOUND)


def _judge_lag(rows: "Table", most: Threshold, said: Report) -> None:
    """Report an alert for each group and topic whose lag is above the limit."""
    if not rows.num_rows:
        return
    at = rows.column_names.index("lag")
    behind_only = rows.set_column(at, "lag", pc.max_element_wise(rows["lag"], 0))
    sums = behind_only.group_by(["store", "group", "topic"], use_threads=False)
    for row in sums.aggregate([("lag", "sum"), ("lag_ms", "max")]).to_pylist():
        behind = f"group {row['group']!r} is behind in topic {row['topic']!r}"
        in_time_ = row["lag_ms_max"] or 0
        if most.unit == "ms":
            most.judge(in_time_, f"{behind} by {in_time('').text(in_time_)}", said)
        else:
            most.judge(row["lag_sum"], f"{behind} by {row['lag_sum']:,} messages", said)


def groups(
    path: StorePaths,
    group: Group = [],  # noqa: B006 (typer copies it)
    limit: All = 0,
    *,
    source: Source,
    view: View,
) -> None:
    """Show each consumer group: lag, retries, dead letters.

    Consumer groups are those that have committed an offset and those the broker has settings for.
    """
    with reporting() as said:
        display, wanted = view.display(), listed("--group", group)
        options = table_options("consumer_offsets", path, source.config, source.option, said.damage)
        table = group_standing(options)
        tell_unknown(wanted, table["group"], "consumer group", said)
        rows = only(table, "group", wanted)
        show_rows(rows, for_stores(_GROUPS, options), display, limit, said)
        tell_outside(only(whole_table("consumer_offsets", options), "group", wanted), said)
        if not rows.num_rows:
            said.note("the store has no consumer group")
        said.tell_missing(options)


def dlq(
    path: StorePaths,
    group: Group = [],  # noqa: B006 (typer copies it)
    since: Since = None,
    until: Until = None,
    fail_above: FailAbove = None,
    limit: Limit = None,
    *,
    source: Source,
    view: View,
) -> None:
    """Show dead letters and why they ended up there.

    Dead letters are messages that could not be consumed. They are shown newest first, with the
    number of tries and the reason why no more followed. topic is the topic to which the message was
    first sent. The consumer's own log says why consuming failed.
    """
    with reporting() as said:
        most, display = count(fail_above), view.display()
        groups = listed("--group", group)
        flags = SelectionFlags(since=since, until=until).flags(source.config, view.clock())
        options = source_options(path, source.option, flags, said.damage)
        shape = for_stores(_DEAD, options)
        shape.chosen(display)  # reports a wrong column before the log is read
        _show_dead(options, groups, (shape, display, view.limit(limit)), most, said)
        said.tell_missing(options)


def _show_dead(
    options: "SourceOptions",
    groups: list[str],
    shown: tuple[Any, ...],
    most: "Threshold | None",
    said: Report,
) -> None:
    from rmqsource.cli.output import row_writer  # noqa: PLC0415

    shape, display, limit = shown
    found = newest_dead_letters(options, groups, limit)
    writer = row_writer(display, shape)
    for row in found.rows:
        writer.write(row)
    writer.close()
    if limit and found.total > limit:
        said.note(f"only the first {limit} rows are shown: --limit 0 shows all")
    said.note(f"{found.total:,} dead letters" if found.total else "no dead letters")
    if most is not None:
        most.judge(found.total, f"{found.total:,} dead letters", said)


# Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
def add_waiting_commands(app: typer.Typer) -> None:
    """Add the commands about messages that wait."""
    app.command(
        epilog=examples("delayed /data/store", "delayed /data/store --fail-above 1m --limit 5")
    )(delayed)
    app.command(
        epilog=examples("timers /data/store", "timers /data/store --fail-above 1m --limit 5")
    )(timers)
    app.command(
        epilog=examples(
            "transactions /data/store",
            "transactions /data/store --all --format csv",
            "transactions /data/store --fail-above 0",
        )
    )(transactions)


At = Annotated[
    Optional[str],
    typer.Option(
        "--at",
        metavar="TIME",
        show_default="now",
        help="Count what was due before this time as overdue.",
    ),
]


def delayed(
    path: StorePaths,
    everything: Everything = False,
    at: At = None,
    fail_above: CountOrSpan = None,
    limit: Limit = None,
    *,
    source: Source,
    view: View,
) -> None:
    """Show delayed messages that wait for their delivery time.

    These are the messages in delay levels, the next one due first. A message is overdue if it
    should have been delivered by now; a running broker has almost none. --fail-above applies to
    overdue messages: to their number, or to the longest time (1m). The command timers shows
    messages in the timer wheel.
    """
    options = _Waiting("delayed", _DELAYED, everything, at, fail_above, limit)
    _show_waiting(options, path, source, view)


def timers(
    path: StorePaths,
    everything: Everything = False,
    at: At = None,
    fail_above: CountOrSpan = None,
    limit: Limit = None,
    *,
    source: Source,
    view: View,
) -> None:
    """Show messages that wait in the timer wheel.

    These are the timer messages of a 5.x broker, the next one due first. --all includes delivered
    and cancelled ones. A message is overdue if it should have been delivered by now; a running
    broker has almost none. --fail-above applies to overdue messages: to their number, or to the
    longest time (1m).
    """
    options = _Waiting("timers", _TIMERS, everything, at, fail_above, limit)
    _show_waiting(options, path, source, view)


class _Waiting(NamedTuple):
    """A table of waiting messages, and the flags of its command."""

    table: str
    shape: Shape
    everything: bool
    at: Optional[str]
    fail_above: Optional[str]
    limit: Optional[int]


def _show_waiting(asked: _Waiting, path: StorePaths, source: Source, view: View) -> None:
    with reporting() as said:
        most, display, clock = count_or_span(asked.fail_above), view.display(), view.clock()
        now = clock.now if asked.at is None else clock.instant_ms("--at", asked.at)
        options = table_options(asked.table, path, source.config, source.option, said.damage)
        table = _with_overdue(whole_table(asked.table, options), now)
        if not asked.everything:
            table = only(table, "state", [_PENDING])
        rows = ordered(table, ("deliver_timestamp", "ascending"), ("queue_offset", "ascending"))
        show_rows(rows, for_stores(asked.shape, options), display, view.limit(asked.limit), said)
        waiting = only(table, "state", [_PENDING]).num_rows
        late = rows["overdue_ms"].drop_null() if rows.num_rows else pa.nulls(0)
        said.note(f"{waiting:,} messages are waiting, {len(late):,} of them overdue")
        if most is not None:
            _judge_overdue(late, most, said)
        said.tell_missing(options)


def _with_overdue(table: "Table", now: int) -> "Table":
    """Return the rows with the ms by which each is overdue; null if it is not."""
    due = table["deliver_timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    late = pc.subtract(pa.scalar(now, pa.int64()), due)
    is_late = pc.and_(pc.equal(table["state"].cast(pa.string()), _PENDING), pc.greater(late, 0))
    nothing = pa.scalar(None, pa.int64())
    return table.append_column("overdue_ms", pc.if_else(is_late, late, nothing))


def _judge_overdue(late: "Array", most: Threshold, said: Report) -> None:
    longest = (pc.max(late).as_py() or 0) if len(late) else 0
    if most.unit == "ms":
        most.judge(longest, f"a message is overdue by {in_time('').text(longest)}", said)
    else:
        most.judge(len(late), f"{len(late):,} messages are overdue", said)


def transactions(
    path: StorePaths,
    everything: Everything = False,
    fail_above: FailAbove = None,
    limit: Limit = None,
    *,
    source: Source,
    view: View,
) -> None:
    """Show transactions that are open or were given up.

    They are shown newest first. pending: the broker still asks the producer. check_exceeded: the
    broker gave up, and no consumer gets the message. unknown: the log no longer shows how it ended.
    --fail-above counts pending and check_exceeded.
    """
    with reporting() as said:
        most, display = count(fail_above), view.display()
        options = table_options("transactions", path, source.config, source.option, said.damage)
        table = whole_table("transactions", options)
        wanted = [] if everything else [_PENDING, _GIVEN_UP, _UNKNOWN]
        keys = (("store_timestamp", "descending"), ("half_commit_log_offset", "descending"))
        rows = ordered(only(table, "state", wanted), *keys)
        show_rows(rows, for_stores(_TRANSACTIONS, options), display, view.limit(limit), said)
        counts = {
            row["values"]: row["counts"] for row in pc.value_counts(table["state"]).to_pylist()
        }
        said.note(", ".join(f"{counts[s]:,} {s}" for s in sorted(counts)) or "no transactions")
        if most is not None:
            bad = counts.get(_PENDING, 0) + counts.get(_GIVEN_UP, 0)
            most.judge(bad, f"{bad:,} transactions are open or given up", said)
        said.tell_missing(options)
