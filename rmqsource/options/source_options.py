"""The options of one read, parsed once, into one frozen dataclass."""

from __future__ import annotations

import json
import os
import re
import warnings
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.errors import SourceOptionError
from rmqsource.options.offsets import check_batch_start, check_order
from rmqsource.options.option_table import OPTION_TABLE, given_options
from rmqsource.options.where import column_error, parse_where
from store_core.codec.compression import MAX_DECODED_BYTES
from store_core.errors import FilterSyntaxError, IgnoredInputWarning
from store_core.files.store_directory import utf8_path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rmqsource.options.offsets import OffsetBound
    from rmqsource.options.where import Comparison
    from store_core.filter.sql_filter import SqlFilter

__all__ = [
    "OPTION_TABLE",
    "SourceOptions",
    "check_commit_log_paths",
    "narrowed",
    "options_for",
    "parse_options",
]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
OPTION = "sqlFilter"


@dataclass(frozen=True)
class SourceOptions:
    """Options of one read, checked; plain values only, so that it can be pickled.

    None means "not given". Lists hold distinct items in the order given.
    """

    paths: tuple[str, ...]
    """Store roots as given; globs are not expanded yet."""
    table: str = "messages"
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    queue_ids: tuple[int, ...] | None = None
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    """Exclusive, as is ``ending_offsets``."""
    starting_offsets: OffsetBound | None = None
    ending_offsets: OffsetBound | None = None
    keys: tuple[str, ...] | None = None
    keys_from: str | None = None
    unique_keys: tuple[str, ...] | None = None
    message_ids: tuple[str, ...] | None = None
    """Upper-case hex, 32 digits (IPv4 store host) or 56 (IPv6)."""
    tags: tuple[str, ...] | None = None
    """None for all, with and without a tag."""
    sql_filter: str | None = None
    """RocketMQ's SQL92; it parses."""
    sql_dialect: int = 5
    where: tuple[Comparison, ...] = ()
    """A conjunction."""
    access: str = "auto"
    mode: str = "FAILFAST"
    check_crc: bool = False
    snapshot: str | None = None
    store_time_slack_ms: int = 600_000
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    read_up_to: str = "dispatched"
    max_partition_bytes: int = 128 << 20
    min_partitions: int | None = None
    max_partitions: int = 4000
    batch_rows: int = 10_000
    batch_bytes: int = 6 << 20
    max_decoded_bytes: int = MAX_DECODED_BYTES
    body: str = "decoded"
    config: str | None = None
    """Path of a broker configuration file."""
    store_config: tuple[tuple[str, int | str], ...] = ()
    """Given sizes and places of the store, under RocketMQ's own keys."""
    working_directory: str = ""
    """That relative paths start at, of the process that planned; empty: of this one."""


_WHERE = "where"


_QUEUE_SELECTION = ("topic", "topicPattern", "queueId")


_MESSAGE_SELECTION = (
    *_QUEUE_SELECTION,
    *("startingTimestamp", "endingTimestamp", "startingOffsets", "endingOffsets"),
    *("keys", "keysFrom", "uniqueKeys", "messageIds", "tags", _WHERE, "access", "body"),
    *("sqlFilter", "sqlDialect"),
)


# A selection that a table does not know would be answered with too many rows: an error instead.
_SELECTIONS = {
    "messages": _MESSAGE_SELECTION,
    "keys": _MESSAGE_SELECTION,
    "plan": _MESSAGE_SELECTION,
    "consume_queue": _QUEUE_SELECTION,
    "queues": _QUEUE_SELECTION,
    "consumer_offsets": _QUEUE_SELECTION,
    "topics": ("topic", "topicPattern"),
}


_STREAM_ONLY = (
    *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"),
    *("maxTriggerDelay", "readUpTo"),
)


_BATCH_ONLY = {
    "endingOffsets": "a stream has no end; read a batch (spark.read), or stop the query",
    "endingTimestamp": "a stream has no end; read a batch (spark.read), or stop the query",
    "snapshot": "a stream follows the store; a snapshot is for batches (spark.read)",
    "keysFrom": "keys of a file are those of one moment: read a batch (spark.read), or join in "
    "foreachBatch",
    "messageIds": "a message id names one message that is there: read a batch (spark.read)",
}


_STREAMED_TABLES = ("messages", "keys")


_STREAMED_ACCESS = ("auto", "commitlog")


