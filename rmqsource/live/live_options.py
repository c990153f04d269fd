# SPDX-License-Identifier: Apache-2.0
"""The options of one read or write of a cluster, declared and parsed once into a dataclass.

Options shared with the source and sink of stores mean the same as there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.errors import SourceOptionError
from rmqsource.live.live_queues import PLAIN
from rmqsource.options.option_values import (
    OptionInfo,
    check_together,
    choice,
    filled,
    given_options,
    option,
    option_values,
    options_of,
    parse_bool,
    parse_bytes,
    parse_count,
    parse_duration_ms,
    parse_name,
    parse_text,
)
from rmqsource.options.source_options import OPTION_TABLE, SourceOptions, parse_options
from rmqsource.sink.options import OF_QUERIES, SINK_OPTION_TABLE, SinkOptions, check_codec
from rmqsource.tables import LIVE_TABLES
from store_core.layout import LMQ_PREFIX, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rmqsource.live.live_queues import QueueSlice

_CLUSTER = "cluster"
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:;\[\]]+):(?P<port>[0-9]{1,5})")
_MAX_PORT = 65_535
_group = partial(parse_name, kind="group", longest=255)
_QUEUE_SELECTION = frozenset({"topic", "topicPattern", "queueId"})
_SELECTIONS = {
    "queues": _QUEUE_SELECTION,
    "consumer_offsets": _QUEUE_SELECTION,
    "topics": frozenset({"topic", "topicPattern"}),
    "routes": frozenset({"topic", "topicPattern"}),
}
TAG, SQL92 = "TAG", "SQL92"
_ALL = "*"
_NOT_IN_EVERY_DIALECT = re.compile(r"CONTAINS|STARTSWITH|ENDSWITH", re.IGNORECASE)


def _path(option: str, text: str) -> str:
    return parse_text(option, text).strip()


def _secret(option: str, text: str) -> str:
    """Return a value that errors do not show; blanks are valid, but not an empty text."""
    return text if text.isspace() else parse_text(option, text)


def _addresses(option: str, text: str) -> str:
    """Return addresses joined by semicolons; commas and blanks also separate them."""
    found = [part for part in re.split(r"[;,\s]+", text) if part]
    for address in found:
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match["port"]) <= _MAX_PORT:
            raise SourceOptionError(
                option, f"expected HOST:PORT, several separated by ';'; found {address!r}"
            )
    if not found:
        raise SourceOptionError(
            option, "is empty; give HOST:PORT of a name server, such as h1:9876"
        )
    return ";".join(dict.fromkeys(found))


@dataclass(frozen=True, repr=False)
class Secrets:
    """Secret values; they are passed to tasks, and ``repr`` does not show them."""

    access_key: str | None = option(
        "accessKey", _secret, "access key of RocketMQ's ACL; requires `secretKey`; never shown"
    )
    secret_key: str | None = option(
        "secretKey", _secret, "secret key of RocketMQ's ACL; never shown"
    )
    security_token: str | None = option(
        "securityToken", _secret, "security token of temporary credentials; never shown"
    )
    tls_key_password: str | None = option(
        "tlsKeyPassword", _secret, "password of that key; never shown"
    )


@dataclass(frozen=True)
class TlsFiles:
    """Paths of TLS files, the same on every node; None if not given."""

    ca_file: str | None = option(
        "tlsCaFile",
        _path,
        "file of certificates to trust, PEM; the system's certificates if not given",
    )
    cert_file: str | None = option(
        "tlsCertFile", _path, "file of the client certificate, PEM, if brokers require one"
    )
    key_file: str | None = option("tlsKeyFile", _path, "file of its private key, PEM")
    verify: bool = option(
        "tlsVerify",
        parse_bool,
        "`false`: accept any certificate, which does not protect against a server that "
        "impersonates a broker",
        "true",
    )


@dataclass(frozen=True)
class ClusterConnection:
    """How to reach a cluster."""

    namesrv_addr: str
    """``host:port``, separated by semicolons."""
    consumer_group: str = option(
        "consumerGroup",
        _group,
        "group name under which brokers see the reader",
        "TOOLS_CONSUMER",  # the group of RocketMQ's own tools, which every broker knows
    )
    tls: TlsFiles | None = None
    """None if TLS is not used."""
    request_timeout_ms: int = option(
        "requestTimeout", parse_duration_ms, "timeout of one request", "10s"
    )
    retry_timeout_ms: int = option(
        "retryTimeout",
        parse_duration_ms,
        "how long a task retries before it fails if a broker is unavailable or too busy",
        "60s",
    )
    secrets: Secrets = field(default_factory=Secrets, repr=False)


@dataclass(frozen=True)
class LiveOptions:
    """Checked options of one read of a cluster; plain values only, so that it can be pickled."""

    connection: ClusterConnection
    reading: SourceOptions
    """Options shared with the source of stores; the path in them is a placeholder."""
    table: str = choice("table", "one of {}", *LIVE_TABLES)
    access: str = choice(
        "access",
        "how messages are found: `consumequeue` pulls the queues; `index` queries the "
        "brokers' indexes for `keys` or `uniqueKeys`; `auto` uses the index if keys and a "
        "topic are given",
        *("auto", "consumequeue", "index"),
    )
    commit_offsets: bool = option(
        "commitOffsets",
        parse_bool,
        "stream: `true` commits offsets of finished batches for `consumerGroup`",
        "false",
    )
    max_messages_per_pull: int = option(
        "maxMessagesPerPull",
        parse_count,
        "most messages per request; brokers also apply their own limit (32)",
        "32",
    )
    dedupe: bool = option(
        "dedupe",
        parse_bool,
        "`true`: drop repeats of messages that `write` and `writeStream` sent more than "
        "once; see [repeats](#repeats)",
        "false",
    )

    @property
    def by_index(self) -> bool:
        """Whether the brokers' indexes are queried."""
        reading = self.reading
        keyed = reading.keys is not None or reading.unique_keys is not None
        return keyed and self.access != "consumequeue" and reading.topics is not None


