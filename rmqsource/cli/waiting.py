"""The commands about messages that wait: delayed, timers, transactions.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from typing import TYPE_CHECKING, Annotated, NamedTuple, Optional

import typer

from rmqsource.cli.arguments import Limit, Paths, Source, View, examples
from rmqsource.cli.metadata import (
    columns_of,
    for_stores,
    in_time,
    only,
    ordered,
    show_rows,
    whole_table,
)
from rmqsource.cli.output import Shape
from rmqsource.cli.read import table_options
from rmqsource.cli.report import Report, reporting
from rmqsource.cli.thresholds import Count, CountOrSpan, Threshold, count, count_or_span
from store_core.arrow import pa, pc

if TYPE_CHECKING:
    from store_core.arrow_types import Array, Table

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
Everything = Annotated[bool, typer.Option("--all", help="Those that are over, too.")]


def add_waiting_commands(app: typer.Typer) -> None:
    """Add the commands of this module."""
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
    typer.Option("--at", metavar="TIME", show_default="now", help="When overdue is judged."),
]


def delayed(
    path: Paths,
    everything: Everything = False,
    at: At = None,
    fail_above: CountOrSpan = None,
    limit: Limit = None,
    *,
    source: Source,
    view: View,
) -> None:
    """Show the messages that wait for their time.

    Those in a delay level, the next one due first. Overdue is what should have been delivered by
    now: of a broker that runs, almost nothing. --fail-above looks at those: how many, or for how
    long (1m). Command timers shows those of the timer wheel.
    """
    options = _Waiting("delayed", _DELAYED, everything, at, fail_above, limit)
    _show_waiting(options, path, source, view)


def timers(
    path: Paths,
    everything: Everything = False,
    at: At = None,
    fail_above: CountOrSpan = None,
    limit: Limit = None,
    *,
    source: Source,
    view: View,
) -> None:
    """Show the messages that wait in the timer wheel.

    That of a 5.x broker, the next one due first; with --all also those that were delivered or
    cancelled. Overdue is what should have been delivered by now: of a broker that runs, almost
    nothing. --fail-above looks at those: how many, or for how long (1m).
    """
    options = _Waiting("timers", _TIMERS, everything, at, fail_above, limit)
    _show_waiting(options, path, source, view)


class _Waiting(NamedTuple):
    """A table of messages that wait, and what is asked about it."""

    table: str
    shape: Shape
    everything: bool
    at: Optional[str]
    fail_above: Optional[str]
    limit: Optional[int]


def _show_waiting(asked: _Waiting, path: Paths, source: Source, view: View) -> None:
    with reporting() as said:
        most, display, clock = count_or_span(asked.fail_above), view.display(), view.clock()
        now = clock.now if asked.at is None else clock.instant_ms("--at", asked.at)
        options = table_options(asked.table, path, source.config, source.option)
        table = _with_overdue(whole_table(asked.table, options), now)
        if not asked.everything:
            table = only(table, "state", [_PENDING])
        rows = ordered(table, ("deliver_timestamp", "ascending"), ("queue_offset", "ascending"))
        show_rows(rows, for_stores(asked.shape, options), display, view.limit(asked.limit), said)
        waiting = only(table, "state", [_PENDING]).num_rows
        late = rows["overdue_ms"].drop_null() if rows.num_rows else pa.nulls(0)
        said.note(f"{waiting:,} messages wait, {len(late):,} of them are overdue")
        if most is not None:
            _judge_overdue(late, most, said)
        said.tell_missing(options)


def _with_overdue(table: "Table", now: int) -> "Table":
    """Return the rows with how long they should have been delivered ago; null if not overdue."""
    due = table["deliver_timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    late = pc.subtract(pa.scalar(now, pa.int64()), due)
    is_late = pc.and_(pc.equal(table["state"].cast(pa.string()), _PENDING), pc.greater(late, 0))
    nothing = pa.scalar(None, pa.int64())
    return table.append_column("overdue_ms", pc.if_else(is_late, late, nothing))


def _judge_overdue(late: "Array", most: Threshold, said: Report) -> None:
    longest = (pc.max(late).as_py() or 0) if len(late) else 0
    if most.unit == "ms":
        most.judge(longest, f"a message is overdue for {in_time('').text(longest)}", said)
    else:
        most.judge(len(late), f"{len(late):,} messages are overdue", said)


def transactions(
    path: Paths,
    everything: Everything = False,
    fail_above: Count = None,
    limit: Limit = None,
    *,
    source: Source,
    view: View,
) -> None:
    """Show the transactions that are open or given up.

    Newest first. pending: the broker still asks the producer. check_exceeded: it gave up, nobody
    gets the message. unknown: how it ended can no longer be seen. --fail-above counts the first
    two.
    """
    with reporting() as said:
        most, display = count(fail_above), view.display()
        options = table_options("transactions", path, source.config, source.option)
        table = whole_table("transactions", options)
        wanted = [] if everything else [_PENDING, _GIVEN_UP, _UNKNOWN]
        keys = (("store_timestamp", "descending"), ("half_commit_log_offset", "descending"))
        rows = ordered(only(table, "state", wanted), *keys)
        show_rows(rows, for_stores(_TRANSACTIONS, options), display, view.limit(limit), said)
        counts = {
            row["values"]: row["counts"] for row in pc.value_counts(table["state"]).to_pylist()
        }
        said.note(", ".join(f"{counts[s]:,} {s}" for s in sorted(counts)) or "no transaction")
        if most is not None:
            bad = counts.get(_PENDING, 0) + counts.get(_GIVEN_UP, 0)
            most.judge(bad, f"{bad:,} transactions are open or given up", said)
        said.tell_missing(options)