def parse_options(options: Mapping[str, str], *, streaming: bool | None = False) -> SourceOptions:
    """Check the options of a read and return their values.

    Parameters
    ----------
    streaming
        Whether they are those of a stream; None: that is not known yet.

    Raises
    ------
    SourceOptionError
        An option is unknown, malformed, out of bounds, or contradicts another one.
    """
    given = given_options(options, OPTION_TABLE)
    _check_pairs(given)
    values: dict[str, Any] = {}
    store_config: list[tuple[str, int | str]] = []
    for name, (info, text) in given.items():
        value = info.parse(name, text)
        if info.field:
            values[info.field] = value
        else:
            store_config.append((name, value))
    if not values.get("paths"):
        raise SourceOptionError("path", "no store is named; use load(PATH) or load([PATH, ...])")
    parsed = SourceOptions(store_config=tuple(sorted(store_config)), **values)
    if streaming is True:
        _check_stream(parsed, given)
    elif streaming is False:
        _check_batch(parsed, given)
    _check_where(parsed)
    _check_table(parsed, given)
    if "sqlDialect" in given and parsed.sql_filter is None:
        raise SourceOptionError("sqlDialect", "is of option 'sqlFilter': give that too, or drop it")
    sql_option(parsed)
    _check_ranges(parsed)
    _check_offset_topics(parsed)
    check_commit_log_paths(parsed, parsed.paths)
    return parsed


def options_for(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    options: Mapping[str, Any] | None = None,
    **fixed: str,
) -> SourceOptions:
    """Check options given in Python, where values may be numbers and booleans."""
    given = {name: _option_text(value) for name, value in (options or {}).items()}
    lowered = {name.lower() for name in fixed}
    given = {name: text for name, text in given.items() if name.lower() not in lowered}
    if isinstance(path, (str, os.PathLike)):
        where = {"path": utf8_path(os.fspath(path))}
    else:
        where = {"paths": json.dumps([utf8_path(os.fspath(each)) for each in path])}
    return parse_options({**given, **fixed, **where})


def _option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_commit_log_paths(options: SourceOptions, stores: tuple[str, ...]) -> None:
    """Raise where several stores would share an absolute ``storePathCommitLog``.

    Called again when globs are expanded: only then is the number of stores known.
    """
    directories = str(dict(options.store_config).get("storePathCommitLog", ""))
    absolute = [d for d in directories.split(",") if d.startswith("/") or "://" in d]
    if absolute and len(stores) > 1:
        raise SourceOptionError(
            "storePathCommitLog",
            f"{absolute[0]!r} is absolute, but {len(stores)} stores are read; give directories "
            "relative to each store, or read one store at a time",
        )


def _check_pairs(given: Collection[str]) -> None:
    for one, other in (
        ("path", "paths"),
        ("topic", "topicPattern"),
        ("startingTimestamp", "startingOffsets"),
        ("endingTimestamp", "endingOffsets"),
    ):
        if one in given and other in given:
            raise SourceOptionError(one, f"cannot be given together with {other!r}; drop one")


def _check_batch(options: SourceOptions, given: Collection[str]) -> None:
    for name in _STREAM_ONLY:
        if name in given:
            raise SourceOptionError(name, "is for streams (spark.readStream); drop it")
    if options.starting_offsets is not None:
        check_batch_start("startingOffsets", options.starting_offsets)


def _check_stream(options: SourceOptions, given: Collection[str]) -> None:
    for name, reason in _BATCH_ONLY.items():
        if name in given:
            raise SourceOptionError(name, reason)
    if options.table not in _STREAMED_TABLES:
        raise SourceOptionError(
            "table",
            f"{options.table!r} cannot be followed, only {' and '.join(_STREAMED_TABLES)}; read it "
            "as a batch (spark.read), in foreachBatch where it is wanted again and again",
        )
    if options.access not in _STREAMED_ACCESS:
        raise SourceOptionError(
            "access",
            f"a stream reads ranges of the log: {' or '.join(_STREAMED_ACCESS)}; found "
            f"{options.access!r}",
        )
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise SourceOptionError(
            "minOffsetsPerTrigger", f"{least} is above maxOffsetsPerTrigger {most}"
        )


