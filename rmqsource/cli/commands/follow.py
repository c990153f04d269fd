# SPDX-License-Identifier: Apache-2.0
"""The command that keeps a copy of a running master: follow.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Optional, Union

import typer

from rmqsource.cli.arguments import Source, examples
from rmqsource.cli.check import tell_lost_log
from rmqsource.cli.follow_state import TellFollowed, follow_reports
from rmqsource.cli.read import WrongUseError, table_options
from rmqsource.cli.report import Report, progress_bars, reporting, stop_signals
from rmqsource.scan.store_versions import store_config
from rmqsource.sink.prepared_write import why_no_store
from store_core.config.message_store_config import SLAVE, MessageStoreConfig
from store_core.errors import StoreNotFoundError
from store_core.ha.follow_state import ConnectionState
from store_core.message_store import MessageStore

if TYPE_CHECKING:
    from rmqsource.options.source_options import SourceOptions
    from store_core.ha.ha_client import HAClient

FirstOffset = Union[int, Literal["earliest"], None]
_EARLIEST: Literal["earliest"] = "earliest"
_LOOK_SECONDS = 0.2
_NOT_REPLICATED = (
    "topics, consumer offsets, delay offsets and consumer groups are not replicated: if you "
    "need them, copy config/ from the master (topics.json first if a topic has batch queues)"
)


class Ack(str, Enum):
    """The offset that is acknowledged to the master."""

    flushed = "flushed"
    appended = "appended"
    never = "never"


class FollowFormat(str, Enum):
    """The format of the state."""

    text = "text"
    json = "json"


_ACK_MEANS = {
    Ack.flushed: "this copy acknowledges what it has flushed to disk. A master with inSyncReplicas "
    "above 1 counts it as a replica and answers producers once their messages are "
    "acknowledged",
    Ack.appended: "this copy acknowledges what is in its log, flushed to disk or not. A master "
    "with inSyncReplicas above 1 counts it as a replica and answers producers once their messages "
    "are acknowledged",
    Ack.never: "this copy acknowledges nothing: a master with inSyncReplicas above 1 does not "
    "count it as a replica",
}


class FollowTarget(NamedTuple):
    """The master to follow, the path of the copy, and the flags of the command."""

    master: str
    path: str
    until: Optional[int] = None
    ack: Ack = Ack.flushed
    first_offset: FirstOffset = None
    cut: bool = False


def add_follow_command(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog=examples(
            "follow 10.0.0.5:10912 /data/replica --config broker.conf",
            "follow 10.0.0.5:10912 /data/clone --from-offset earliest --until 734003200",
            "follow 10.0.0.5:10912 /data/replica --ack never --format json",
        )
    )(follow)


def follow(
    master: Annotated[
        str,
        typer.Argument(
            metavar="HOST:PORT",
            help="The master's address for replication (haListenPort, by default listenPort + 1).",
        ),
    ],
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The store root of the copy; created if missing.")
    ],
    until: Annotated[
        Optional[int],
        typer.Option(
            min=1,
            metavar="OFFSET",
            help="Stop when the copy's log is dispatched up to this offset.",
        ),
    ] = None,
    ack: Annotated[
        Ack, typer.Option(help="The end of the log that this copy acknowledges to the master.")
    ] = Ack.flushed,
    from_offset: Annotated[
        Optional[str],
        typer.Option(
            metavar="N|earliest",
            show_default="the master's last segment",
            help="Where a new copy begins: the first byte of a segment, or the master's "
            "oldest message.",
        ),
    ] = None,
    cut: Annotated[
        bool,
        typer.Option(
            "--cut",
            help="Cut off the part of the log that the master does not have; keep a copy of it.",
        ),
    ] = False,
    output: Annotated[
        FollowFormat, typer.Option("--format", help="json: one line per second.")
    ] = FollowFormat.text,
    *,
    source: Source,
) -> None:
    """Keep a copy of a running master's messages.

    The copy is a slave of the master: it receives the log byte for byte over the replication port
    and builds queues and index itself. It can be read meanwhile, like the store of a running
    broker, also with Spark. Ctrl-C, SIGTERM and --until end the command with code 0; when started
    again, it continues where it stopped. It reconnects when the connection is lost. Code 1 means
    that the copy does not belong to this master.
    """
    with reporting() as said:
        wanted = FollowTarget(master, path, until, ack, _first_offset(from_offset), cut)
        options = table_options("checkpoint", [path], source.config, source.option, said.damage)
        config = slave_config(options)
        with suppress(StoreNotFoundError):  # it is created
            if tell_lost_log(options, said):
                return
        _follow(wanted, config, output, said)


def slave_config(options: "SourceOptions") -> MessageStoreConfig:
    """Return the configuration of a copy: its master's, in the role of a slave.

    Raises
    ------
    WrongUseError
        The directory has other contents, or the log would be in the master's own directory.
    """
    path = options.paths[0]
    check_can_be_store(path)
    config = store_config(options)
    outside = log_outside(config)
    if outside and options.config:
        raise WrongUseError(
            f"--config {options.config}: its log is in {outside}, outside the store: that is "
            "the master's own log. Give a copy of the file without storePathCommitLog"
        )
    return replace(config, store_path_root_dir=path, broker_role=SLAVE, duplication_enable=False)


def check_can_be_store(path: str) -> None:
    """Raise WrongUseError for a directory that has other contents than a store."""
    reason = why_no_store(path)
    if reason is not None:
        raise WrongUseError(f"{path}: {reason}")


def log_outside(config: MessageStoreConfig) -> Optional[str]:
    """Return an absolute log directory, which is outside the store; None if all are inside."""
    logs = (config.store_path_commit_log, config.read_only_commit_log_store_paths)
    names = (name for log in logs if log for name in log.split(","))
    return next((name for name in names if name.startswith("/")), None)


def _first_offset(text: Optional[str]) -> FirstOffset:
    if text is None:
        return None
    if text == _EARLIEST:
        return _EARLIEST
    if text.isdecimal():
        return int(text)
    raise WrongUseError(
        f"--from-offset: expected a number of bytes or {_EARLIEST!r}; found {text!r}"
    )


def _follow(
    wanted: FollowTarget, config: MessageStoreConfig, output: FollowFormat, said: Report
) -> None:
    # asyncio takes a while to load.
    from store_core.ha.ha_client import HAClient  # noqa: PLC0415
    from store_core.ha.peer import parse_address  # noqa: PLC0415

    parse_address(wanted.master)  # before a store is created
    store = MessageStore(config)
    with progress_bars() as bars:  # of a copy that was not stopped cleanly
        store.load(progress=partial(bars.step, "log"))
    with stop_signals() as stop, store:
        _tell_start(wanted, store, said)
        client = HAClient(
            store,
            wanted.master,
            ack=wanted.ack.value,
            first_offset=None if store.max_phy_offset else wanted.first_offset,
            cut=wanted.cut,
        )
        as_json = output is FollowFormat.json
        teller = follow_reports(wanted.path, wanted.master, said, as_json=as_json)
        with teller as tell, _error_told_once(), client:
            why = watch(client, wanted.until, stop, tell)
        said.note(f"{why}; the copy has the log up to offset {client.state().max_offset}")


@contextmanager
def _error_told_once() -> Iterator[None]:
    """Drop the client's log line about its final error, which this command reports itself."""
    log = logging.getLogger("store_core.ha.ha_client")

    def is_no_error(record: logging.LogRecord) -> bool:
        return record.levelno < logging.ERROR

    log.addFilter(is_no_error)
    try:
        yield
    finally:
        log.removeFilter(is_no_error)


