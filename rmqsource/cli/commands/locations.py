# SPDX-License-Identifier: Apache-2.0
"""The commands about where messages are stored: queues, segments, plan.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from typing import Annotated

import typer

from rmqsource.cli.arguments import (
    All,
    SelectionFlags,
    Source,
    StorePaths,
    Topic,
    View,
    examples,
)
from rmqsource.cli.metadata import (
    columns_of,
    for_stores,
    in_bytes,
    only,
    show_rows,
    tell_unknown,
    whole_table,
)
from rmqsource.cli.output import Shape, row_writer, write_record
from rmqsource.cli.read import listed, source_options, table_options
from rmqsource.cli.report import reporting
from rmqsource.cli.times import FailAboveBytes, size
from rmqsource.scan.predicate import from_options
from rmqsource.scan.read_columns import plan_columns, plan_read
from rmqsource.scan.store_versions import open_snapshots
from store_core.arrow import pa, pc

_QUEUES = Shape(
    columns_of("queues")[:-1],
    columns_of("queues"),
    drop=(
        *("store", "min_commit_log_offset", "max_commit_log_offset", "min_store_timestamp"),
        *("max_store_timestamp", "min_offset", "compacted_min_offset", "compacted_max_offset"),
        "compacted_messages",
    ),
)
_SEGMENTS = Shape(
    (
        *("kind", "path", "file_size", "used_bytes", "messages", "first_store_timestamp"),
        "last_store_timestamp",
    ),
    columns_of("segments"),
    drop=("store", "messages", "last_store_timestamp", "first_store_timestamp", "used_bytes"),
    forms={"file_size": in_bytes("file"), "used_bytes": in_bytes("used")},
)
_PLAN = Shape(columns_of("plan"))


def add_location_commands(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog=examples("queues /data/store --topic orders"))(queues)
    app.command(
        epilog=examples(
            "segments /data/store --kind commitlog", "segments /data/store --fail-above 500g"
        )
    )(segments)
    app.command(
        epilog=examples(
            "plan /data/store --topic orders --key K155",
            "plan /data/store --since 1h --format json | jq .bytes_to_read",
        )
    )(plan)


def queues(
    path: StorePaths,
    topic: Topic = [],  # noqa: B006 (typer copies it)
    limit: All = 0,
    *,
    source: Source,
    view: View,
) -> None:
    """Show the first and last message of each queue.

    The columns have their queue offsets, their offsets in the log, and their store times.
    """
    with reporting() as said:
        display = view.display()
        options = table_options("queues", path, source.config, source.option, said.damage, topic)
        rows = whole_table("queues", options)
        show_rows(rows, for_stores(_QUEUES, options), display, limit, said)
        said.nothing("no queue")
        said.tell_missing(options)


def segments(
    path: StorePaths,
    kind: Annotated[
        list[str], typer.Option(help="Kinds of files, comma-separated or repeated.")
    ] = [],  # noqa: B006 (typer copies it)
    fail_above: FailAboveBytes = None,
    limit: All = 0,
    *,
    source: Source,
    view: View,
) -> None:
    """List a store's files: size, used bytes and times.

    --fail-above applies to the total length of all files shown.
    """
    with reporting() as said:
        most, display, kinds = size(fail_above), view.display(), listed("--kind", kind)
        options = table_options("segments", path, source.config, source.option, said.damage)
        table = whole_table("segments", options)
        tell_unknown(kinds, table["kind"], "file of kind", said)
        rows = only(table, "kind", kinds)
        show_rows(rows, for_stores(_SEGMENTS, options), display, limit, said)
        said.nothing("no file")
        held = (pc.sum(rows["file_size"]).as_py() or 0) if rows.num_rows else 0
        text = f"{rows.num_rows:,} files of {in_bytes('').text(held)} ({held:,} bytes)"
        said.note(text)
        if most is not None:
            most.judge(held, text, said)
        said.tell_missing(options)


def plan(path: StorePaths, selection: SelectionFlags, *, source: Source, view: View) -> None:
    """Show how `messages` would read a store, and why.

    Give it the same options as messages. It shows how much of the log would be read and how much
    skipped.
    """
    with reporting() as said:
        display = view.display()
        flags = selection.flags(source.config, view.clock())
        options = source_options(path, source.option, flags, said.damage)
        writer = row_writer(display, _PLAN)
        plans = plan_read(options, from_options(options))
        for snapshot in open_snapshots(options):
            with snapshot:
                said.note(*snapshot.kind.unread())
        for row in pa.table(plan_columns(plans)).to_pylist():
            if display.is_table:
                write_record({k: v for k, v in row.items() if v is not None}, display)
            else:
                writer.write(row)
        if not display.is_table:
            writer.close()
        said.tell_missing(options)
