"""The options of one read of a cluster, parsed once, into one frozen dataclass."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.errors import SourceOptionError
from rmqsource.live.live_queues import PLAIN
from rmqsource.live.option_table import (
    DEFAULT_GROUP,
    DEFAULT_PRODUCER_GROUP,
    LIVE_OPTION_TABLE,
    LIVE_SINK_OPTION_TABLE,
    SHARED_OPTIONS,
)
from rmqsource.options.option_table import given_options
from rmqsource.options.source_options import SourceOptions, parse_options
from rmqsource.sink.option_table import SPARKS_OWN
from rmqsource.sink.options import SinkOptions, check_sink_options
from store_core.layout.message import LMQ_PREFIX, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqsource.live.live_queues import QueueSlice
    from rmqsource.options.option_table import OptionInfo

    Given = dict[str, tuple[OptionInfo, str]]

_CLUSTER = "cluster"
_SHARED_NAMES = frozenset(info.name for info in SHARED_OPTIONS)
_QUEUE_SELECTION = frozenset({"topic", "topicPattern", "queueId"})
_SELECTIONS = {
    "queues": _QUEUE_SELECTION,
    "consumer_offsets": _QUEUE_SELECTION,
    "topics": frozenset({"topic", "topicPattern"}),
    "routes": frozenset({"topic", "topicPattern"}),
}
_OF_TLS = ("tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsKeyPassword", "tlsVerify")
_KEYED = ("keys", "uniqueKeys")
_CREDENTIALS = ("accessKey", "secretKey")
TAG, SQL92 = "TAG", "SQL92"
_ALL = "*"
_NOT_IN_EVERY_DIALECT = re.compile(r"CONTAINS|STARTSWITH|ENDSWITH", re.IGNORECASE)


@dataclass(frozen=True)
class LiveOptions:
    """Options of one read of a cluster, checked; plain values only, so that it can be pickled."""

    connection: ClusterConnection
    reading: SourceOptions
    """What the source has in common with that of files; its path is no path."""
    table: str = "messages"
    access: str = "auto"
    max_messages_per_pull: int = 32
    commit_offsets: bool = False
    dedupe: bool = False

    @property
    def by_index(self) -> bool:
        """Whether the brokers' indexes are asked."""
        reading = self.reading
        keyed = reading.keys is not None or reading.unique_keys is not None
        return keyed and self.access != "consumequeue" and reading.topics is not None


def parse_live_options(
    options: Mapping[str, str], *, streaming: bool | None = False
) -> LiveOptions:
    """Check the options of a read and return their values.

    Parameters
    ----------
    streaming
        Whether they are those of a stream; None: that is not known yet.

    Raises
    ------
    SourceOptionError
        An option is unknown, malformed, out of bounds, or contradicts another one. It shows no
        secret.
    """
    given = given_options(options, LIVE_OPTION_TABLE)
    values = {
        info.field: info.parse(name, text)
        for name, (info, text) in given.items()
        if name not in _SHARED_NAMES
    }
    shared = {name: text for name, (_, text) in given.items() if name in _SHARED_NAMES}
    reading = parse_options({"path": _CLUSTER, **shared}, streaming=streaming)
    if "fail_on_data_loss" in values:
        reading = replace(reading, fail_on_data_loss=values.pop("fail_on_data_loss"))
    own = {each.name for each in fields(LiveOptions)}
    parsed = LiveOptions(
        connection=connection_of(values, given),
        reading=reading,
        **{name: value for name, value in values.items() if name in own},
    )
    _check_table(parsed, given, streaming)
    _check_group(parsed, given, streaming)
    _check_access(parsed)
    if parsed.dedupe and streaming:
        raise SourceOptionError(
            "dedupe",
            "holds within one read, and a stream reads batch by batch: use Spark's "
            "dropDuplicatesWithinWatermark on properties['__SPARK_BATCH__'], or read a batch",
        )
    return parsed


def connection_of(values: Mapping[str, Any], given: Mapping[str, Any]) -> ClusterConnection:
    """Return how to reach the cluster that these values of options name.

    Raises
    ------
    SourceOptionError
        No name server is named, or options lack each other.
    """
    if "namesrvAddr" not in given:
        raise SourceOptionError("namesrvAddr", "is needed: HOST:PORT of the name servers")
    use_tls = values.get("use_tls", False)
    for name in _OF_TLS:
        if name in given and not use_tls:
            raise SourceOptionError(name, "has no effect without useTLS=true; add it, or drop this")
    tls = _of_class(TlsFiles, values) if use_tls else None
    secrets: Secrets = _of_class(Secrets, values)
    check_secrets(secrets, tls)
    plain = ("namesrv_addr", "consumer_group", "request_timeout_ms", "retry_timeout_ms")
    known = {name: values[name] for name in plain if name in values}
    known.setdefault("consumer_group", DEFAULT_GROUP)
    return ClusterConnection(**known, tls=tls, secrets=secrets)


def _of_class(kind: type[Any], values: Mapping[str, Any]) -> Any:
    names = {each.name for each in fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names})


def _check_table(options: LiveOptions, given: Given, streaming: bool | None) -> None:
    if options.table != "messages":
        if streaming:
            raise SourceOptionError(
                "table",
                f"{options.table!r} cannot be followed, only messages; read it as a batch "
                "(spark.read), in foreachBatch where it is wanted again and again",
            )
        _check_selection(options.table, given)
        return
    reading = options.reading
    if reading.topics is None and reading.topic_pattern is None:
        raise SourceOptionError(
            "topic", "is needed, or 'topicPattern': which topics shall be read? '.*' are all"
        )
    for topic in reading.topics or ():
        if topic.startswith(LMQ_PREFIX):
            raise SourceOptionError("topic", f"{topic!r} is a light queue; it has no rows here")


