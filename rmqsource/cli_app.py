"""The commands of ``rocketmq-store``: arguments in, rows out.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqsource.cli_info import FACTS, store_facts
from rmqsource.cli_output import Format, row_writer, write_record
from rmqsource.cli_read import (
    MESSAGE_COLUMNS,
    id_options,
    read_messages,
    read_table,
    rows_of,
    source_options,
)
from rmqsource.cli_report import reporting, scan_progress
from rmqsource.stores import open_snapshots
from rmqsource.tables import CORRUPT_RECORD, TABLES
from store_core.files.store_directory import expand_paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.cli_report import Report
    from rmqsource.options import SourceOptions

_TABLE_COLUMNS = (
    *("store_timestamp", "topic", "queue_id", "queue_offset"),
    *("tags", "keys", "body"),
)
_TABLE_LIMIT = 20
_EXIT_CODES = (
    "Exit codes: 0 good, 1 found damage or nothing, 2 wrong use. JSON is one object per line; "
    "times in tables are UTC."
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Look into the store of a RocketMQ broker; no broker is needed, nothing is changed.",
    epilog=_EXIT_CODES,
    rich_markup_mode=None,
)

Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Store roots (storePathRootDir): paths, globs or URIs."),
]
Output = Annotated[Format, typer.Option("--format", help="How rows are written.")]
Config = Annotated[
    str, typer.Option(metavar="BROKER.CONF", help="The broker's configuration file, for sizes.")
]
Options = Annotated[
    list[str], typer.Option("--option", metavar="KEY=VALUE", help="Any option of the source.")
]


def _examples(*lines: str) -> str:
    return "\n\n".join(["Examples:", *(f"rocketmq-store {line}" for line in lines), _EXIT_CODES])


@app.command(
    epilog=_examples("info /data/store", "info '/data/broker-*/store' --format json | jq .log_end")
)
def info(
    path: Paths,
    output: Output = Format.table,
    config: Config = "",
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Tell what a store is: state, log, queues, index files, checkpoint."""
    with reporting() as report:
        options = _table_options("checkpoint", path, config, option)  # takes no selection either
        writer = row_writer(output, FACTS)
        for snapshot in open_snapshots(options):
            with snapshot:
                facts = store_facts(snapshot, report.damage)
            if output is Format.table:
                write_record(facts)
            else:
                writer.write(facts)
        if output is not Format.table:
            writer.close()


@app.command(
    epilog=_examples(
        "topics /data/store", "topics /data/store --option topicPattern='%RETRY%.*' --format csv"
    )
)
def topics(
    path: Paths,
    output: Output = Format.table,
    config: Config = "",
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """List the topics with their queues, messages, bytes and times."""
    with reporting() as report:
        options = _table_options("topics", path, config, option)
        columns = [column.name for column in TABLES["topics"].columns]
        if output is Format.table and len(expand_paths(options.paths)) == 1:
            columns.remove("store")
        writer = row_writer(output, columns)
        for batch in read_table("topics", options):
            for row in rows_of(batch):
                report.rows += 1
                writer.write(row)
        writer.close()
        report.nothing("no topic")


@app.command(
    epilog=_examples(
        "messages /data/store --topic orders --limit 5",
        "messages /data/store --topic orders --key K155",
        "messages /data/store --id 7F00000100002A9F00000000000184C4",
        "messages /data/store --since 2026-01-31T09:00:00Z --format json",
        "messages /data/store --option mode=PERMISSIVE --format csv",
    )
)
def messages(  # noqa: PLR0913, PLR0917 (one parameter a flag)
    path: Paths,
    topic: Annotated[str, typer.Option(help="Topics, separated by commas.")] = "",
    key: Annotated[list[str], typer.Option(help="A word of KEYS; may be repeated.")] = [],  # noqa: B006 (typer copies it)
    message_id: Annotated[
        str, typer.Option("--id", help="An offset message id, or a unique key (client's id).")
    ] = "",
    tag: Annotated[str, typer.Option(help="A tag expression: TagA || TagB.")] = "",
    since: Annotated[
        str, typer.Option(help="Store time, inclusive: ISO 8601 with offset, or ms.")
    ] = "",
    until: Annotated[
        str, typer.Option(help="Store time, exclusive: ISO 8601 with offset, or ms.")
    ] = "",
    limit: Annotated[
        int, typer.Option(min=-1, show_default="20 for table, else 0", help="0 shows all.")
    ] = -1,
    output: Output = Format.table,
    config: Config = "",
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Show messages, oldest first as a rule.

    Bodies: a table shows text if they are UTF-8, else 0x and hex, both cut; with --id whole.
    JSON and CSV have the exact bytes in Base64 (body) and the text, if UTF-8 (body_text).
    """
    flags = {
        "config": ("--config", config),
        "topic": ("--topic", topic),
        "keys": ("--key", json.dumps(key) if key else ""),
        "tags": ("--tag", tag),
        "startingTimestamp": ("--since", since),
        "endingTimestamp": ("--until", until),
    }
    wanted = limit if limit >= 0 else _TABLE_LIMIT if output is Format.table else 0
    with reporting() as report:
        for name, value in id_options(message_id) if message_id else [("", "")]:
            given = {**flags, name: ("--id", value)} if name else flags
            options = source_options(path, option, given)
            _show_messages(options, output, wanted, report, in_full=bool(message_id))
            if report.rows and name:
                kind = "offset message id" if name == "messageIds" else "unique key"
                report.note(f"found by {kind}")
            if report.rows:
                return
        if output is Format.csv:
            row_writer(output, MESSAGE_COLUMNS).close()
        report.nothing("no message matches")


def _table_options(table: str, paths: list[str], config: str, extra: list[str]) -> "SourceOptions":
    """Return the options of a table of metadata; those that select messages are refused."""
    flags = {"table": ("the command", table), "config": ("--config", config)}
    return source_options(paths, extra, flags)


def _show_messages(
    options: "SourceOptions", output: Format, limit: int, report: "Report", *, in_full: bool
) -> None:
    """Write the messages of one read; rows of damage go to the report."""
    in_table = output is Format.table
    columns = _TABLE_COLUMNS if in_table and not in_full else MESSAGE_COLUMNS
    writer: Any = None
    with scan_progress() as progress:
        for row in _messages(options, columns, progress.splits, report):
            if limit and report.rows == limit:
                progress.stop()
                if writer is not None:
                    writer.close()
                report.note(f"there is more than these {limit}: --limit 0 shows all")
                return
            report.rows += 1
            if in_table and in_full:
                progress.stop()
                write_record(row)
                continue
            if sys.stdout.isatty() and not in_table:
                progress.stop()
            writer = writer or row_writer(output, columns)
            writer.write(row)
    if writer is not None:
        writer.close()


def _messages(
    options: "SourceOptions", columns: tuple[str, ...], progress: Any, report: "Report"
) -> "Iterator[dict[str, Any]]":
    for batch in read_messages(options, columns, progress):
        for row in rows_of(batch):
            corrupt = row.pop(CORRUPT_RECORD.name, None)
            if corrupt is not None:
                report.damage(corrupt)
            else:
                yield row
