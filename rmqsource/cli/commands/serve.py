# SPDX-License-Identifier: Apache-2.0
"""The command that puts a store on the network: serve.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Callable, NamedTuple, Optional

import typer

from rmqsource.cli.arguments import Source, examples, secrets_of
from rmqsource.cli.check import tell_lost_log
from rmqsource.cli.commands.follow import check_can_be_store, log_outside
from rmqsource.cli.follow_state import Rate, StateLines
from rmqsource.cli.read import WrongUseError, table_options
from rmqsource.cli.report import Report, changing_line, reporting, stop_signals
from rmqsource.scan.store_versions import store_properties
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreNotFoundError
from store_core.files.store_directory import local_path

if TYPE_CHECKING:
    from rmqnet.remoting.acl import AclCredentials
    from rmqnet.remoting.tls import ServerTls
    from rmqnet.served_store import ServedState, ServedStore
    from rmqsource.options.source_options import SourceOptions

_LOOPBACK = "127.0.0.1"
_NAMESRV_PORT = 9876
_LOOK_SECONDS = 0.2
_MAX_PORT = 65_535
_MB = 1e6
_Tell = Callable[["ServedState"], None]


class ServeFormat(str, Enum):
    """The format of the state."""

    text = "text"
    json = "json"


@dataclass(frozen=True)
class NetworkOptions:
    """Addresses on which the broker listens, and how clients find it."""

    port: Annotated[
        int, typer.Option(min=0, max=_MAX_PORT, help="The broker's port; 0: any free port.")
    ] = 10_911
    namesrv: Annotated[
        Optional[str],
        typer.Option(metavar="HOST:PORT", help="Register with these name servers, separated by ;."),
    ] = None
    with_namesrv: Annotated[
        Optional[int],
        typer.Option(
            min=0,
            max=_MAX_PORT,
            metavar="PORT",
            show_default=f"{_NAMESRV_PORT}, without --namesrv",
            help="Port of the command's own name server.",
        ),
    ] = None
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0: all.")
    ] = _LOOPBACK
    advertise: Annotated[
        Optional[str],
        typer.Option(metavar="HOST", show_default="--host", help="Host that clients connect to."),
    ] = None
    metrics: Annotated[
        Optional[str],
        typer.Option(
            metavar="[HOST:]PORT",
            help="Where Prometheus reads metrics; HOST is 127.0.0.1 if omitted.",
        ),
    ] = None


@dataclass(frozen=True)
class Security:
    """Access control and encryption."""

    acl: Annotated[
        Optional[str],
        typer.Option(metavar="FILE", help="Accounts, in the form of plain_acl.yml of 4.9."),
    ] = None
    tls_cert: Annotated[
        Optional[str], typer.Option(metavar="FILE", help="Use TLS with this certificate (PEM).")
    ] = None
    tls_key: Annotated[
        Optional[str],
        typer.Option(metavar="FILE", help="The certificate's key, if not in --tls-cert."),
    ] = None
    tls_ca: Annotated[
        Optional[str],
        typer.Option(metavar="FILE", help="Require client certificates issued by these."),
    ] = None
    credentials: Annotated[
        Optional[str],
        typer.Option(
            metavar="FILE",
            show_default="the environment",
            help="Lines accessKey: … and secretKey: …, the account of this broker at "
            "--namesrv and --replica-of.",
        ),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let anyone who can reach --host do everything.")
    ] = False


@dataclass(frozen=True)
class Role:
    """The broker's role, if it is not a plain master."""

    read_only: Annotated[
        bool,
        typer.Option(
            "--read-only", help="Change nothing; another process may have the store open."
        ),
    ] = False
    offsets: Annotated[
        Optional[str],
        typer.Option(metavar="FILE", help="With --read-only: keep consumer offsets in this file."),
    ] = None
    replica_of: Annotated[
        Optional[str], typer.Option(metavar="HOST:PORT", help="Run as a slave of this broker.")
    ] = None
    ha_port: Annotated[
        Optional[int],
        typer.Option(
            min=0, max=_MAX_PORT, metavar="PORT", help="Port on which slaves may connect."
        ),
    ] = None


