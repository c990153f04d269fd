# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands of ``rocketmq-store`` share.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

import inspect
import os
import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Callable, Optional, Union, get_type_hints

import typer
import typer.core

from rmqsource.cli.output import Display, Format
from rmqsource.cli.read import (
    WrongUseError,
    listed,
    option_texts,
    source_options,
    tag_expression,
)
from rmqsource.cli.times import Clock, clock_of
from rmqsource.errors import SourceOptionError
from rmqsource.exit_codes import EXIT_CODES
from rmqsource.live.live_options import LiveOptions, parse_live_options
from rmqsource.options.option_values import did_you_mean
from store_core.files.store_directory import local_path

if TYPE_CHECKING:
    from rmqnet.client.client_config import ClientConfig
    from rmqsource.cli.report import Report
    from rmqsource.cli.row_source import RowSource
    from rmqsource.live.live_options import ClusterConnection

StorePaths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Store roots (storePathRootDir): paths, globs or URIs."),
]
AnyPaths = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="[PATH...]",
        show_default=False,
        help="Store roots (storePathRootDir): paths, globs or URIs. Or give --namesrv.",
    ),
]
Output = Annotated[
    Format, typer.Option("--format", help="Output format; spreadsheet is CSV without formulas.")
]
Config = Annotated[
    Optional[str],
    typer.Option(
        metavar="BROKER.CONF", help="The broker's configuration file (file sizes, delay levels)."
    ),
]
OptionFlags = Annotated[
    list[str],
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="An option of the Spark source that fits the command, such as maxIndexNum=1000; "
        "may be repeated.",
    ),
]
_LIST = "comma-separated or repeated"
_VARIABLES = {
    "accessKey": "ROCKETMQ_ACCESS_KEY",
    "secretKey": "ROCKETMQ_SECRET_KEY",
    "securityToken": "ROCKETMQ_SECURITY_TOKEN",
    "tlsKeyPassword": "ROCKETMQ_TLS_KEY_PASSWORD",
}
"""Option of the source -> the environment variable for it."""
_LINE = re.compile(r"(\w+)\s*[:=]\s*(.*)")
_DEFAULTS = {"requestTimeout": "5s", "retryTimeout": "3s"}
"""Short, because a person is waiting: the minute for which Spark's tasks retry is too long."""
NAMESRV = "--namesrv"
_CREDENTIALS = "--credentials"


def file_path(text: str) -> Path:
    """Return the path of a file or directory that is given as a path or a ``file:`` URI."""
    return Path(local_path(text))


Topic = Annotated[list[str], typer.Option(help=f"Topics, {_LIST}.")]


Group = Annotated[list[str], typer.Option(help=f"Consumer groups, {_LIST}.")]


Key = Annotated[
    list[str],
    typer.Option(help=f"Keys (words of KEYS), {_LIST}; as a JSON array if a key has commas."),
]


QueueIds = Annotated[list[str], typer.Option("--queue", metavar="ID", help=f"Queue ids, {_LIST}.")]


Ids = Annotated[
    list[str],
    typer.Option("--id", help=f"Offset message ids or unique keys (client message ids), {_LIST}."),
]


Tag = Annotated[
    list[str],
    typer.Option(help=f"Tags, {_LIST}, or joined by ||; as a JSON array if a tag has commas."),
]


_TIME = "1h (ago), 2026-01-31T09:00:00Z, or ms since 1970"


Since = Annotated[
    Optional[str], typer.Option(metavar="TIME", help=f"Earliest store time: {_TIME}.")
]


Until = Annotated[
    Optional[str], typer.Option(metavar="TIME", help=f"End of the store time, exclusive: {_TIME}.")
]


Where = Annotated[
    Optional[str],
    typer.Option(
        metavar="SQL", help="Comparisons joined by AND, such as \"queue_id = 3 AND tags = 'A'\"."
    ),
]


Sql = Annotated[
    Optional[str],
    typer.Option(
        metavar="SQL92", help="A consumer's SQL filter, such as \"amount > 5 AND region = 'eu'\"."
    ),
]


SqlDialect = Annotated[
    Optional[str],
    typer.Option(metavar="5|4", help="Evaluate --sql as a 5.x broker does, or as a 4.x one."),
]


Zone = Annotated[
    Optional[str],
    typer.Option(
        "--tz", metavar="ZONE", help="Time zone: Asia/Shanghai, +08:00 or local; UTC if not given."
    ),
]


Limit = Annotated[
    Optional[int],
    typer.Option(
        min=0, show_default="20 for a table, else 0", help="Most rows to show; 0 shows all."
    ),
]


All = Annotated[int, typer.Option(min=0, help="Most rows to show; 0 shows all.")]


TABLE_LIMIT = 20


GivenFlags = dict[str, tuple[str, Union[str, list[str], None]]]


"""Option of the source -> the flag that sets it, and its value (None if not given)."""


