"""Arguments that several commands of ``rocketmq-store`` take.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

import json
from enum import Enum
from typing import Annotated

import typer

from rmqsource.cli_output import Format

EXIT_CODES = (
    "Exit codes: 0 good, 1 found damage, a difference or nothing, 2 wrong use or not readable, "
    "3 recovered by a cut, 130 interrupted. JSON is one object per line; times in tables are UTC."
)

Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Store roots (storePathRootDir): paths, globs or URIs."),
]
Output = Annotated[Format, typer.Option("--format", help="How rows are written.")]
Config = Annotated[
    str,
    typer.Option(
        metavar="BROKER.CONF", help="The broker's configuration file: sizes, delay levels."
    ),
]
Options = Annotated[
    list[str], typer.Option("--option", metavar="KEY=VALUE", help="Any option of the source.")
]
Topic = Annotated[str, typer.Option(help="Topics, separated by commas.")]
Key = Annotated[list[str], typer.Option(help="A word of KEYS; may be repeated.")]
Tag = Annotated[str, typer.Option(help="A tag expression: TagA || TagB.")]
Since = Annotated[str, typer.Option(help="Store time, inclusive: ISO 8601 with offset, or ms.")]
Until = Annotated[str, typer.Option(help="Store time, exclusive: ISO 8601 with offset, or ms.")]


class ExportFormat(str, Enum):
    """What kind of files an export makes."""

    parquet = "parquet"
    json = "json"
    csv = "csv"


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples, and what the exit codes mean."""
    return "\n\n".join(["Examples:", *(f"rocketmq-store {line}" for line in lines), EXIT_CODES])


def filter_flags(
    config: str,
    topic: str = "",
    key: list[str] = [],  # noqa: B006 (never changed)
    tag: str = "",
    since: str = "",
    until: str = "",
) -> dict[str, tuple[str, str]]:
    """Return what the flags that select messages say, by option of the source."""
    return {
        "config": ("--config", config),
        "topic": ("--topic", topic),
        "keys": ("--key", json.dumps(key) if key else ""),
        "tags": ("--tag", tag),
        "startingTimestamp": ("--since", since),
        "endingTimestamp": ("--until", until),
    }