def _check_selection(table: str, given: Given) -> None:
    for name in sorted(given.keys() & _SHARED_NAMES):
        if name not in _SELECTIONS[table] | {"mode", "batchRows", "batchBytes"}:
            raise SourceOptionError(name, f"does not apply to table {table!r}; drop it")


def _check_group(options: LiveOptions, given: Given, streaming: bool | None) -> None:
    if not options.commit_offsets:
        return
    if streaming is False:
        raise SourceOptionError(
            "commitOffsets",
            "is for streams: a batch does not learn when its rows have been processed. Use "
            "readStream, with trigger(availableNow=True) to end when all is read",
        )
    if "consumerGroup" not in given:
        raise SourceOptionError("commitOffsets", "needs 'consumerGroup': whose offsets are they?")


def _check_access(options: LiveOptions) -> None:
    reading = options.reading
    if options.access != "index":
        return
    if reading.keys is None and reading.unique_keys is None:
        raise SourceOptionError(
            "access", "'index' needs option 'keys' or 'uniqueKeys': the index finds keys only"
        )
    if reading.topics is None:
        raise SourceOptionError(
            "access", "'index' needs option 'topic': brokers find a key within a topic only"
        )


@dataclass(frozen=True)
class LiveSinkOptions:
    """Options of one write, checked; plain values only, so that it can be pickled."""

    connection: ClusterConnection
    sink: SinkOptions
    """What the sink has in common with that of files; its path is no path."""
    group: str = DEFAULT_PRODUCER_GROUP
    send_batch_bytes: int = 512 << 10

    @property
    def topic(self) -> str | None:
        """Topic of rows without one."""
        return self.sink.topic


def parse_live_sink_options(options: Mapping[str, str]) -> LiveSinkOptions:
    """Check the options of a write and return their values.

    Raises
    ------
    SourceOptionError
        An option is unknown, malformed, out of bounds, or contradicts another one. It shows no
        secret.
    """
    given = given_options(options, LIVE_SINK_OPTION_TABLE, " to a write")
    values = {
        info.field: info.parse(name, text)
        for name, (info, text) in given.items()
        if name not in SPARKS_OWN
    }
    of_sink = {each.name for each in fields(SinkOptions)}
    own = {"group", "send_batch_bytes"}
    sink = SinkOptions("", **{name: v for name, v in values.items() if name in of_sink})
    check_sink_options(sink)
    return LiveSinkOptions(
        connection_of(values, given),
        sink,
        **{name: value for name, value in values.items() if name in own},
    )


@dataclass(frozen=True)
class Secrets:
    """What must not be seen; it travels to the tasks, and shows nothing of itself."""

    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls_key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TlsFiles:
    """Files of TLS, by their paths on every node; None where none is given."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


@dataclass(frozen=True)
class ClusterConnection:
    """How to reach a cluster."""

    namesrv_addr: str
    """``host:port``, separated by semicolons."""
    consumer_group: str
    tls: TlsFiles | None = None
    """None: without TLS."""
    request_timeout_ms: int = 10_000
    retry_timeout_ms: int = 60_000
    """How long a request is repeated that fails as while a broker restarts."""
    secrets: Secrets = field(default_factory=Secrets, repr=False)


def check_secrets(secrets: Secrets, tls: TlsFiles | None) -> None:
    """Raise where one of two options is missing, or an option has no effect.

    Raises
    ------
    SourceOptionError
        Names the options, and none of their values.
    """
    given = dict(zip(_CREDENTIALS, (secrets.access_key, secrets.secret_key)))
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 1:
        (other,) = set(_CREDENTIALS) - set(missing)
        raise SourceOptionError(other, f"needs {missing[0]!r} beside it; give both or neither")
    if secrets.security_token is not None and missing:
        raise SourceOptionError("securityToken", "needs 'accessKey' and 'secretKey' beside it")
    if secrets.tls_key_password is not None and (tls is None or tls.key_file is None):
        raise SourceOptionError("tlsKeyPassword", "needs 'tlsKeyFile' beside it; give it or drop")


class PullExpression(NamedTuple):
    """Expression and its kind, as a pull says them."""

    expression: str
    kind: str

    @property
    def selects_all(self) -> bool:
        """Whether no message is left out."""
        return self.expression == _ALL


EVERYTHING = PullExpression(_ALL, TAG)


def subscription_of(options: SourceOptions) -> PullExpression:
    """Return what brokers may leave out for a read: more than that is filtered here.

    A pull has one expression: tags go before SQL, as they are cheaper for a broker. Words of SQL
    that not every release knows as operators are not sent: a broker of another release would leave
    out other messages.
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
    """Return whether a tag is in an expression what it is."""
    return bool(tag) and tag == tag.strip() and "||" not in tag and tag != _ALL


def pushed(subscription: PullExpression, part: QueueSlice) -> PullExpression:
    """Return what may be said to a queue's broker so that no row is missing.

    Where units of a queue do not speak of the messages themselves, all are pulled: inner batches
    have tags and properties of their own, and delayed messages a time in the tag's place.
    """
    if part.kind != PLAIN or part.queue.topic == SCHEDULE_TOPIC:
        return EVERYTHING
    return subscription