class ExportFormat(str, Enum):
    """The format of exported files."""

    parquet = "parquet"
    json = "json"
    csv = "csv"


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples, and the meaning of the exit codes."""
    return "\n\n".join(["Examples:", *(f"rocketmq-store {line}" for line in lines), EXIT_CODES])


@dataclass(frozen=True)
class Source:
    """How a store is read."""

    config: Config = None
    option: OptionFlags = field(default_factory=list)


@dataclass(frozen=True)
class View:
    """How rows are shown."""

    output: Output = Format.table
    columns: Annotated[
        list[str], typer.Option(metavar="NAMES", help=f"Columns to show, {_LIST}.")
    ] = field(default_factory=list)
    wide: Annotated[
        bool, typer.Option("--wide", help="Show all columns and whole values, in longer lines.")
    ] = False
    tz: Zone = None

    def display(self) -> Display:
        """Return the display for writers of rows; WrongUseError if the zone does not exist."""
        zone = self.clock().zone
        named = listed("--columns", self.columns)
        return Display(self.output, named, self.wide, zone or Display().zone)

    def clock(self) -> Clock:
        """Return the clock that times on the command line refer to."""
        return clock_of(self.tz)

    def limit(self, given: Optional[int]) -> int:
        """Return how many rows to show; 0 for all."""
        if given is not None:
            return given
        return TABLE_LIMIT if self.output is Format.table else 0


@dataclass(frozen=True)
class SelectionFlags:
    """Flags that select messages: several flags are combined with AND, values of one with OR."""

    topic: Topic = field(default_factory=list)
    key: Key = field(default_factory=list)
    tag: Tag = field(default_factory=list)
    since: Since = None
    until: Until = None
    where: Where = None
    sql: Sql = None
    sql_dialect: SqlDialect = None

    def flags(self, config: Optional[str], clock: Clock) -> GivenFlags:
        """Return the flags by option of the source."""
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


def window_flags(since: Optional[str], until: Optional[str], clock: Clock) -> GivenFlags:
    """Return a span of store time, by option of the source.

    Raises
    ------
    WrongUseError
        The span ends before it begins, or a text is not a time.
    """
    begin, end = clock.window(since, until)
    return {"startingTimestamp": ("--since", begin), "endingTimestamp": ("--until", end)}


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that has the fields of its option groups as separate options.

    A group is a parameter whose type is a dataclass.
    """
    # Not get_type_hints: before Python 3.11 it wraps an Annotated whose default is None in an
    # Optional, which hides help and bounds from typer.
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
    """A command that refuses a repeated option, unless it may be repeated.

    Click would silently use only the last one.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse options that are given twice, then parse."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        options: list[Any] = [p for p in order if p.param_type_name == "option"]
        for option in options:
            if options.count(option) > 1 and not (option.multiple or option.is_flag):
                ctx.fail(f"{option.opts[0]} is given twice, but takes one value")
        return super().parse_args(ctx, args)


class CommandLine(typer.Typer):
    """An application whose commands are of class `Command`."""

    if not TYPE_CHECKING:  # the signature stays typer's

        def command(self, *names: Any, **settings: Any) -> Any:
            """Add a command; the fields of its option groups become options."""
            add = super().command(*names, cls=Command, **settings)
            return lambda command: add(grouped(command))


@dataclass(frozen=True)
class ClusterSource:
    """The address of a running cluster, and the credentials for it."""

    namesrv: Annotated[
        Optional[str],
        typer.Option(
            NAMESRV,
            metavar="HOST:PORT[;HOST:PORT]",
            help="Name servers of a running cluster, which is read instead of a store.",
        ),
    ] = None
    credentials: Annotated[
        Optional[str],
        typer.Option(
            _CREDENTIALS,
            metavar="FILE",
            help="File with accessKey and secretKey, if brokers require them. The default is "
            "$ROCKETMQ_ACCESS_KEY and $ROCKETMQ_SECRET_KEY.",
        ),
    ] = None

    def is_meant(self, paths: Sequence[str], config: Optional[str]) -> bool:
        """Return whether the command reads a cluster, not files.

        Raises
        ------
        WrongUseError
            Both are given, or neither is, or a flag applies only to the other one.
        """
        if self.namesrv is None:
            if not paths:
                raise WrongUseError(
                    f"give either PATH (the files of a store) or {NAMESRV} HOST:PORT (the "
                    "name servers of a running cluster)"
                )
            if self.credentials is not None:
                raise WrongUseError(
                    f"{_CREDENTIALS}: applies only to {NAMESRV}; reading files needs no credentials"
                )
            return False
        if paths:
            raise WrongUseError(
                f"{NAMESRV}: cannot be given together with PATH {paths[0]!r}: read either "
                "files or a cluster"
            )
        if config is not None:
            raise WrongUseError(f"--config: applies only to files; drop it, or drop {NAMESRV}")
        return True

    def rows(
        self,
        paths: Sequence[str],
        source: "Source",
        flags: "GivenFlags",
        report: "Report",
        table: str = "messages",
        *,
        defaults: Optional[dict[str, str]] = None,
    ) -> "RowSource":
        """Return the source of rows: the files at the paths, or the cluster.

        Parameters
        ----------
        defaults
            Options of the cluster that apply unless ``source`` has them.

        Raises
        ------
        WrongUseError
            Both are given, or neither is; or an option is unknown, malformed or contradicts another
            one.
        """
        if self.is_meant(paths, source.config):
            from rmqsource.cli.rows.cluster_rows import ClusterRows  # noqa: PLC0415 (on demand)

            options = self.live_options(source.option, flags, table, defaults=defaults)
            return ClusterRows(options, report)
        from rmqsource.cli.rows.store_rows import StoreRows  # noqa: PLC0415 (see above)

        named = {"config": ("--config", source.config), **flags}
        if table != "messages":
            named = {"table": ("the command", table), **named}
        return StoreRows(source_options(paths, source.option, named, report.damage), report)

    def live_options(
        self,
        extra: Sequence[str],
        flags: "GivenFlags",
        table: str = "messages",
        *,
        streaming: bool = False,
        defaults: Optional[dict[str, str]] = None,
    ) -> LiveOptions:
        """Return the options of a read of the cluster.

        Parameters
        ----------
        defaults
            Options that apply unless ``extra`` has them.

        Raises
        ------
        WrongUseError
            An option is unknown, malformed or contradicts another one, or is a secret. The error
            shows no secret.
        """
        if self.namesrv is None:
            raise WrongUseError(
                f"{NAMESRV}: is required; give HOST:PORT of the cluster's name servers"
            )
        _check_no_secret(extra)
        named: GivenFlags = {"namesrvAddr": (NAMESRV, self.namesrv), **flags}
        options = option_texts((), extra, named)
        del options["paths"]
        given = {name.lower() for name in options}
        for name, text in {**_DEFAULTS, **(defaults or {})}.items():
            if name.lower() not in given:
                options[name] = text
        secrets, places = self._secrets()
        try:
            return parse_live_options({**options, "table": table, **secrets}, streaming=streaming)
        except SourceOptionError as err:
            flag = named.get(err.option, (places.get(err.option, f"--option {err.option}"),))[0]
            raise WrongUseError(f"{flag}: {err.reason}") from err

    def _secrets(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return credentials by option, and where each comes from, for error texts."""
        found = secrets_of(self.credentials)
        if self.credentials is not None:
            return found, {name: f"{_CREDENTIALS} {self.credentials}: {name}" for name in found}
        return found, {option: f"${_VARIABLES[option]}" for option in found}


