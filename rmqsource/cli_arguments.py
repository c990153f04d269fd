"""Arguments that several commands of ``rocketmq-store`` take.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Optional, Union

import typer
import typer.core

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
    Optional[str],
    typer.Option(
        metavar="BROKER.CONF", help="The broker's configuration file: sizes, delay levels."
    ),
]
Options = Annotated[
    list[str], typer.Option("--option", metavar="KEY=VALUE", help="Any option of the source.")
]
_LIST = "separated by commas, or repeated"
Topic = Annotated[list[str], typer.Option(help=f"Topics, {_LIST}.")]
Key = Annotated[
    list[str], typer.Option(help=f"Words of KEYS, {_LIST}; as a JSON array with commas.")
]
Ids = Annotated[
    list[str],
    typer.Option("--id", help=f"Offset message ids, or unique keys (client's ids), {_LIST}."),
]
Tag = Annotated[list[str], typer.Option(help="A tag expression, TagA || TagB; may be repeated.")]
Since = Annotated[
    Optional[str], typer.Option(help="Store time, inclusive: ISO 8601 with offset, or ms.")
]
Until = Annotated[
    Optional[str], typer.Option(help="Store time, exclusive: ISO 8601 with offset, or ms.")
]

Flags = dict[str, tuple[str, Union[str, list[str], None]]]
"""By option of the source: the flag that stands for it, and what was given."""


class ExportFormat(str, Enum):
    """What kind of files an export makes."""

    parquet = "parquet"
    json = "json"
    csv = "csv"


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples, and what the exit codes mean."""
    return "\n\n".join(["Examples:", *(f"rocketmq-store {line}" for line in lines), EXIT_CODES])


def filter_flags(
    config: Optional[str],
    topic: list[str] = [],  # noqa: B006 (never changed)
    key: list[str] = [],  # noqa: B006 (never changed)
    tag: list[str] = [],  # noqa: B006 (never changed)
    since: Optional[str] = None,
    until: Optional[str] = None,
) -> Flags:
    """Return what the flags that select messages say, by option of the source.

    Different flags narrow each other; what one of them names more than once is any of these.
    """
    return {
        "config": ("--config", config),
        "topic": ("--topic", topic),
        "keys": ("--key", key),
        "tags": ("--tag", " || ".join(tag) if tag else None),
        "startingTimestamp": ("--since", since),
        "endingTimestamp": ("--until", until),
    }


class Command(typer.core.TyperCommand):
    """A command that takes an option once, unless it is made to be repeated.

    Click would keep the last one, and say nothing of those before.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse what is given twice, then parse."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        options: list[Any] = [p for p in order if p.param_type_name == "option"]
        for option in options:
            if options.count(option) > 1 and not (option.multiple or option.is_flag):
                ctx.fail(f"{option.opts[0]} is given twice; it takes one value")
        return super().parse_args(ctx, args)


class CommandLine(typer.Typer):
    """An application of such commands."""

    if not TYPE_CHECKING:  # the signature stays typer's

        def command(self, *names: Any, **settings: Any) -> Any:
            """Add a command."""
            return super().command(*names, cls=Command, **settings)
