# SPDX-License-Identifier: Apache-2.0
"""The commands that answer questions: trace, report, export, diff.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rmqsource.cli.arguments import (
    ExportFormat,
    Ids,
    Key,
    Limit,
    SelectionFlags,
    Since,
    Source,
    Sql,
    SqlDialect,
    StorePaths,
    Tag,
    Topic,
    Until,
    View,
    Zone,
    examples,
    file_path,
)
from rmqsource.cli.job import check_target, checked_partitions, export_messages
from rmqsource.cli.page import write_report
from rmqsource.cli.read import (
    WrongUseError,
    checking_bodies,
    listed,
    option_texts,
    source_options,
)
from rmqsource.cli.report import progress_bars, reporting
from rmqsource.cli.rows.store_rows import not_found
from rmqsource.cli.times import clock_of
from rmqsource.cli.trace import show_differences, show_lives
from rmqsource.explore.diff_stores import compare_stores as compare
from rmqsource.explore.message_trace import trace_messages as find_lives


class ReportFormat(str, Enum):
    """The format of a report."""

    html = "html"
    json = "json"


class Way(str, Enum):
    """How messages of two stores are matched."""

    key = "key"
    position = "position"


def add_commands(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        epilog=examples(
            "trace /data/store --key order-4711 --topic orders",
            "trace '/data/broker-*/store' --id C000020253ED30946E0969AAA4370063",
        )
    )(trace)
    app.command(
        epilog=examples(
            "report /data/store -o report.html",
            "report /data/store --since 2026-01-31T00:00:00Z -o day.html",
        )
    )(report)
    app.command(
        epilog=examples(
            "export /data/store -o orders --format parquet --topic orders",
            "export /data/store -o all --format json --partition-by topic,day",
        )
    )(export)
    app.command(
        epilog=examples(
            "diff /data/store /backup/store", "diff /data/a /data/b --topic orders --by position"
        )
    )(diff)


def trace(
    path: StorePaths,
    key: Key = [],  # noqa: B006 (typer copies it)
    message_id: Ids = [],  # noqa: B006 (typer copies it)
    topic: Topic = [],  # noqa: B006 (typer copies it)
    *,
    source: Source,
    view: View,
) -> None:
    """Show the life of a message as a timeline.

    The timeline covers one or more stores: sent, stored, half, checked, committed or rolled back,
    delayed, delivered, retried, dead-lettered, with the time between the steps. It also shows which
    consumer groups have passed the message. --topic is the topic to which it was sent. With both
    --key and --id, a message must have one of the keys and one of the ids.
    """
    with reporting() as said:
        if not key and not message_id:
            raise WrongUseError("trace: give --key or --id")
        keys, ids = listed("--key", key), listed("--id", message_id)
        flags = SelectionFlags(topic).flags(source.config, view.clock())
        options = source_options(path, source.option, flags, said.damage)
        display = view.display()
        lives = find_lives(options, keys=keys, ids=ids)
        show_lives(lives, display, said)
        said.nothing("no message matches")
        missing = [text for text in ids if not any(life.has_id(text) for life in lives)]
        said.missing(*not_found(missing, replace(options, keys=tuple(keys) or None)))
        said.tell_missing(options, seen={life.topic for life in lives})


def report(
    path: StorePaths,
    out: Annotated[
        Path,
        typer.Option("--output", "-o", parser=file_path, metavar="FILE", help="The file to write."),
    ],
    topic: Topic = [],  # noqa: B006 (typer copies it)
    since: Since = None,
    until: Until = None,
    output: Annotated[
        ReportFormat, typer.Option("--format", help="An HTML page, or its data as JSON.")
    ] = ReportFormat.html,
    tz: Zone = None,
    *,
    source: Source,
) -> None:
    """Write a report about a store: traffic, disk, lag and more.

    The report is a single file that needs no network. It also lists damage; the exit code is then
    1. Message bodies are checked against their CRCs unless --option checkCRC=false is given.
    """
    with reporting() as said, progress_bars() as progress:
        chosen = SelectionFlags(topic, since=since, until=until)
        flags = {**chosen.flags(source.config, clock_of(tz)), **checking_bodies(source.option)}
        options = source_options(path, source.option, flags, said.damage)
        write_report(options, out, output.value, progress, said)


def export(
    path: StorePaths,
    out: Annotated[
        Path,
        typer.Option(
            "--output", "-o", parser=file_path, metavar="DIR", help="A new or empty directory."
        ),
    ],
    output: Annotated[
        ExportFormat, typer.Option("--format", help="File format.")
    ] = ExportFormat.parquet,
    partition_by: Annotated[
        list[str],
        typer.Option(
            metavar="topic,day", help="One directory per topic, per UTC day, or per both."
        ),
    ] = [],  # noqa: B006 (typer copies it)
    *,
    selection: SelectionFlags,
    tz: Zone = None,
    source: Source,
) -> None:
    """Write messages as Parquet, JSON or CSV files, with Spark.

    The files have all columns of the table messages. The directory does not appear until it is
    complete. Message bodies are checked against their CRCs unless --option checkCRC=false is given.
    """
    with reporting() as said:
        flags = selection.flags(source.config, clock_of(tz))
        flags.update(checking_bodies(source.option))
        # Reports wrong options before Spark starts.
        options = source_options(path, source.option, flags, said.damage)
        partitions = checked_partitions(listed("--partition-by", partition_by))
        check_target(out)
        said.tell_missing(options)
        texts = option_texts(path, source.option, flags)
        export_messages(texts, out, output.value, partitions, said)
        said.nothing_in(out)


def diff(  # noqa: PLR0913 (one parameter a flag)
    a: Annotated[str, typer.Argument(metavar="A", help="The first store root.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other store root.")],
    by: Annotated[
        Way,
        typer.Option(
            help="key: match messages wherever they are; position: match them by queue and offset."
        ),
    ] = Way.key,
    topic: Topic = [],  # noqa: B006 (typer copies it)
    tag: Tag = [],  # noqa: B006 (typer copies it)
    since: Since = None,
    until: Until = None,
    *,
    sql: Sql = None,
    sql_dialect: SqlDialect = None,
    limit: Limit = None,
    source: Source,
    view: View,
) -> None:
    """Show how the messages of two stores differ. The exit code is 1 if they do.

    Topic, unique key, KEYS, tags, flag, born time and the CRC of the body are compared. Bodies are
    checked against their CRCs unless --option checkCRC=false is given.
    """
    with reporting() as said, progress_bars() as progress:
        chosen = SelectionFlags(
            topic, tag=tag, since=since, until=until, sql=sql, sql_dialect=sql_dialect
        )
        flags = {**chosen.flags(source.config, view.clock()), **checking_bodies(source.option)}
        sides = [source_options([path], source.option, flags, said.damage) for path in (a, b)]
        display = view.display()
        found = compare(sides[0], sides[1], by.value, progress.splits)
        progress.hide()
        show_differences(found, display, view.limit(limit), said)
        said.tell_missing(*sides, seen=found.topics)