def secrets_of(credentials: Optional[str]) -> dict[str, str]:
    """Return secrets by option: from a file, or from the environment if no file is given."""
    if credentials is not None:
        return _read_credentials(credentials)
    return {option: os.environ[name] for option, name in _VARIABLES.items() if os.environ.get(name)}


def _check_no_secret(extra: Sequence[str]) -> None:
    by_lower_name = {name.lower(): name for name in _VARIABLES}
    for text in extra:
        name = re.split(r"[=:\s]", text.strip(), maxsplit=1)[0]
        option = by_lower_name.get(name.lower())
        if option is not None:
            raise WrongUseError(
                f"--option {option}: other users of this machine can see the command line; "
                f"set {_VARIABLES[option]}, or give a file with {_CREDENTIALS}"
            )


def _read_credentials(path: str) -> dict[str, str]:
    """Return credentials of a file with lines ``key: value``, as RocketMQ's ``conf/tools.yml``.

    Errors name the line but never show its text.
    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except UnicodeDecodeError as err:
        raise WrongUseError(f"{_CREDENTIALS} {path}: is not UTF-8 text") from err
    found: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith(("#", "---")):
            continue
        parts = _LINE.fullmatch(line)
        if parts is None or parts[1] not in _VARIABLES:
            hint = did_you_mean(parts[1], _VARIABLES) if parts else ""
            raise WrongUseError(
                f"{_CREDENTIALS} {path}, line {number}: expected 'KEY: VALUE', where KEY is one of "
                f"{', '.join(_VARIABLES)}{hint}"
            )
        found[parts[1]] = _unquoted(parts[2])
    if not found:
        raise WrongUseError(f"{_CREDENTIALS} {path}: has neither accessKey nor secretKey")
    return found


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def connection_config(connection: "ClusterConnection") -> "ClientConfig":
    """Return the client settings for a cluster."""
    from rmqnet.client.client_config import ClientConfig  # noqa: PLC0415 (on demand)
    from rmqsource.live.cluster import credentials, tls_config  # noqa: PLC0415

    return ClientConfig(
        connection.namesrv_addr,
        credentials=credentials(connection),
        tls=tls_config(connection),
        mq_client_api_timeout_ms=connection.request_timeout_ms,
    )
