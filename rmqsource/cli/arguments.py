"""Arguments that several commands of ``rocketmq-store`` take.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

import inspect
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Callable, Optional, Union, get_type_hints

import typer
import typer.core

from rmqsource.cli.output import Display, Format
from rmqsource.cli.read import listed, tag_expression
from rmqsource.cli.times import Clock, clock_of
from rmqsource.exit_codes import EXIT_CODES
from store_core.files.store_directory import local_path

Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Store roots (storePathRootDir): paths, globs or URIs."),
]
AnyPaths = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="[PATH...]",
        show_default=False,
        help="Store roots (storePathRootDir): paths, globs or URIs; or else --namesrv.",
    ),
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


def file_path(text: str) -> Path:
    """Return the path of a file or directory that is named by its path or ``file:`` URI."""
    return Path(local_path(text))


Topic = Annotated[list[str], typer.Option(help=f"Topics, {_LIST}.")]
Group = Annotated[list[str], typer.Option(help=f"Consumer groups, {_LIST}.")]
Key = Annotated[
    list[str], typer.Option(help=f"Words of KEYS, {_LIST}; as a JSON array with commas.")
]
Queue = Annotated[list[str], typer.Option("--queue", metavar="ID", help=f"Queue ids, {_LIST}.")]
Ids = Annotated[
    list[str],
    typer.Option("--id", help=f"Offset message ids, or unique keys (client's ids), {_LIST}."),
]
Tag = Annotated[
    list[str], typer.Option(help=f"Tags, {_LIST}, or joined by ||; as a JSON array with commas.")
]
_TIME = "1h (ago), 2026-01-31T09:00:00Z, or ms since 1970"
Since = Annotated[
    Optional[str], typer.Option(metavar="TIME", help=f"Store time, inclusive: {_TIME}.")
]
Until = Annotated[
    Optional[str], typer.Option(metavar="TIME", help=f"Store time, exclusive: {_TIME}.")
]
Where = Annotated[
    Optional[str],
    typer.Option(metavar="SQL", help="Comparisons with AND, as \"queue_id = 3 AND tags = 'A'\"."),
]
Sql = Annotated[
    Optional[str],
    typer.Option(metavar="SQL92", help="A consumer's filter, as \"amount > 5 AND region = 'eu'\"."),
]
SqlDialect = Annotated[
    Optional[str],
    typer.Option(metavar="5|4", help="Of --sql: as a 5.x broker reads it, or a 4.x one."),
]
Zone = Annotated[
    Optional[str],
    typer.Option("--tz", metavar="ZONE", help="Of times: Asia/Shanghai, +08:00, local; else UTC."),
]
Limit = Annotated[
    Optional[int], typer.Option(min=0, show_default="20 for table, else 0", help="0 shows all.")
]
All = Annotated[int, typer.Option(min=0, help="Most rows to show; 0 shows all.")]
TABLE_LIMIT = 20

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


@dataclass(frozen=True)
class Source:
    """How a store is read."""

    config: Config = None
    option: Options = field(default_factory=list)


@dataclass(frozen=True)
class View:
    """How rows are shown."""

    output: Output = Format.table
    columns: Annotated[
        list[str], typer.Option(metavar="NAMES", help=f"Columns to show, {_LIST}.")
    ] = field(default_factory=list)
    wide: Annotated[
        bool, typer.Option("--wide", help="Cut and drop nothing; lines may be longer.")
    ] = False
    tz: Zone = None

    def display(self) -> Display:
        """Return what writers of rows need; WrongUseError for a zone that there is not."""
        zone = self.clock().zone
        named = listed("--columns", self.columns)
        return Display(self.output, named, self.wide, zone or Display().zone)

    def clock(self) -> Clock:
        """Return what tells what times mean."""
        return clock_of(self.tz)

    def limit(self, given: Optional[int]) -> int:
        """Return how many rows to show; 0 is all."""
        if given is not None:
            return given
        return TABLE_LIMIT if self.output is Format.table else 0


@dataclass(frozen=True)
class SelectionFlags:
    """Which messages are meant: different flags narrow, one that names several means any."""

    topic: Topic = field(default_factory=list)
    key: Key = field(default_factory=list)
    tag: Tag = field(default_factory=list)
    since: Since = None
    until: Until = None
    where: Where = None
    sql: Sql = None
    sql_dialect: SqlDialect = None

    def flags(self, config: Optional[str], clock: Clock) -> Flags:
        """Return what they say, by option of the source."""
        return {
            "config": ("--config", config),
            "topic": ("--topic", self.topic),
            "keys": ("--key", self.key),
            "tags": ("--tag", tag_expression(self.tag)),
            "where": ("--where", self.where),
            "sqlFilter": ("--sql", self.sql),
            "sqlDialect": ("--sql-dialect", self.sql_dialect),
            **window_flags(self.since, self.until, clock),
        }


def window_flags(since: Optional[str], until: Optional[str], clock: Clock) -> Flags:
    """Return a span of store time, by option of the source.

    Raises
    ------
    WrongUseError
        It ends before it begins, or a time is none.
    """
    begin, end = clock.window(since, until)
    return {"startingTimestamp": ("--since", begin), "endingTimestamp": ("--until", end)}


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that takes the fields of its groups of options as options of its own.

    A group is a parameter whose type is a dataclass.
    """
    # Not get_type_hints: before Python 3.11 it hides what stands in an Annotated whose default is
    # None within an Optional, and typer then sees neither help nor bounds.
    hints = command.__annotations__
    groups: dict[str, Any] = {}
    flat: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if isinstance(kind, type) and is_dataclass(kind):
            groups[parameter.name] = kind
            flat += _parameters(kind)
        else:
            flat.append(parameter.replace(annotation=kind, kind=parameter.KEYWORD_ONLY))

    def call(**given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{one.name: given.pop(one.name) for one in fields(kind)})
        return command(**given)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__module__ = command.__module__
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    call.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return call


def _parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=[] if one.default is MISSING else one.default,
            annotation=hints[one.name],
        )
        for one in fields(group)
    ]


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
            """Add a command; its groups of options become options."""
            add = super().command(*names, cls=Command, **settings)
            return lambda command: add(grouped(command))
