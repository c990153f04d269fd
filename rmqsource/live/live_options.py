"""The options of one read of a cluster, parsed once, into one frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from rmqsource.errors import SourceOptionError
from rmqsource.live.connection import Connection, Secrets, TlsFiles, check_secrets
from rmqsource.live.option_table import DEFAULT_GROUP, LIVE_OPTION_TABLE, SHARED_OPTIONS
from rmqsource.options.option_table import given_options
from rmqsource.options.source_options import SourceOptions, parse_options
from store_core.layout.message import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

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


@dataclass(frozen=True)
class LiveOptions:
    """Options of one read of a cluster, checked; plain values only, so that it can be pickled."""

    connection: Connection
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
    options
        As Spark hands them over; names in any case.
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


def connection_of(values: Mapping[str, Any], given: Mapping[str, Any]) -> Connection:
    """Return how to reach the cluster that these values of options name.

    Parameters
    ----------
    values
        By field of the option table.
    given
        Options that were given, by documented name.

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
    return Connection(**known, tls=tls, secrets=secrets)


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
