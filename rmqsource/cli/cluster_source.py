"""How a command reaches a running cluster: ``--namesrv``, credentials, the options of the source.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from rmqsource.cli.read import WrongUseError, option_texts, source_options
from rmqsource.errors import SourceOptionError
from rmqsource.live.live_options import LiveOptions, parse_live_options
from rmqsource.options.option_values import did_you_mean

if TYPE_CHECKING:
    from rmqnet.client.client_config import ClientConfig
    from rmqsource.cli.arguments import Flags, Source
    from rmqsource.cli.report import Report
    from rmqsource.cli.row_source import RowSource
    from rmqsource.live.live_options import ClusterConnection

_VARIABLES = {
    "accessKey": "ROCKETMQ_ACCESS_KEY",
    "secretKey": "ROCKETMQ_SECRET_KEY",
    "securityToken": "ROCKETMQ_SECURITY_TOKEN",
    "tlsKeyPassword": "ROCKETMQ_TLS_KEY_PASSWORD",
}
"""Option of the source -> the variable of the environment that has it."""

_LINE = re.compile(r"(\w+)\s*[:=]\s*(.*)")
_DEFAULTS = {"requestTimeout": "5s", "retryTimeout": "3s"}
"""A person waits; what Spark's tasks do for a minute is no use here."""

NAMESRV = "--namesrv"
_CREDENTIALS = "--credentials"


@dataclass(frozen=True)
class ClusterSource:
    """Where a running cluster is."""

    namesrv: Annotated[
        Optional[str],
        typer.Option(
            NAMESRV,
            metavar="HOST:PORT[;HOST:PORT]",
            help="Name servers of a running cluster, instead of PATH.",
        ),
    ] = None
    credentials: Annotated[
        Optional[str],
        typer.Option(
            _CREDENTIALS,
            metavar="FILE",
            help="With accessKey and secretKey, where brokers ask for them; else "
            "$ROCKETMQ_ACCESS_KEY and $ROCKETMQ_SECRET_KEY.",
        ),
    ] = None

    def is_meant(self, paths: Sequence[str], config: Optional[str]) -> bool:
        """Return whether a cluster is meant, not files.

        Raises
        ------
        WrongUseError
            Both are, or neither, or something is of the other.
        """
        if self.namesrv is None:
            if not paths:
                raise WrongUseError(
                    f"give either PATH, the files of a store, or {NAMESRV} HOST:PORT, the name "
                    "servers of a running cluster"
                )
            if self.credentials is not None:
                raise WrongUseError(f"{_CREDENTIALS}: is for {NAMESRV}; files need none")
            return False
        if paths:
            raise WrongUseError(
                f"{NAMESRV}: cannot be given together with PATH {paths[0]!r}: either files are "
                "read, or a cluster is asked"
            )
        if config is not None:
            raise WrongUseError(f"--config: is for files; drop it with {NAMESRV}")
        return True

    def rows(
        self,
        paths: Sequence[str],
        source: "Source",
        flags: "Flags",
        report: "Report",
        table: str = "messages",
        *,
        defaults: Optional[dict[str, str]] = None,
    ) -> "RowSource":
        """Return where rows come from: the files at the paths, or the cluster.

        Parameters
        ----------
        defaults
            Options of the cluster that hold unless ``source`` has them.

        Raises
        ------
        WrongUseError
            Both are named, or neither, or an option is unknown, malformed or contradicts another.
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
        flags: "Flags",
        table: str = "messages",
        *,
        streaming: bool = False,
        defaults: Optional[dict[str, str]] = None,
    ) -> LiveOptions:
        """Return the options of a read of the cluster.

        Parameters
        ----------
        defaults
            Options that hold unless ``extra`` has them.

        Raises
        ------
        WrongUseError
            An option is unknown, malformed or contradicts another one, or is a secret. It shows no
            secret.
        """
        if self.namesrv is None:
            raise WrongUseError(f"{NAMESRV}: is needed: HOST:PORT of the cluster's name servers")
        _check_no_secret(extra)
        named: Flags = {"namesrvAddr": (NAMESRV, self.namesrv), **flags}
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
        """Return credentials by option, and what to call the place of each in an error."""
        found = secrets_of(self.credentials)
        if self.credentials is not None:
            return found, {name: f"{_CREDENTIALS} {self.credentials}: {name}" for name in found}
        return found, {option: f"${_VARIABLES[option]}" for option in found}


def secrets_of(credentials: Optional[str]) -> dict[str, str]:
    """Return secrets by option: those of a file, or without one those of the environment."""
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
                f"--option {option}: others on this machine see the command line; set "
                f"{_VARIABLES[option]}, or give a file with {_CREDENTIALS}"
            )


def _read_credentials(path: str) -> dict[str, str]:
    """Return credentials of a file with lines ``key: value``, as RocketMQ's ``conf/tools.yml``.

    Errors name a line and never show what it says.
    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except UnicodeDecodeError as err:
        raise WrongUseError(f"{_CREDENTIALS} {path}: is no text in UTF-8") from err
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
        raise WrongUseError(f"{_CREDENTIALS} {path}: has no accessKey and no secretKey")
    return found


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def client_config(connection: "ClusterConnection") -> "ClientConfig":
    """Return the settings of a client of the cluster."""
    from rmqnet.client.client_config import ClientConfig  # noqa: PLC0415 (on demand)
    from rmqnet.remoting.acl import AclCredentials  # noqa: PLC0415
    from rmqnet.remoting.tls import TlsConfig  # noqa: PLC0415

    secrets, files = connection.secrets, connection.tls
    credentials = tls = None
    if secrets.access_key is not None and secrets.secret_key is not None:
        credentials = AclCredentials(secrets.access_key, secrets.secret_key, secrets.security_token)
    if files is not None:
        tls = TlsConfig(
            files.ca_file,
            files.cert_file,
            files.key_file,
            secrets.tls_key_password,
            verify=files.verify,
        )
    return ClientConfig(
        connection.namesrv_addr,
        credentials=credentials,
        tls=tls,
        mq_client_api_timeout_ms=connection.request_timeout_ms,
    )