def add_serve_command(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog=examples(
            "serve /data/store --config broker.conf",
            "serve /mnt/rescued/store --read-only --offsets offsets.json",
            "serve new-store --host 0.0.0.0 --advertise 10.0.0.7 --acl plain_acl.yml",
            "serve replica --replica-of 10.0.0.5:10911 --format json",
        )
    )(serve)


def serve(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The store root; created if missing.")
    ],
    output: Annotated[
        ServeFormat, typer.Option("--format", help="json: one line per second.")
    ] = ServeFormat.text,
    *,
    network: NetworkOptions,
    security: Security,
    role: Role,
    source: Source,
) -> None:
    """Serve a store as a broker that RocketMQ's clients can use.

    The store may be an existing, rescued or copied one, or a new one. No Java is needed. Only this
    machine can connect unless --host gives another address, which requires --acl or --insecure.
    Addresses in --config are ignored, because they are those of another broker. Ctrl-C and SIGTERM
    end the command with code 0.
    """
    with reporting() as said, _explained(), _cores(role):
        options = table_options("checkpoint", [path], source.config, source.option, said.damage)
        _check_store(options)
        if not role.read_only:
            with suppress(StoreNotFoundError):  # it is created
                if tell_lost_log(options, said):
                    return
        _allow_many_files()
        begin = time.monotonic()
        cluster = _served(options, network, security, role)
        with stop_signals() as stop, cluster:  # a signal during the start takes effect after it
            where = _tell_start(path, cluster, security, role, said)
            said.note(f"ready after {time.monotonic() - begin:.2f} s")
            with _telling(where, as_json=output is ServeFormat.json) as tell:
                _watch(cluster, stop, tell)
            end = cluster.state()
        said.note(
            f"stopped; received {end.messages_in:,} messages, sent {end.messages_out:,}; the "
            f"log ends at {end.log_end:,}"
        )


def _cores(role: Role) -> AbstractContextManager[None]:
    """Return a context that uses one core; a slave uses all, as its log comes in large pieces."""
    from rmqnet.cpu_affinity import on_one_core  # noqa: PLC0415 (on demand)

    return on_one_core() if role.replica_of is None else nullcontext()


def _allow_many_files() -> None:
    """Raise the limit of open files to its maximum: clients and store files count towards it."""
    import resource  # noqa: PLC0415 (Unix only)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # some systems refuse the hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _explained() -> Iterator[None]:
    from rmqnet.errors import BrokerError, ClientError, RemotingError  # noqa: PLC0415 (on demand)

    try:
        yield
    except (BrokerError, ClientError, RemotingError) as err:
        raise WrongUseError(str(err)) from err


def _check_store(options: "SourceOptions") -> None:
    """Refuse a directory that is not a store, and a log that belongs to another store."""
    path = options.paths[0]
    check_can_be_store(path)
    properties = store_properties(options)
    outside = log_outside(MessageStoreConfig.from_properties(properties))
    root = properties.get("storePathRootDir", path)
    if outside and Path(root).resolve() != Path(local_path(path)).resolve():
        raise WrongUseError(
            f"--config {options.config}: its log is in {outside}, which belongs to the store "
            f"in {root}. Serve that store, or give a copy of the file without "
            "storePathCommitLog"
        )


def _served(
    options: "SourceOptions", network: NetworkOptions, security: Security, role: Role
) -> "ServedStore":
    # asyncio takes a while to load.
    from rmqnet.served_store import serve as served  # noqa: PLC0415

    if network.namesrv is not None and network.with_namesrv is not None:
        raise WrongUseError("--namesrv: cannot be given together with --with-namesrv; drop one")
    port = _NAMESRV_PORT if network.with_namesrv is None else network.with_namesrv
    metrics = _metrics_place(network.metrics)
    secrets = secrets_of(security.credentials)
    return served(
        options.paths[0],
        port=network.port,
        namesrv_addr=network.namesrv,
        namesrv_port=port,
        host=network.host,
        advertise=network.advertise,
        read_only=role.read_only,
        offsets_file=role.offsets,
        ha_port=role.ha_port,
        replica_of=role.replica_of,
        settings=store_properties(options),
        acl=security.acl,
        tls=_tls(security, secrets.get("tlsKeyPassword")),
        credentials=_account(secrets),
        insecure=security.insecure,
        metrics_host=metrics.host,
        metrics_port=metrics.port,
    )