def _check_table(options: SourceOptions, given: Collection[str]) -> None:
    allowed = _SELECTIONS.get(options.table, ())
    for name in _MESSAGE_SELECTION:
        if name in given and name not in allowed:
            tables = ", ".join(table for table, names in _SELECTIONS.items() if name in names)
            raise SourceOptionError(
                name, f"does not apply to table {options.table!r}, only to {tables}; drop it"
            )
    # Of table keys, the keys may come from WHERE; of messages, only unique_key could.
    compared = any(c.column in {"key", "unique_key"} for c in options.where)
    keyless = options.keys is None and options.unique_keys is None and not compared
    if options.access == "index" and options.table != "keys" and keyless:
        raise SourceOptionError(
            "access", "'index' needs option 'keys' or 'uniqueKeys': the index finds keys only"
        )


def _check_where(options: SourceOptions) -> None:
    tables = [table for table, names in _SELECTIONS.items() if _WHERE in names]
    if options.where and options.table not in tables:
        raise SourceOptionError(
            _WHERE,
            f"does not apply to table {options.table!r}, only to {', '.join(tables)}; drop it and "
            "filter with Spark's WHERE, which gives the same rows",
        )
    for comparison in options.where:
        if comparison.column == "key" and options.table == "messages":
            reason = "column key exists in table keys only; give option table=keys, or option keys"
            raise column_error(_WHERE, comparison, reason)


def narrowed(options: SourceOptions, where: str) -> SourceOptions:
    """Return options that ask for a condition too, as if option ``where`` had both."""
    both = replace(options, where=options.where + parse_where(_WHERE, where))
    _check_where(both)
    return both


def _check_ranges(options: SourceOptions) -> None:
    start, end = options.starting_timestamp_ms, options.ending_timestamp_ms
    if start is not None and end is not None and start > end:
        raise SourceOptionError(
            "startingTimestamp",
            f"{_shown(start)} is {start - end} ms after endingTimestamp {_shown(end)}, which is "
            "exclusive; is one the other?",
        )
    if options.min_partitions is not None and options.min_partitions > options.max_partitions:
        raise SourceOptionError(
            "minPartitions",
            f"{options.min_partitions} is above maxPartitions {options.max_partitions}",
        )
    if options.starting_offsets is not None and options.ending_offsets is not None:
        check_order(options.starting_offsets, options.ending_offsets)


def _shown(milliseconds: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _check_offset_topics(options: SourceOptions) -> None:
    """Raise for offsets of a topic that is not read: a misspelt name would read too much."""
    bounds = (
        ("startingOffsets", options.starting_offsets),
        ("endingOffsets", options.ending_offsets),
    )
    for name, bound in bounds:
        for topic, queue_id in [*bound.offsets, *bound.latest] if bound else ():
            if options.topics is not None and topic not in options.topics:
                reason = f"topic {topic!r} is not among those of option 'topic'"
            elif options.topic_pattern and not re.fullmatch(options.topic_pattern, topic):
                reason = f"topic {topic!r} does not match option 'topicPattern'"
            elif options.queue_ids is not None and queue_id not in options.queue_ids:
                reason = f"queue {queue_id} of {topic!r} is not among those of option 'queueId'"
            else:
                continue
            raise SourceOptionError(name, f"{reason}; name it there or drop it here")


class SqlOption(NamedTuple):
    """A filter, and a warning to the person who wrote it.

    Attributes
    ----------
    ignored
        What RocketMQ does not read of the text, in words; empty: it reads all.
    """

    sql_filter: SqlFilter
    ignored: str


def sql_option(options: SourceOptions) -> SqlOption | None:
    """Return the filter of a read; None when there is none.

    Raises
    ------
    SourceOptionError
        The text does not parse; the error names the place.
    """
    if options.sql_filter is None:
        return None
    return _parsed(options.sql_filter, options.sql_dialect)


def warn_of_ignored_input(options: SourceOptions) -> None:
    """Warn where RocketMQ takes the beginning of a filter for the whole."""
    found = sql_option(options)
    if found is not None and found.ignored:
        warnings.warn(f"option {OPTION}: {found.ignored}", IgnoredInputWarning, stacklevel=2)


@lru_cache(maxsize=16)
def _parsed(text: str, dialect: int) -> SqlOption:
    from store_core.filter.sql_filter import SqlFilter  # noqa: PLC0415 (most reads have no filter)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IgnoredInputWarning)
        try:
            sql_filter = SqlFilter(text, dialect)
        except FilterSyntaxError as err:
            raise SourceOptionError(OPTION, str(err)) from err
    return SqlOption(sql_filter, "; ".join(str(warning.message) for warning in caught))
