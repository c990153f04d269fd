"""The commands of ``rocketmq-store``: arguments in, rows out.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from rmqsource import __version__
from rmqsource.cli_arguments import (
    EXIT_CODES,
    CommandLine,
    Config,
    Ids,
    Key,
    Options,
    Output,
    Paths,
    Since,
    Tag,
    Topic,
    Until,
    filter_flags,
)
from rmqsource.cli_arguments import examples as _examples
from rmqsource.cli_check import check_and_tell, rebuild_index, rebuild_queues
from rmqsource.cli_explore import add_commands
from rmqsource.cli_info import FACTS, store_facts
from rmqsource.cli_messages import show_messages
from rmqsource.cli_output import Format, row_writer, write_record
from rmqsource.cli_read import listed, source_options
from rmqsource.cli_recover import recover as recover_and_tell
from rmqsource.cli_report import reporting
from rmqsource.cli_salvage import add_command as add_salvage
from rmqsource.cli_sink import add_sink_commands
from rmqsource.cli_topics import show_topics
from rmqsource.stores import open_snapshots

if TYPE_CHECKING:
    from rmqsource.options import SourceOptions

_TABLE_LIMIT = 20

app = CommandLine(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Look into the store of a RocketMQ broker, check and repair it; no broker is needed.",
    epilog=EXIT_CODES,
    rich_markup_mode=None,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"rocketmq-store {__version__}")
        raise typer.Exit


@app.callback()
def _first(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_tell_version, help="Tell the version and leave."
        ),
    ] = False,
) -> None:
    """Take what is no command's own."""


Path = Annotated[
    str, typer.Argument(metavar="PATH", help="The store root (storePathRootDir), a local path.")
]


@app.command(
    epilog=_examples("info /data/store", "info '/data/broker-*/store' --format json | jq .log_end")
)
def info(
    path: Paths,
    output: Output = Format.table,
    config: Config = None,
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Tell what a store is: state, log, queues, index files, checkpoint."""
    with reporting() as report:
        options = _table_options("checkpoint", path, config, option)  # takes no selection either
        writer = row_writer(output, FACTS)
        for snapshot in open_snapshots(options):
            with snapshot:
                report.note(*snapshot.kind.notes())
                facts = store_facts(snapshot, report.damage, report.not_read)
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
    config: Config = None,
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Tell who fills the disk: messages, bytes, rates, retention and growth of each topic.

    Rates are over the time from the store's first to its last message; growth compares the newer
    half of that time with the older one; retention is from the topic's oldest message on.
    """
    with reporting() as report:
        options = _table_options("topics", path, config, option)
        show_topics(options, output, report)
        report.nothing("no topic")
        report.tell_missing(options)


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
    topic: Topic = [],  # noqa: B006 (typer copies it)
    key: Key = [],  # noqa: B006 (typer copies it)
    message_id: Ids = [],  # noqa: B006 (typer copies it)
    tag: Tag = [],  # noqa: B006 (typer copies it)
    since: Since = None,
    until: Until = None,
    limit: Annotated[
        int, typer.Option(min=-1, show_default="20 for table, else 0", help="0 shows all.")
    ] = -1,
    output: Output = Format.table,
    config: Config = None,
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Show messages, oldest first as a rule.

    Different options narrow each other; what one of them names more than once is any of these.

    Bodies: a table shows text if they are UTF-8, else 0x and hex, both cut; with --id whole.
    JSON and CSV have the exact bytes in Base64 (body) and the text, if UTF-8 (body_text).
    """
    wanted = limit if limit >= 0 else _TABLE_LIMIT if output is Format.table else 0
    with reporting() as report:
        ids = listed("--id", message_id)
        flags = filter_flags(config, topic, key, tag, since, until)
        show_messages(source_options(path, option, flags), ids, output, wanted, report)


@app.command(
    epilog=_examples(
        "check /data/store",
        "check /data/store --config broker.conf --format json | jq '.findings[].kind'",
    )
)
def check(
    path: Paths,
    output: Output = Format.table,
    config: Config = None,
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Verify a whole store and change nothing: log, queues, index, checkpoint, files.

    Each finding is damage (messages are lost), repairable (the log is good, what is made of it is
    not), or information. Of a live store what was written before is checked. Exit code 1 if there
    is damage or something to repair.
    """
    with reporting() as report:
        options = _table_options("checkpoint", path, config, option)
        for snapshot in open_snapshots(options):
            with snapshot:
                check_and_tell(snapshot, output, report)


@app.command(
    epilog=_examples(
        "recover /data/store --dry-run --format json | jq .bytes_cut",
        "recover /data/store --config broker.conf",
    )
)
def recover(
    path: Path,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, change nothing.")
    ] = False,
    cut: Annotated[
        bool, typer.Option("--cut", help="Cut off readable records behind damage; keep a copy.")
    ] = False,
    output: Output = Format.table,
    config: Config = None,
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Bring a crashed store into the state of a clean stop. No broker may have it open.

    Cuts what is no record behind the end of the log, gives queues and index what they lack.
    """
    with reporting(warnings_are_damage=False) as report:
        options = _table_options("checkpoint", [path], config, option)
        recover_and_tell(options, output, report, dry_run=dry_run, cut=cut)


@app.command(
    "rebuild-index",
    epilog=_examples(
        "rebuild-index /data/store",
        "rebuild-index /data/store --option maxHashSlotNum=5000000 --option maxIndexNum=20000000",
    ),
)
def index(
    path: Path,
    output: Output = Format.table,
    config: Config = None,
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Make the index of a store anew from its log. No broker may have the store open.

    The new files are written beside the old ones and then put in their place at once.
    """
    with reporting() as report:
        options = _table_options("checkpoint", [path], config, option)
        rebuild_index(options, output, report)


@app.command(
    "rebuild-queues",
    epilog=_examples("rebuild-queues /data/store", "rebuild-queues /data/store --accept-moved"),
)
def queues(
    path: Path,
    accept_moved: Annotated[
        bool,
        typer.Option(
            "--accept-moved",
            help="Go on where damage in the log gives messages other queue offsets.",
        ),
    ] = False,
    output: Output = Format.table,
    config: Config = None,
    option: Options = [],  # noqa: B006 (typer copies it)
) -> None:
    """Make all consume queues of a store anew from its log. No broker may have the store open.

    The new files are written beside the old ones and then put in their place at once.
    """
    with reporting() as report:
        options = _table_options("checkpoint", [path], config, option)
        rebuild_queues(options, output, report, accept_moved=accept_moved)


add_commands(app)
add_salvage(app)
add_sink_commands(app)


def _table_options(
    table: str, paths: list[str], config: Optional[str], extra: list[str]
) -> "SourceOptions":
    """Return the options of a table of metadata; those that select messages are refused."""
    flags = {"table": ("the command", table), "config": ("--config", config)}
    return source_options(paths, extra, flags)