@dataclass(frozen=True)
class LiveSinkOptions:
    """Checked options of one write; plain values only, so that it can be pickled."""

    connection: ClusterConnection
    sink: SinkOptions
    """Options shared with the sink of stores; the path in them is empty."""
    group: str = option(
        "producerGroup", _group, "group name under which brokers see the writer", "SPARK_PRODUCER"
    )
    send_batch_bytes: int = option(
        "sendBatchBytes",
        partial(parse_bytes, high=4 << 20),
        "most bytes of messages in one request, at most 4m; a request has at least one message",
        "512k",
    )

    @property
    def topic(self) -> str | None:
        """Topic of rows without one."""
        return self.sink.topic


*_CREDENTIALS, _KEY_PASSWORD = options_of(Secrets)
*_FILES, _VERIFY = options_of(TlsFiles)
_OF_TLS = (*_FILES, _KEY_PASSWORD, _VERIFY)
_CONSUMER_GROUP, *_TIMEOUTS = options_of(ClusterConnection)
_TABLE, _ACCESS, *_PULLING, _DEDUPE = options_of(LiveOptions)
_CONNECTION = (
    OptionInfo(
        "namesrvAddr",
        _addresses,
        "name servers as `host:port`, several separated by `;`; required",
        field="namesrv_addr",
    ),
    *_CREDENTIALS,
    OptionInfo("useTLS", parse_bool, "`true`: use TLS for all connections", "false", "use_tls"),
    *_OF_TLS,
    *_TIMEOUTS,
)
_SHARED_NAMES = frozenset(
    {
        *("topic", "topicPattern", "queueId", "startingTimestamp", "endingTimestamp"),
        *("startingOffsets", "endingOffsets", "keys", "uniqueKeys", "tags", "sqlFilter"),
        *("sqlDialect", "where", "mode", "checkCRC", "storeTimeSlackMs"),
        *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
        *("minPartitions", "maxPartitions", "batchRows", "batchBytes", "maxDecodedBytes", "body"),
    }
)
LIVE_OPTION_TABLE = (
    *_CONNECTION,
    *(_TABLE, _ACCESS, _CONSUMER_GROUP, *_PULLING),
    OptionInfo(
        "failOnDataLoss",
        parse_bool,
        "`true`: requested offsets that are gone are an error; `false`: they are skipped "
        "with a warning",
        "true",
        "fail_on_data_loss",
    ),
    _DEDUPE,
    *(info for info in OPTION_TABLE if info.name in _SHARED_NAMES),
)
"""All options of reads from a cluster."""

