"""The commands that write messages, or tidy up after writes: copy, clean-staging.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from pathlib import Path
from typing import Annotated

import typer

from rmqsource import clean_staging as clean
from rmqsource.cli_arguments import (
    Config,
    Key,
    Options,
    Since,
    Tag,
    Topic,
    Until,
    examples,
    filter_flags,
)
from rmqsource.cli_job import spark_job
from rmqsource.cli_read import WrongUseError, option_texts, source_options
from rmqsource.cli_report import reporting
from rmqsource.errors import SourceOptionError
from rmqsource.sink.options import parse_sink_options

_HOUR_MS = 3_600_000
_DAY_HOURS = 24


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
        "clean-staging",
        epilog=examples("clean-staging /data/store", "clean-staging /data/store --older-than 1"),
    )(clean_staging)


def copy(  # noqa: PLR0913, PLR0917 (one parameter a flag)
    source: Annotated[str, typer.Argument(metavar="SRC", help="The store root to read.")],
    target: Annotated[
        str, typer.Argument(metavar="DST", help="The store root to append to; made if missing.")
    ],
    topic: Topic = "",
    key: Key = [],  # noqa: B006 (typer copies it)
    tag: Tag = "",
    since: Since = "",
    until: Until = "",
    config: Config = "",
    option: Options = [],  # noqa: B006 (typer copies it)
    write_option: Annotated[
        list[str],
        typer.Option("--write-option", metavar="KEY=VALUE", help="Any option of the sink."),
    ] = [],  # noqa: B006 (typer copies it)
) -> None:
    """Append messages of one store to another, with Spark; all of them or none.

    Topic, queue, properties, body, flag, born time and host stay; offsets and store times are those
    of the new place. System, retry and dead-letter topics are left out and counted, unless
    --write-option systemTopics=true: a broker would deliver or check their messages again. No
    broker may have DST open.
    """
    with reporting(warnings_are_damage=False) as said:
        flags = filter_flags(config, topic, key, tag, since, until)
        source_options([source], option, flags)  # tells what is wrong before Spark starts
        sink = _sink_options(target, write_option)
        if Path(source).resolve() == Path(target).resolve():
            raise WrongUseError("copy: SRC and DST are the same store")
        with spark_job("copy", "copying") as spark:
            from rmqsource.copy_store import copy_store  # noqa: PLC0415 (needs Spark)

            texts = option_texts([source], option, flags)
            done = copy_store(spark, texts, target, sink)
        if done.skipped:
            said.note(f"left out: {done.skipped:,} messages of system, retry or dead-letter topics")
        if done.commit is None:
            said.nothing("nothing was copied")
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
        typer.Option("--older-than", min=0, metavar="HOURS", help="Since anything was written."),
    ] = _DAY_HOURS,
) -> None:
    """Delete what writes staged and never committed. Every write does so for a day's leftovers.

    A write that is running, but has written nothing for so long, loses what it staged and fails.
    """
    with reporting(warnings_are_damage=False) as said:
        if not Path(path).is_dir():
            raise WrongUseError(f"{path}: no such directory")
        removed = clean(path, round(older_than * _HOUR_MS))
        for directory, size in removed:
            said.note(f"deleted {directory}: {size:,} bytes")
        if not removed:
            said.note("nothing to delete")


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
