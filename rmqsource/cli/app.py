# SPDX-License-Identifier: Apache-2.0
"""The commands of ``rocketmq-store``, from arguments to rows.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from rmqsource import __version__
from rmqsource.cli.arguments import (
    All,
    AnyPaths,
    ClusterSource,
    CommandLine,
    GivenFlags,
    Ids,
    Limit,
    QueueIds,
    SelectionFlags,
    Source,
    StorePaths,
    Topic,
    View,
    examples,
)
from rmqsource.cli.arguments import examples as _examples
from rmqsource.cli.check import (
    Accepted,
    check_and_tell,
    config_to_write,
    one_path,
    rebuild_index,
    rebuild_queues,
    tell_lost_log,
)
from rmqsource.cli.commands.backlog import add_group_commands, add_waiting_commands
from rmqsource.cli.commands.explore import add_commands
from rmqsource.cli.commands.follow import add_follow_command
from rmqsource.cli.commands.locations import add_location_commands
from rmqsource.cli.commands.send import add_send_command, add_tail_command
from rmqsource.cli.commands.serve import add_serve_command
from rmqsource.cli.commands.sink import add_sink_commands
from rmqsource.cli.info import FACTS, store_facts
from rmqsource.cli.output import Display, Format, Shape, row_writer, write_record, write_result
from rmqsource.cli.read import Grep, listed, table_options
from rmqsource.cli.recover import recover as recover_and_tell
from rmqsource.cli.report import Report, progress_bars, reporting
from rmqsource.cli.row_source import MessageChoice, show_messages
from rmqsource.cli.times import now_ms
from rmqsource.exit_codes import EXIT_CODES
from rmqsource.scan.store_versions import open_snapshots
from store_core.config.config_files import warn_of_static_topics
from store_core.native import path_name
from store_core.tools.salvage import (
    SalvageOptions,
    SalvageReport,
    checked_target,
    report_path,
    salvage_store,
)

if TYPE_CHECKING:
    from rmqsource.options.source_options import SourceOptions

_SHOWN = 10
app = CommandLine(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Inspect, check and repair the store of a RocketMQ broker; no broker is needed. "
    "With --namesrv, topics, messages, lag, send and tail use a running cluster.",
    epilog=EXIT_CODES,
    rich_markup_mode=None,
)


# Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
def add_salvage(app: typer.Typer) -> None:
    """Add the command salvage."""
    app.command(
        epilog=examples(
            "salvage /data/store /data/new-store",
            "salvage /data/store /data/new-store --config broker.conf --format json | jq .notes",
        )
    )(salvage)


def salvage(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The damaged store. It is only read.")
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="A new directory for the new store.")],
    *,
    source: Source,
    view: View,
) -> None:
    """Copy everything readable in a damaged store to a new one.

    Records keep their order and bytes. After lost records, physical and queue offsets change, and
    consumer offsets are changed to match. OUT.salvage.json lists these changes and each damaged
    part. OUT does not appear until it is complete. The exit code is 1 if anything was lost.
    """
    with reporting() as said:
        options = table_options("checkpoint", [path], source.config, source.option, said.damage)
        salvage_and_tell(options, out, view.display(), said)


def salvage_and_tell(options: "SourceOptions", out: str, display: Display, report: Report) -> None:
    """Salvage a store and report the result."""
    path = one_path(options)
    for view in open_snapshots(options):
        with view:
            checked_target(view, out)  # before reports on an impossible salvage
    if tell_lost_log(options, report):
        return
    config = config_to_write(options, report)
    with progress_bars() as bars:
        done = SalvageOptions(clock=now_ms, progress=bars.step, warn=report.damage)
        found = salvage_store(path, out, config, done)
    report.rows = found.records
    row = found.as_dict() if display.output is Format.json else salvage_row(found)
    write_result(row, display)
    _tell_losses(found, report)


def salvage_row(found: SalvageReport) -> dict[str, Any]:
    """Return the totals of a salvage by name."""
    return {
        "source": found.source,
        "target": found.target,
        "report": str(report_path(found.target)),
        "records": found.records,
        "record_bytes": found.record_bytes,
        "log_begin": found.log_begin,
        "log_end": found.log_end,
        "log_ends_because": found.log_ends_because,
        "damaged_parts": len(found.gaps),
        "damaged_records": len(found.rejected),
        "undecodable_records": len(found.undecodable),
        "lost_bytes": found.lost_bytes,
        "missing_messages": found.missing_messages,
        "corrected_store_times": len(found.corrected_times),
        "queues": len(found.queues),
        "queues_with_other_offsets": found.moved_queues,
        "empty_queues_kept": found.kept_queues,
    }


def _tell_losses(found: SalvageReport, report: Report) -> None:
    for note in found.notes:
        report.note(note)
    for gap in found.gaps[:_SHOWN]:
        report.damage(
            f"{gap.path} at byte {gap.position}: {gap.bytes_lost} bytes hold no record "
            f"({gap.reason})"
        )
    for record in found.rejected[:_SHOWN]:
        report.damage(
            f"record at offset {record.commit_log_offset} (queue {record.queue_id} of topic "
            f"{record.topic!r}, queue offset {record.queue_offset}): {record.reason}"
        )
    for record in found.undecodable[:_SHOWN]:
        report.damage(
            f"record at offset {record.commit_log_offset} (queue {record.queue_id} of topic "
            f"{record.topic!r}, queue offset {record.queue_offset}): copied unchanged; "
            f"{record.reason}"
        )
    if found.lost_end is not None:
        report.damage(str(found.lost_end))
    lists = (found.gaps, found.rejected, found.undecodable)
    more = sum(max(len(some) - _SHOWN, 0) for some in lists)
    if more:
        report.damage(f"{more} more damaged parts and records: see {report_path(found.target)}")


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"rocketmq-store {__version__} ({path_name()})")
        raise typer.Exit


@app.callback()
def _first(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_tell_version,
            help="Show the version, and whether the native kernel runs, and exit.",
        ),
    ] = False,
) -> None:
    """Take the options that belong to no command."""


Path = Annotated[
    str, typer.Argument(metavar="PATH", help="The store root (storePathRootDir), a local path.")
]


@app.command(
    epilog=_examples("info /data/store", "info '/data/broker-*/store' --format json | jq .log_end")
)
def info(
    path: StorePaths,
    source: Source,
    view: View,
) -> None:
    """Summarize a store: state, log, queues, index, disk."""
    with reporting() as report:
        options = table_options("checkpoint", path, source.config, source.option, report.damage)
        display = view.display()
        writer = row_writer(display, Shape(FACTS))
        for snapshot in open_snapshots(options):
            with snapshot:
                report.note(*snapshot.kind.notes())
                warn_of_static_topics(snapshot.directory)
                facts = store_facts(snapshot, options, report.damage, report.not_read)
            if display.is_table:
                write_record(facts, display)
            else:
                writer.write(facts)
        if not display.is_table:
            writer.close()


@app.command(
    epilog=_examples(
        "topics /data/store",
        "topics /data/store --option topicPattern='%RETRY%.*' --format csv",
        "topics --namesrv 10.0.0.5:9876",
    )
)
def topics(
    path: AnyPaths = None,
    topic: Topic = [],  # noqa: B006 (typer copies it)
    limit: All = 0,
    *,
    cluster: ClusterSource,
    source: Source,
    view: View,
) -> None:
    """Show how much disk each topic uses, and how fast it grows.

    With --namesrv, show a running cluster's topics with their queues, messages and offsets.

    Rates are averages from the store's first message to its last. Growth compares the newer half of
    that time with the older half. Retention is the time from the topic's oldest message to the
    newest message of all topics shown.
    """
    with reporting() as report:
        flags: GivenFlags = {"topic": ("--topic", topic)}
        rows = cluster.rows(path or [], source, flags, report, "topics")
        rows.show_topics(view.display(), limit)
        report.nothing("no topic")
        rows.tell_missing()


@app.command(
    epilog=_examples(
        "messages /data/store --topic orders --limit 5",
        "messages /data/store --topic orders --key K155",
        "messages /data/store --last 5 --tz +08:00",
        "messages /data/store --topic orders --follow --grep 'buyer=47|overdue'",
        "messages /data/store --where \"queue_id = 3 AND tags = 'TagA'\" --since 1h",
        "messages /data/store --id 7F00000100002A9F00000000000184C4",
        "messages /data/store --since 2026-01-31T09:00:00Z --format json",
        "messages /data/store --option mode=PERMISSIVE --format csv",
        "messages --namesrv 10.0.0.5:9876 --topic orders --key K155",
    )
)
def messages(  # noqa: PLR0913 (one parameter a flag)
    path: AnyPaths = None,
    queue: QueueIds = [],  # noqa: B006 (typer copies it)
    *,
    selection: SelectionFlags,
    message_id: Ids = [],  # noqa: B006 (typer copies it)
    grep: Annotated[
        Optional[str],
        typer.Option(
            metavar="REGEX",
            help="Only messages with a match in the body or in a NAME=VALUE property.",
        ),
    ] = None,
    last: Annotated[
        Optional[int],
        typer.Option(min=1, metavar="N", help="Show the N newest messages, newest first."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Show the newest messages, then new ones until Ctrl-C."
        ),
    ] = False,
    limit: Limit = None,
    cluster: ClusterSource,
    source: Source,
    view: View,
) -> None:
    """Show messages, oldest first unless --last is given.

    Different options are combined with AND; several values of one option with OR.

    A table shows a body as text if it is UTF-8, otherwise as 0x and hex digits, and shortens it.
    With --id bodies are shown in full. JSON and CSV have the exact bytes in Base64 (body), and the
    text if the body is UTF-8 (body_text).
    """
    with reporting() as report:
        display = view.display()
        flags = selection.flags(source.config, view.clock())
        flags["queueId"] = ("--queue", queue)
        ids = listed("--id", message_id)
        wanted = MessageChoice(ids, limit, last, follow, None if grep is None else Grep(grep))
        most = 0 if last is not None or follow else view.limit(limit)
        defaults = {"topicPattern": ".*"} if ids and not selection.topic else None
        rows = cluster.rows(path or [], source, flags, report, defaults=defaults)
        show_messages(rows, wanted, display, most, report)


@app.command(
    epilog=_examples(
        "check /data/store",
        "check /data/store --config broker.conf --format json | jq '.findings[].kind'",
    )
)
def check(
    path: StorePaths,
    source: Source,
    view: View,
) -> None:
    """Check a whole store without changing it.

    The check covers the log with all message bodies, the queues, index, checkpoint and files.

    A finding is damage (messages are lost or wrong), repairable (the log is intact, but files
    derived from it or next to it are not), not checked, or information. Of a store that is in use,
    only what was written before the check began is checked. The exit code is 1 if there is damage
    or something to repair, and 2 if a part could not be checked.
    """
    with reporting() as report:
        options = table_options("checkpoint", path, source.config, source.option, report.damage)
        for snapshot in open_snapshots(options):
            with snapshot:
                check_and_tell(snapshot, view.display(), report)


@app.command(
    epilog=_examples(
        "recover /data/store --dry-run --format json | jq .bytes_cut",
        "recover /data/store --config broker.conf",
    )
)
def recover(
    path: Path,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
    ] = False,
    cut: Annotated[
        bool,
        typer.Option(
            "--cut", help="Cut off even readable records after damage; keep a copy of them."
        ),
    ] = False,
    *,
    source: Source,
    view: View,
) -> None:
    """Bring a crashed store to the state of a clean stop. No broker may have it open.

    Bytes after the end of the log that are not records are cut off, and missing entries are added
    to queues and index.
    """
    with reporting() as report:
        options = table_options("checkpoint", [path], source.config, source.option, report.damage)
        recover_and_tell(options, view.display(), report, dry_run=dry_run, cut=cut)


@app.command(
    "rebuild-index",
    epilog=_examples(
        "rebuild-index /data/store",
        "rebuild-index /data/store --option maxHashSlotNum=5000000 --option maxIndexNum=20000000",
    ),
)
def index(
    path: Path,
    source: Source,
    view: View,
) -> None:
    """Rebuild a store's index from its log. No broker may have the store open.

    The new files are written next to the old ones. When they are complete, they replace the old
    ones.
    """
    with reporting() as report:
        options = table_options("checkpoint", [path], source.config, source.option, report.damage)
        rebuild_index(options, view.display(), report)


@app.command(
    "rebuild-queues",
    epilog=_examples(
        "rebuild-queues /data/store --dry-run",
        "rebuild-queues /data/store",
        "rebuild-queues /data/store --accept-moved",
    ),
)
def queues(
    path: Path,
    accept_moved: Annotated[
        bool,
        typer.Option(
            "--accept-moved",
            help="Continue even if messages get queue offsets other than those consumers know.",
        ),
    ] = False,
    accept_lost: Annotated[
        bool,
        typer.Option(
            "--accept-lost", help="Continue even if queues lose messages that are in the log."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would be done; change nothing."),
    ] = False,
    *,
    source: Source,
    view: View,
) -> None:
    """Rebuild all of a store's consume queues from its log. No broker may have the store open.

    The new files are written next to the old ones. When they are complete, they replace the old
    ones. A dry run writes them to the directory for temporary files (TMPDIR) and removes them.
    """
    accepted = Accepted(moved=accept_moved, lost=accept_lost)
    with reporting() as report:
        options = table_options("checkpoint", [path], source.config, source.option, report.damage)
        rebuild_queues(options, view.display(), report, None if dry_run else accepted)


add_commands(app)


add_group_commands(app)


add_waiting_commands(app)


add_location_commands(app)


add_salvage(app)


add_sink_commands(app)


add_follow_command(app)


add_serve_command(app)


add_send_command(app)


add_tail_command(app)