_SINK_NAMES = (
    *("topic", "compatibility", "compressBodyOver", "compression", "systemTopics", "badRows"),
    *("maxMessageSize", *OF_QUERIES),
)

LIVE_SINK_OPTION_TABLE = (
    *_CONNECTION,
    *(info for info in SINK_OPTION_TABLE if info.name in _SINK_NAMES),
    *options_of(LiveSinkOptions),
)
"""All options of writes to a cluster."""


def parse_live_options(
    options: Mapping[str, str], *, streaming: bool | None = False
) -> LiveOptions:
    """Check the options of a read and return their values.

    Parameters
    ----------
    streaming
        Whether they are options of a stream; None if that is not known yet.

    Raises
    ------
    SourceOptionError
        An option is unknown, malformed, out of bounds, or contradicts another one. It shows no
        secret.
    """
    given = given_options(options, LIVE_OPTION_TABLE)
    values = option_values({n: each for n, each in given.items() if n not in _SHARED_NAMES})
    shared = {name: text for name, (_, text) in given.items() if name in _SHARED_NAMES}
    reading = parse_options({"path": _CLUSTER, **shared}, streaming=streaming)
    if "fail_on_data_loss" in values:
        reading = replace(reading, fail_on_data_loss=values.pop("fail_on_data_loss"))
    connection = _connection(values, given)
    parsed = filled(LiveOptions, values, connection=connection, reading=reading)
    _check_table(parsed, given, streaming)
    _check_group(parsed, given, streaming)
    _check_access(parsed)
    if parsed.dedupe and streaming:
        raise SourceOptionError(
            "dedupe",
            "works within one read, but a stream reads batch by batch: use Spark's "
            "dropDuplicatesWithinWatermark on properties['__SPARK_BATCH__'], or read a batch",
        )
    return parsed


def _connection(values: Mapping[str, Any], given: Collection[str]) -> ClusterConnection:
    """Return the connection that these option values describe."""
    if "namesrvAddr" not in given:
        raise SourceOptionError("namesrvAddr", "is required: HOST:PORT of the name servers")
    use_tls = values.get("use_tls", False)
    for name in (info.name for info in _OF_TLS):
        if name in given and not use_tls:
            raise SourceOptionError(name, "has no effect without useTLS=true; add it, or drop this")
    check_together(given, "accessKey", "secretKey")
    if "securityToken" in given and "accessKey" not in given:
        raise SourceOptionError("securityToken", "requires 'accessKey' and 'secretKey'")
    if "tlsKeyPassword" in given and "tlsKeyFile" not in given:
        raise SourceOptionError("tlsKeyPassword", "requires 'tlsKeyFile'; give it or drop")
    tls = filled(TlsFiles, values) if use_tls else None
    secrets = filled(Secrets, values)
    return filled(ClusterConnection, values, tls=tls, secrets=secrets)


def _check_table(options: LiveOptions, given: Collection[str], streaming: bool | None) -> None:
    if options.table != "messages":
        if streaming:
            raise SourceOptionError(
                "table",
                f"{options.table!r} cannot be followed, only messages; read it as a batch "
                "(spark.read), in foreachBatch if you need it repeatedly",
            )
        _check_selection(options.table, given)
        return
    reading = options.reading
    if reading.topics is None and reading.topic_pattern is None:
        raise SourceOptionError(
            "topic",
            "is required, or 'topicPattern': which topics should be read? '.*' matches all",
        )
    for topic in reading.topics or ():
        if topic.startswith(LMQ_PREFIX):
            raise SourceOptionError("topic", f"{topic!r} is a light queue; it has no rows here")


