"""The commands about consumer groups: lag, groups, dlq.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import typer

from rmqsource.cli.arguments import (
    All,
    AnyPaths,
    Flags,
    Group,
    Limit,
    Paths,
    Selection,
    Since,
    Source,
    Topic,
    Until,
    View,
    examples,
)
from rmqsource.cli.cluster_source import ClusterSource
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
from rmqsource.cli.thresholds import Count, CountOrSpan, Threshold, count, count_or_span
from rmqsource.exit_codes import FOUND
from rmqsource.explore.dead_letter_rows import DEAD_LETTER_COLUMNS, newest_dead_letters
from rmqsource.explore.group_standing import GROUP_COLUMNS, group_standing
from rmqsource.explore.offsets_outside import offsets_outside
from store_core.arrow import pc

if TYPE_CHECKING:
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Table

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


def add_group_commands(app: typer.Typer) -> None:
    """Add the commands of this module."""
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
    """Show how far consumer groups are behind.

    A row per queue, the furthest behind first. lag_time is how much older the first message not
    consumed is than the newest of the queue. --fail-above looks at each group and topic: messages
    over all queues, or the longest time; and an offset outside of its queue is always an alert.
    """
    with reporting(warnings_are_damage=cluster.namesrv is None) as said:
        most, limited = count_or_span(fail_above), view.limit(limit)
        shown = _Shown(view.display(), limited, listed("--group", group), most)
        path = path or []
        if cluster.is_meant(path, source.config):
            from rmqsource.cli.cluster_tables import cluster_lag  # noqa: PLC0415 (on demand)

            flags: Flags = {"topic": ("--topic", topic)}
            asked = cluster.live_options(source.option, flags, "consumer_offsets")
            table = cluster_lag(asked, said)
            several = len(set(table["store"].to_pylist())) > 1
            shape = _LAG._replace(shown=(*_LAG.shown, "store")) if several else _LAG
            _show_lag(table, shape, shown, said)
            return
        options = table_options("consumer_offsets", path, source.config, source.option, topic)
        table = whole_table("consumer_offsets", options)
        _show_lag(table, for_stores(_LAG, options), shown, said)
        said.tell_missing(options)


class _Shown(NamedTuple):
    """What of the lag is shown, and when it is an alert."""

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
    """Say which groups have an offset outside of its queue."""
    found = offsets_outside(rows)
    for text in found[:_SHOWN_OUTSIDE]:
        said.note(f"alert: {text}" if is_alert else text)
    if len(found) > _SHOWN_OUTSIDE:
        said.note(f"and {len(found) - _SHOWN_OUTSIDE:,} more offsets outside of their queues")
    if found and is_alert:
        said.end_with(FOUND)


def _judge_lag(rows: "Table", most: Threshold, said: Report) -> None:
    """Alert for each group and topic that is too far behind."""
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
    path: Paths,
    group: Group = [],  # noqa: B006 (typer copies it)
    limit: All = 0,
    *,
    source: Source,
    view: View,
) -> None:
    """Show how each consumer group stands: lag, retries, dead.

    A group is one that has committed an offset, or that the broker has settings for.
    """
    with reporting() as said:
        display, wanted = view.display(), listed("--group", group)
        options = table_options("consumer_offsets", path, source.config, source.option)
        table = group_standing(options)
        tell_unknown(wanted, table["group"], "consumer group", said)
        rows = only(table, "group", wanted)
        show_rows(rows, for_stores(_GROUPS, options), display, limit, said)
        tell_outside(only(whole_table("consumer_offsets", options), "group", wanted), said)
        if not rows.num_rows:
            said.note("the store knows no consumer group")
        said.tell_missing(options)


def dlq(
    path: Paths,
    group: Group = [],  # noqa: B006 (typer copies it)
    since: Since = None,
    until: Until = None,
    fail_above: Count = None,
    limit: Limit = None,
    *,
    source: Source,
    view: View,
) -> None:
    """Show the dead letters, and why they are.

    What was consumed in vain, newest first, how often, and why it ended. topic is where the message
    was first sent. What failed is in the consumer's own log.
    """
    with reporting() as said:
        most, display = count(fail_above), view.display()
        groups = listed("--group", group)
        flags = Selection(since=since, until=until).flags(source.config, view.clock())
        options = source_options(path, source.option, flags)
        shape = for_stores(_DEAD, options)
        shape.chosen(display)  # tells of a wrong column before the log is read
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
        said.note(f"there is more than these {limit}: --limit 0 shows all")
    said.note(f"{found.total:,} dead letters" if found.total else "no dead letter")
    if most is not None:
        most.judge(found.total, f"{found.total:,} dead letters", said)
