# SPDX-License-Identifier: Apache-2.0
"""The commands that write messages or clean up after writes: copy, import, clean-staging.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from rmqsource import clean_staging as clean
from rmqsource.cli.arguments import (
    ExportFormat,
    SelectionFlags,
    Source,
    View,
    examples,
    file_path,
)
from rmqsource.cli.job import spark_job
from rmqsource.cli.output import Format, row_writer, write_result
from rmqsource.cli.read import (
    WrongUseError,
    check_for_spark,
    checking_bodies,
    option_texts,
    source_options,
)
from rmqsource.cli.report import Report, reporting
from rmqsource.errors import SourceOptionError
from rmqsource.sink.options import parse_sink_options
from store_core.errors import StoreReadError
from store_core.files.store_directory import StoreDirectory, local_path
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.staged_commit.staging import STAGING_DIRECTORY

if TYPE_CHECKING:
    from rmqsource.transfer.copy_store import Copied

_HOUR_MS = 3_600_000
_DAY_HOURS = 24

WriteOptions = Annotated[
    list[str],
    typer.Option(
        "--write-option", metavar="KEY=VALUE", help="Any option of the Spark sink; may be repeated."
    ),
]


def add_sink_commands(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        epilog=examples(
            "copy /data/store /data/new",
            "copy /data/store /data/new --topic orders --since 2026-01-31T09:00:00Z",
            "copy /backup/store /data/store --write-option compatibility=5",
        )
    )(copy)
    app.command(
        "import",
        epilog=examples(
            "import orders /data/new", "import all /data/new --write-option systemTopics=true"
        ),
    )(import_)
    app.command(
        "clean-staging",
        epilog=examples("clean-staging /data/store", "clean-staging /data/store --older-than 1"),
    )(clean_staging)


def copy(
    src: Annotated[str, typer.Argument(metavar="SRC", help="The store root to read.")],
    target: Annotated[
        str, typer.Argument(metavar="DST", help="The store root to append to; created if missing.")
    ],
    selection: SelectionFlags,
    write_option: WriteOptions = [],  # noqa: B006 (typer copies it)
    *,
    source: Source,
    view: View,
) -> None:
    """Append messages of one store to another, with Spark.

    Either all of them are appended or none. Topic, queue, properties, body, flag, born time and
    host stay as they are; offsets and store times are new. System, retry and dead-letter topics are
    skipped and counted unless --write-option systemTopics=true is given, because a broker would
    deliver or check their messages again. No broker may have DST open. Message bodies are checked
    against their CRCs unless --option checkCRC=false is given.
    """
    target = local_path(target)
    with reporting() as said:
        flags = selection.flags(source.config, view.clock())
        flags.update(checking_bodies(source.option))
        display = view.display()
        # Reports wrong options before Spark starts.
        options = source_options([src], source.option, flags, said.damage)
        said.tell_missing(options)
        sink = _sink_options(target, write_option)
        if Path(local_path(src)).resolve() == Path(target).resolve():
            raise WrongUseError("copy: SRC and DST are the same store")
        with _no_empty_store(target), spark_job("copy", "copying") as spark:
            from rmqsource.transfer.copy_store import copy_store  # noqa: PLC0415 (needs Spark)

            texts = option_texts([src], source.option, flags)
            done = copy_store(spark, texts, target, sink)
        if not display.is_table:
            write_result(copied_row(target, done), display)
        _tell("copied", target, done, said)


def import_(
    directory: Annotated[
        Path, typer.Argument(parser=file_path, metavar="DIR", help="A directory that export wrote.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="PATH", help="The store root to append to; created if missing.")
    ],
    file_format: Annotated[
        Optional[ExportFormat],
        typer.Option("--format", show_default="that of the files", help="File format."),
    ] = None,
    write_option: WriteOptions = [],  # noqa: B006 (typer copies it)
) -> None:
    """Append the messages of an export to a store, with Spark.

    Either all of them are appended or none. Topic, queue, order, properties, body, flag, born time
    and host are restored; offsets and store times are new. System, retry and dead-letter topics are
    skipped and counted unless --write-option systemTopics=true is given. No broker may have PATH
    open.
    """
    target = local_path(target)
    with reporting() as said:
        check_for_spark("import", directory)
        sink = _sink_options(target, write_option)
        # Needs Spark's modules, which take a while to load.
        from rmqsource.transfer.import_store import (  # noqa: PLC0415
            NotAnExportError,
            format_of,
            import_messages,
        )

        try:
            kind = format_of(directory, file_format.value if file_format else None)
            with _no_empty_store(target), spark_job("import", "importing") as spark:
                done = import_messages(spark, directory, kind, target, sink)
        except NotAnExportError as err:
            raise WrongUseError(f"import {err}") from err
        _tell("imported", target, done, said)


@contextmanager
def _no_empty_store(target: str) -> Iterator[None]:
    """If the block fails, remove the directories that it created and left empty."""
    was_there = Path(target).exists()
    try:
        yield
    except BaseException:
        if not was_there:
            for made in (Path(target, STAGING_DIRECTORY), Path(target)):
                with suppress(OSError):
                    made.rmdir()
        raise


def copied_row(target: str, done: "Copied") -> dict[str, Any]:
    """Return the result of a copy, by name."""
    made = done.commit
    return {
        "store": target,
        "messages": made.messages if made else 0,
        "record_bytes": made.record_bytes if made else 0,
        "queues": len(made.queues) if made else 0,
        "left_out": done.skipped,
        "damaged_parts": done.gaps,
    }


def _tell(verb: str, target: str, done: "Copied", said: Report) -> None:
    """Report the messages appended, left out and damaged."""
    if done.gaps:
        said.damage(f"{done.gaps:,} places cannot be read; messages in them were not {verb}")
    if done.skipped:
        said.note(f"skipped: {done.skipped:,} messages of system, retry or dead-letter topics")
    if done.commit is None:
        said.nothing(f"nothing was {verb}")
        return
    made = done.commit
    said.note(
        f"{target}: {made.messages:,} messages, {made.record_bytes:,} bytes, in "
        f"{len(made.queues):,} queues"
    )


def clean_staging(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The store root.")],
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than",
            min=0,
            metavar="HOURS",
            help="How long a write must have written nothing.",
        ),
    ] = _DAY_HOURS,
    *,
    view: View,
) -> None:
    """Delete staged messages of writes that never committed.

    Every write also does this, for writes that have written nothing for a day. A write that is
    still running but has written nothing for the given time loses its staged messages and fails.
    """
    path = local_path(path)
    with reporting() as said:
        store = StoreDirectory(path)
        if not store.is_local:
            raise WrongUseError(f"{store.uri}: only stores on this machine have staged messages")
        try:
            is_there = Path(path).is_dir()
        except OSError as err:
            raise WrongUseError(f"{path}: {err.strerror}") from err
        if not is_there:
            raise WrongUseError(f"{path}: no such directory")
        if not Path(path, STAGING_DIRECTORY).exists():
            with suppress(StoreReadError):
                StoreSnapshot(path).close()  # raises where there is no store
        removed = clean(path, round(older_than * _HOUR_MS))
        display = view.display()
        if display.is_table:
            for directory, size in removed:
                said.note(f"deleted {directory}: {size:,} bytes")
            if not removed:
                said.note("nothing to delete")
            return
        rows = [{"directory": directory, "bytes": size} for directory, size in removed]
        if display.output is Format.json:
            write_result({"store": path, "deleted": rows}, display)
            return
        writer = row_writer(display, ("directory", "bytes"))
        for row in rows:
            writer.write(row)
        writer.close()


def _sink_options(target: str, texts: list[str]) -> dict[str, str]:
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise WrongUseError(f"--write-option: expected KEY=VALUE; found {text!r}")
        options[name] = value
    try:
        parse_sink_options({**options, "path": target})
    except SourceOptionError as err:
        raise WrongUseError(f"--write-option {err.option}: {err.reason}") from err
    return options