def _check_selection(table: str, given: Collection[str]) -> None:
    for name in sorted(_SHARED_NAMES.intersection(given)):
        if name not in _SELECTIONS[table] | {"mode", "batchRows", "batchBytes"}:
            raise SourceOptionError(name, f"does not apply to table {table!r}; drop it")


def _check_group(options: LiveOptions, given: Collection[str], streaming: bool | None) -> None:
    if not options.commit_offsets:
        return
    if streaming is False:
        raise SourceOptionError(
            "commitOffsets",
            "is for streams: a batch is not told when its rows have been processed. Use "
            "readStream, with trigger(availableNow=True) to end when all is read",
        )
    if "consumerGroup" not in given:
        raise SourceOptionError(
            "commitOffsets", "requires 'consumerGroup', the group whose offsets are committed"
        )


def _check_access(options: LiveOptions) -> None:
    reading = options.reading
    if options.access != "index":
        return
    if reading.keys is None and reading.unique_keys is None:
        raise SourceOptionError(
            "access", "'index' requires option 'keys' or 'uniqueKeys': the index only finds keys"
        )
    if reading.topics is None:
        raise SourceOptionError(
            "access", "'index' requires option 'topic': brokers only find a key within a topic"
        )


def parse_live_sink_options(options: Mapping[str, str]) -> LiveSinkOptions:
    """Check the options of a write and return their values.

    Raises
    ------
    SourceOptionError
        An option is unknown, malformed, out of bounds, or contradicts another one. It shows no
        secret.
    """
    given = given_options(options, LIVE_SINK_OPTION_TABLE, " to a write")
    given = {name: each for name, each in given.items() if name not in OF_QUERIES}
    values = option_values(given)
    sink = filled(SinkOptions, values, path="")
    check_codec(sink)
    connection = _connection(values, given)
    return filled(LiveSinkOptions, values, connection=connection, sink=sink)


class PullExpression(NamedTuple):
    """A filter expression and its kind, as in a pull request."""

    expression: str
    kind: str

    @property
    def selects_all(self) -> bool:
        """Whether the expression selects all messages."""
        return self.expression == _ALL


EVERYTHING = PullExpression(_ALL, TAG)


def subscription_of(options: SourceOptions) -> PullExpression:
    """Return the filter that brokers apply for a read; everything else is filtered here.

    A pull has one expression: tags take precedence over SQL, as they are cheaper for a broker. SQL
    with operators that only some releases know is not sent, because a broker of another release
    would omit other messages.
    """
    tags = options.tags
    where = [c.values for c in options.where if c.column == "tags" and c.operator in {"=", "in"}]
    for values in where:
        tags = tuple(values) if tags is None else tuple(t for t in tags if t in values)
    if tags and all(_is_plain(tag) for tag in tags):
        return PullExpression(" || ".join(tags), TAG)
    text = options.sql_filter
    if text is not None and not _NOT_IN_EVERY_DIALECT.search(text):
        return PullExpression(text, SQL92)
    return EVERYTHING


def _is_plain(tag: str) -> bool:
    """Return whether the expression of a tag selects exactly that tag."""
    return bool(tag) and tag == tag.strip() and "||" not in tag and tag != _ALL


def pushed(subscription: PullExpression, part: QueueSlice) -> PullExpression:
    """Return the filter that a queue's broker can apply without omitting a matching row.

    If a queue's units do not describe the messages themselves, all are pulled: inner batches have
    tags and properties of their own, and delayed messages have a time in place of the tag.
    """
    if part.kind != PLAIN or part.queue.topic == SCHEDULE_TOPIC:
        return EVERYTHING
    return subscription
