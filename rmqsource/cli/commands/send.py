# SPDX-License-Identifier: Apache-2.0
"""The commands that send messages to a running cluster and show new ones: send, tail.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import typer

from rmqsource.cli.arguments import (
    ClusterSource,
    GivenFlags,
    OptionFlags,
    Since,
    Sql,
    SqlDialect,
    Tag,
    Topic,
    View,
    connection_config,
    examples,
)
from rmqsource.cli.output import row_writer
from rmqsource.cli.read import WrongUseError, listed, tag_expression
from rmqsource.cli.report import Report, reporting

if TYPE_CHECKING:
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.producer.producer import Producer
    from rmqnet.client.send_result import SendResult
    from rmqsource.live.live_options import ClusterConnection

_COLUMNS = (
    *("status", "topic", "broker", "queue_id", "queue_offset", "message_id", "offset_message_id"),
)
_GROUP = "rocketmq-store"
_RESERVED = {"TAGS": "--tag", "KEYS": "--key", "DELAY": "--delay-level"}
_DEFAULTS = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "10000"}
"""Messages that expired unread are reported, and a backlog is shown in parts."""


class Content(NamedTuple):
    """A message to send, without its body."""

    topic: str
    tag: Optional[str] = None
    keys: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    queue: Optional[str] = None
    """``ID`` or ``BROKER:ID``."""
    delay_level: Optional[int] = None


def add_send_command(app: typer.Typer) -> None:
    """Add the command send."""
    app.command(
        epilog=examples(
            "send --namesrv 10.0.0.5:9876 --topic orders --body 'one coffee' --key order-1",
            "send --namesrv 10.0.0.5:9876 --topic orders --body-file order.json --tag paid",
            "send --namesrv 10.0.0.5:9876 --topic orders --property region=eu < lines.txt",
        )
    )(send)


def send(  # noqa: PLR0913 (one parameter a flag)
    topic: Annotated[str, typer.Option(help="The topic; brokers must have it.")],
    body: Annotated[
        Optional[str], typer.Option(metavar="TEXT", help="The body, as UTF-8 text.")
    ] = None,
    body_file: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="A file with the body.")
    ] = None,
    *,
    key: Annotated[
        list[str], typer.Option(help="Keys (words of KEYS), comma-separated or repeated.")
    ] = [],  # noqa: B006
    tag: Annotated[Optional[str], typer.Option(help="The tag.")] = None,
    properties: Annotated[
        list[str],
        typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated."),
    ] = [],  # noqa: B006 (typer copies it)
    queue: Annotated[
        Optional[str],
        typer.Option(
            metavar="ID|BROKER:ID", help="Send to this queue; otherwise to all queues in turn."
        ),
    ] = None,
    delay_level: Annotated[
        Optional[int],
        typer.Option(min=1, metavar="N", help="Deliver after the delay of the broker's Nth level."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Send each body this many times.")] = 1,
    option: OptionFlags = [],  # noqa: B006 (typer copies it)
    cluster: ClusterSource,
    view: View,
) -> None:
    """Send messages to a running cluster.

    The body is given by --body or --body-file; otherwise each non-empty line of standard input is a
    message. A row for each message shows where it is stored. Messages are sent one after the other.
    If sending fails, it is tried again on another broker.
    """
    with reporting() as said:
        pairs = tuple(_pair(text) for text in properties)
        keys = tuple(listed("--key", key))
        content = Content(topic, tag, keys, pairs, queue, delay_level)
        bodies = _bodies(body, body_file, said)
        connection = cluster.live_options(option, {}, "routes").connection
        _send_all(content, (each for each in bodies for _ in range(count)), connection, view, said)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise WrongUseError(f"--property: expected NAME=VALUE; found {text!r}")
    if name in _RESERVED:
        raise WrongUseError(f"--property {name}: is set by {_RESERVED[name]}")
    return name, value


def _bodies(body: Optional[str], file: Optional[Path], said: Report) -> Iterator[bytes]:
    if body is not None and file is not None:
        raise WrongUseError("--body: cannot be given together with --body-file; drop one")
    if body is not None:
        return iter([_given(body.encode("utf-8", "surrogateescape"), "--body")])
    if file is not None:
        return iter([_given(file.read_bytes(), f"--body-file {file}")])
    if sys.stdin.isatty():
        said.note("each line is a message; Ctrl-D ends")
    return _lines(said)


def _given(body: bytes, flag: str) -> bytes:
    if not body:
        raise WrongUseError(f"{flag}: is empty; RocketMQ requires a body of at least one byte")
    return body


def _lines(said: Report) -> Iterator[bytes]:
    empty = 0
    for line in sys.stdin.buffer:
        text = line.rstrip(b"\r\n")
        if text:
            yield text
        else:
            empty += 1
    if empty:
        said.note(f"{empty:,} empty lines were skipped")


def _send_all(
    content: Content,
    bodies: Iterator[bytes],
    connection: "ClusterConnection",
    view: View,
    said: Report,
) -> None:
    from rmqnet.client.client_instance import ClientInstance  # noqa: PLC0415 (on demand)
    from rmqnet.client.producer.producer import Producer  # noqa: PLC0415
    from rmqsource.cli.rows.cluster_rows import tell_unknown_topics  # noqa: PLC0415

    writer = row_writer(view.display(), _COLUMNS)
    with _explained(connection), ClientInstance(connection_config(connection)) as client:
        known = client.call(client.name_server.topics())
        if content.topic not in known:
            tell_unknown_topics([content.topic], known, connection.namesrv_addr, said)
            said.note(
                "create topics with mqadmin updateTopic, or with Admin.create_topic of rmqnet"
            )
            return
        with Producer(_GROUP, client) as producer:
            queue = _queue_of(producer.publish_queues(content.topic), content.queue)
            for body in bodies:
                writer.write(_row(_send(producer, content, body, queue)))
                writer.flush()
                said.rows += 1
    writer.close()
    said.nothing("the input has no non-empty line: nothing was sent")


def _queue_of(queues: "Sequence[MessageQueue]", wanted: Optional[str]) -> "Optional[MessageQueue]":
    """Return the queue that ``ID`` or ``BROKER:ID`` names; None if any queue will do."""
    if wanted is None:
        return None
    broker_name, _, queue_id = wanted.rpartition(":")
    found = [
        queue
        for queue in queues
        if str(queue.queue_id) == queue_id and broker_name in ("", queue.broker_name)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in found)
        raise WrongUseError(f"--queue {wanted}: exists on several brokers; give one of {names}")
    names = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)
    raise WrongUseError(f"--queue {wanted}: there is no such queue to send to; queues are {names}")


@contextmanager
def _explained(connection: "ClusterConnection") -> Iterator[None]:
    from rmqnet.errors import BrokerError, ClientError, RemotingError  # noqa: PLC0415
    from rmqsource.live.errors import ClusterError  # noqa: PLC0415

    try:
        yield
    except (BrokerError, ClientError, RemotingError) as err:
        raise ClusterError(connection.namesrv_addr, str(err)) from err


def _send(
    producer: "Producer", content: Content, body: bytes, queue: "Optional[MessageQueue]"
) -> "SendResult":
    from store_core.message import Message  # noqa: PLC0415

    message = Message(
        content.topic,
        body,
        tags=content.tag,
        keys=content.keys or None,
        properties=dict(content.properties),
    )
    return producer.send(message, queue=queue, delay_level=content.delay_level)


def _row(result: "SendResult") -> dict[str, Any]:
    return {
        "status": result.status.value,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
        "message_id": result.message_id,
        "offset_message_id": result.offset_message_id,
    }


# Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
def add_tail_command(app: typer.Typer) -> None:
    """Add the command tail."""
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
        typer.Option(
            metavar="TIME", help="Stop at this time; messages stored later are not shown."
        ),
    ] = None,
    limit: Annotated[
        Optional[int], typer.Option(min=1, help="Stop after this many messages.")
    ] = None,
    option: OptionFlags = [],  # noqa: B006 (typer copies it)
    *,
    cluster: ClusterSource,
    view: View,
) -> None:
    """Show messages of a running cluster as they arrive.

    It begins now, or at the time of --since. New queues and brokers are included; if a broker is
    unavailable, the command waits for it. It joins no consumer group and commits no offset. Ctrl-C
    and SIGTERM end it with code 0.
    """
    with reporting() as said:
        clock, display = view.clock(), view.display()
        begin = clock.window(since, until)[0]
        flags: GivenFlags = {
            "topic": ("--topic", topic),
            "tags": ("--tag", tag_expression(tag)),
            "sqlFilter": ("--sql", sql),
            "sqlDialect": ("--sql-dialect", sql_dialect),
            "startingTimestamp": ("--since", begin),
        }
        defaults = dict(_DEFAULTS) if begin else {**_DEFAULTS, "startingOffsets": "latest"}
        options = cluster.live_options(option, flags, streaming=True, defaults=defaults)
        from rmqsource.cli.rows.cluster_rows import Tail, follow  # noqa: PLC0415 (on demand)

        end_ms = None if until is None else clock.instant_ms("--until", until)
        follow(options, Tail(end_ms, limit), display, said)