class _Place(NamedTuple):
    host: str
    port: Optional[int]


def _metrics_place(text: Optional[str]) -> _Place:
    if text is None:
        return _Place(_LOOPBACK, None)
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > _MAX_PORT:
        raise WrongUseError(f"--metrics: expected PORT or HOST:PORT; found {text!r}")
    return _Place(host.strip("[]") or _LOOPBACK, int(port))


def _account(secrets: dict[str, str]) -> "Optional[AclCredentials]":
    from rmqnet.remoting.acl import AclCredentials  # noqa: PLC0415

    names = ("accessKey", "secretKey")
    if not any(name in secrets for name in names):
        return None
    for name in names:
        if name not in secrets:
            raise WrongUseError(f"--credentials: {name} is missing")
    return AclCredentials(secrets[names[0]], secrets[names[1]], secrets.get("securityToken"))


def _tls(security: Security, key_password: Optional[str]) -> "Optional[ServerTls]":
    from rmqnet.remoting.tls import ServerTls  # noqa: PLC0415

    if security.tls_cert is not None:
        return ServerTls(security.tls_cert, security.tls_key, key_password, security.tls_ca)
    for flag, value in (("--tls-key", security.tls_key), ("--tls-ca", security.tls_ca)):
        if value is not None:
            raise WrongUseError(f"{flag}: requires --tls-cert, the broker's certificate")
    return None


def _tell_start(
    path: str, cluster: "ServedStore", security: Security, role: Role, said: Report
) -> dict[str, Any]:
    """Report the addresses and who may connect; return the addresses by name."""
    config = cluster.controller.config
    said.note(
        f"broker {config.broker_name} of cluster {config.broker_cluster_name} serves {path} at "
        f"{cluster.address}",
        f"clients find it with namesrvAddr={cluster.namesrv_addr}",
    )
    if cluster.metrics_address is not None:
        said.note(f"metrics are at http://{cluster.metrics_address}/metrics")
    if role.read_only:
        said.note("the store is only read: nothing in it changes, and no one can send")
    elif role.replica_of is not None:
        said.note(f"it is a slave of {role.replica_of}: no one can send")
    if security.acl is not None:
        said.note(f"permissions are read from {security.acl}, again when it changes")
        if role.ha_port is not None:
            said.note("slaves need no account: anyone who can reach --ha-port gets all messages")
    elif security.insecure:
        said.note("anyone who can reach it may read, change and delete everything")
    return {
        "store": path,
        "broker": cluster.address,
        "namesrv": cluster.namesrv_addr,
        "metrics": cluster.metrics_address,
    }


def _watch(cluster: "ServedStore", stop: Event, tell: _Tell) -> None:
    tell(cluster.state())
    while not stop.wait(_LOOK_SECONDS):
        tell(cluster.state())
    tell(cluster.state())


@contextmanager
def _telling(where: dict[str, Any], *, as_json: bool) -> Iterator[_Tell]:
    """Yield a function that reports a state; it may be called often.

    JSON is written to standard output, a line a second. Otherwise one changing line is shown on
    standard error, only if that is a terminal.
    """
    if as_json:
        lines: StateLines[ServedState] = StateLines(where, lambda state: state._asdict())
        yield lines.tell
        lines.end()
    elif sys.stderr.isatty():
        rates = Rates()
        with changing_line() as change:
            yield lambda state: change(description=rates.text(state))
    else:
        yield lambda _: None


class Rates:
    """Messages and bytes per second in and out, as text."""

    def __init__(self) -> None:
        self._messages_in, self._bytes_in = Rate(), Rate()
        self._messages_out, self._bytes_out = Rate(), Rate()

    def text(self, state: "ServedState") -> str:
        """Record a state; return its line."""
        came = self._messages_in.take(state.messages_in), self._bytes_in.take(state.bytes_in)
        left = (
            self._messages_out.take(state.messages_out),
            self._bytes_out.take(state.bytes_out),
        )
        return (
            f"in {_flow(*came)}, out {_flow(*left)}, {state.connections:,} connections, "
            f"{state.held_pulls:,} pulls wait"
        )


def _flow(messages: float, size_bytes: float) -> str:
    return f"{messages:,.0f} msg/s {size_bytes / _MB:.1f} MB/s"
