"""The commands that answer questions: trace, report, export, diff.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rmqsource.cli_arguments import (
    Config,
    ExportFormat,
    Ids,
    Key,
    Options,
    Output,
    Paths,
    Since,
    Tag,
    Topic,
    Until,
    examples,
    filter_flags,
)
from rmqsource.cli_export import export_messages
from rmqsource.cli_ids import not_found
from rmqsource.cli_output import Format
from rmqsource.cli_page import write_report
from rmqsource.cli_read import (
    WrongUseError,
    checking_bodies,
    listed,
    option_texts,
    source_options,
)
from rmqsource.cli_report import reporting, scan_progress
from rmqsource.cli_trace import show_differences, show_lives
from rmqsource.diff_stores import diff as compare
from rmqsource.trace import trace as find_lives


class ReportFormat(str, Enum):
    """What a report is written as."""

    html = "html"
    json = "json"


class Way(str, Enum):
    """What messages of two stores are compared by."""

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
    path: Paths,
    key: Key = [],  # noqa: B006 (typer copies it)
    message_id: Ids = [],  # noqa: B006 (typer copies it)
    topic: Topic = [],  # noqa: B006 (typer copies it)
    output: Output = Format.table,
    config: Config = None,
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Tell the life of a message, over one or many stores, as a timeline.

    Sent, stored, half, checked, committed or rolled back, delayed, delivered, retried,
    dead-lettered, with the waits between; and which consumer groups have passed it. --topic is
    where it was sent. With --key and --id it has to have one of each.
    """
    with reporting() as said:
        if not key and not message_id:
            raise WrongUseError("trace: give --key or --id")
        keys, ids = listed("--key", key), listed("--id", message_id)
        options = source_options(path, option, filter_flags(config, topic))
        lives = find_lives(options, keys=keys, ids=ids)
        show_lives(lives, output, said)
        said.nothing("no message matches")
        missing = [text for text in ids if not any(life.has_id(text) for life in lives)]
        said.missing(*not_found(missing, replace(options, keys=tuple(keys) or None)))
        said.tell_missing(options, seen={life.topic for life in lives})


def report(
    path: Paths,
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")],
    topic: Topic = [],  # noqa: B006 (typer copies it)
    since: Since = None,
    until: Until = None,
    output: Annotated[
        ReportFormat, typer.Option("--format", help="A page, or its data.")
    ] = ReportFormat.html,
    config: Config = None,
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Write a page about a store: traffic, disk, sizes, latency, lag, dead letters.

    One file that needs no network. Damage is told in it; the exit code then is 1. Bodies are
    checked against their CRCs, unless --option checkCRC=false.
    """
    with reporting() as said, scan_progress() as progress:
        flags = {**filter_flags(config, topic, since=since, until=until), **checking_bodies(option)}
        options = source_options(path, option, flags)
        write_report(options, out, output.value, progress, said)


def export(  # noqa: PLR0913, PLR0917 (one parameter a flag)
    path: Paths,
    out: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="A new directory.")],
    output: Annotated[
        ExportFormat, typer.Option("--format", help="What kind of files.")
    ] = ExportFormat.parquet,
    partition_by: Annotated[
        str, typer.Option(metavar="topic,day", help="Directories by topic, by UTC day, or both.")
    ] = "",
    topic: Topic = [],  # noqa: B006 (typer copies it)
    key: Key = [],  # noqa: B006 (typer copies it)
    tag: Tag = [],  # noqa: B006 (typer copies it)
    since: Since = None,
    until: Until = None,
    config: Config = None,
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Write messages as Parquet, JSON or CSV files, with Spark; all columns of table messages.

    The directory appears when all is written, not before. Bodies are checked against their CRCs,
    unless --option checkCRC=false.
    """
    with reporting() as said:
        flags = {**filter_flags(config, topic, key, tag, since, until), **checking_bodies(option)}
        # Tells what is wrong before Spark starts.
        said.tell_missing(source_options(path, option, flags))
        texts = option_texts(path, option, flags)
        export_messages(texts, out, output.value, partition_by, said)
        said.nothing("no message matches")


def diff(  # noqa: PLR0913, PLR0917 (one parameter a flag)
    a: Annotated[str, typer.Argument(metavar="A", help="A store root.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    by: Annotated[
        Way, typer.Option(help="key: the same messages anywhere; position: at the same places.")
    ] = Way.key,
    topic: Topic = [],  # noqa: B006 (typer copies it)
    tag: Tag = [],  # noqa: B006 (typer copies it)
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=0, help="Most differences to show; 0 shows all.")] = 0,
    output: Output = Format.table,
    config: Config = None,
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Tell which messages two stores do not share. Exit code 0: none, 1: some.

    Compared are topic, unique key, KEYS, tags, flag, born time and the body's CRC, which is
    checked against the body unless --option checkCRC=false.
    """
    with reporting() as said, scan_progress() as progress:
        flags = filter_flags(config, topic, tag=tag, since=since, until=until)
        flags.update(checking_bodies(option))
        sides = [source_options([path], option, flags) for path in (a, b)]
        found = compare(sides[0], sides[1], by.value, progress.splits)
        progress.stop()
        show_differences(found, output, limit, said)
        said.tell_missing(*sides, seen=found.topics)
