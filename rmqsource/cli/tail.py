"""The command that follows topics of a running cluster: tail.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from typing import Annotated, Optional

import typer

from rmqsource.cli.arguments import (
    Flags,
    Options,
    Since,
    Sql,
    SqlDialect,
    Tag,
    Topic,
    View,
    examples,
)
from rmqsource.cli.cluster_source import ClusterSource
from rmqsource.cli.read import tag_expression
from rmqsource.cli.report import reporting

_DEFAULTS = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "10000"}
"""What expired before it could be shown is told, and what waits is shown in parts."""


def add_tail_command(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog=examples(
            "tail --namesrv 10.0.0.5:9876 --topic orders",
            "tail --namesrv 10.0.0.5:9876 --topic orders --tag paid --since 10m",
            "tail --namesrv 10.0.0.5:9876 --topic orders --limit 100 --format json",
        )
    )(tail)


def tail(  # noqa: PLR0913 (one parameter a flag)
    topic: Topic = [],  # noqa: B006 (typer copies it)
    tag: Tag = [],  # noqa: B006 (typer copies it)
    sql: Sql = None,
    sql_dialect: SqlDialect = None,
    since: Since = None,
    until: Annotated[
        Optional[str],
        typer.Option(metavar="TIME", help="End then; messages stored later are not shown."),
    ] = None,
    limit: Annotated[Optional[int], typer.Option(min=1, help="End after so many messages.")] = None,
    option: Options = [],  # noqa: B006 (typer copies it)
    *,
    cluster: ClusterSource,
    view: View,
) -> None:
    """Show messages of a running cluster as they come.

    From now on, or --since a time. New queues and brokers are taken up; a broker that is away is
    waited for. No consumer group is joined, and no offset is noted. Ctrl-C and SIGTERM end it
    with code 0.
    """
    with reporting(warnings_are_damage=False) as said:
        clock, display = view.clock(), view.display()
        begin = clock.window(since, until)[0]
        flags: Flags = {
            "topic": ("--topic", topic),
            "tags": ("--tag", tag_expression(tag)),
            "sqlFilter": ("--sql", sql),
            "sqlDialect": ("--sql-dialect", sql_dialect),
            "startingTimestamp": ("--since", begin),
        }
        defaults = dict(_DEFAULTS) if begin else {**_DEFAULTS, "startingOffsets": "latest"}
        options = cluster.live_options(option, flags, streaming=True, defaults=defaults)
        from rmqsource.cli.cluster_tail import Tail, follow  # noqa: PLC0415 (on demand)

        end_ms = None if until is None else clock.instant_ms("--until", until)
        follow(options, Tail(end_ms, limit), display, said)