def _tell_start(wanted: FollowTarget, store: MessageStore, said: Report) -> None:
    end = store.max_phy_offset
    if end:
        if wanted.first_offset is not None:
            said.note(f"--from-offset has no effect: {wanted.path} already has a log")
        said.note(f"{wanted.path} follows {wanted.master} from offset {end} on")
    elif wanted.first_offset is None:
        said.note(
            f"{wanted.path} is new and begins at the first byte of the master's last segment; "
            "with --from-offset earliest it begins with the master's oldest message"
        )
    elif wanted.first_offset == _EARLIEST:
        said.note(f"{wanted.path} is new and begins with the master's oldest message")
    else:
        said.note(f"{wanted.path} is new and begins at offset {wanted.first_offset}")
    said.note(_ACK_MEANS[wanted.ack], _NOT_REPLICATED)


def watch(client: "HAClient", until: Optional[int], stop: Event, tell: TellFollowed) -> str:
    """Report the state from time to time; return why the command ends.

    Data that the copy had at the start counts for ``until`` once it is known to be the master's.

    Raises
    ------
    HAError
        The client cannot go on.
    """
    begin, is_compared = client.state().max_offset, False
    while True:
        state = client.state()
        tell(state)
        if client.failure is not None:
            raise client.failure
        is_compared |= state.connection is ConnectionState.FOLLOWING or state.max_offset > begin
        if until is not None and is_compared and client.wait_for(until, 0):
            return f"the log has reached offset {until}"
        if stop.wait(_LOOK_SECONDS):
            return "stopped"
