# SPDX-License-Identifier: Apache-2.0
"""The options of one read, parsed once into a frozen dataclass."""

from __future__ import annotations

import json
import os
import re
import warnings
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.damage import log_damage
from rmqsource.errors import SourceOptionError
from rmqsource.options.offsets import (
    check_batch_start,
    check_order,
    parse_ending_offsets,
    parse_starting_offsets,
)
from rmqsource.options.option_values import (
    INT32_MAX,
    OptionInfo,
    choice,
    declared,
    delay_levels_text,
    given_options,
    option,
    option_values,
    options_of,
    parse_bool,
    parse_bytes,
    parse_count,
    parse_duration_ms,
    parse_int,
    parse_int_list,
    parse_list,
    parse_message_ids,
    parse_paths,
    parse_pattern,
    parse_place,
    parse_tags,
    parse_text,
    parse_time_ms,
    shown_ms,
)
from rmqsource.options.where import column_error, parse_where
from rmqsource.tables import TABLES
from store_core.codec.compression import MAX_DECODED_BYTES
from store_core.config.config_checks import property_text
from store_core.errors import FilterSyntaxError, IgnoredInputWarning
from store_core.files.store_directory import utf8_path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rmqsource.damage import OnDamage
    from rmqsource.options.offsets import OffsetBound
    from rmqsource.options.where import Comparison
    from store_core.filter.sql_filter import SqlFilter

OPTION = "sqlFilter"
_WHERE = "where"
CONFIG_MEANING = "path of a broker configuration file"

_messages = partial(parse_int, low=1)
# Arrow's binary columns have int32 offsets; half of that range leaves room for a last row.
_batch_bytes = partial(parse_bytes, high=1 << 30)
_file_size = partial(parse_bytes, high=INT32_MAX)  # RocketMQ keeps file sizes in a Java int


@dataclass(frozen=True)
class SourceOptions:
    """Checked options of one read; picklable as Spark gets them.

    None means "not given". Lists have distinct items in the given order.
    """

    paths: tuple[str, ...]
    """Store roots as given; globs are not expanded yet."""
    table: str = choice("table", "one of {}", *TABLES)
    topics: tuple[str, ...] | None = option(
        "topic", parse_list, "names separated by commas, or a JSON array"
    )
    topic_pattern: str | None = option(
        "topicPattern", parse_pattern, "a Python regular expression that must match the whole name"
    )
    queue_ids: tuple[int, ...] | None = option("queueId", parse_int_list, "ids separated by commas")
    starting_timestamp_ms: int | None = option(
        "startingTimestamp",
        parse_time_ms,
        "store time, inclusive; ms since the epoch, or ISO 8601 with offset",
    )
    ending_timestamp_ms: int | None = option(
        "endingTimestamp",
        parse_time_ms,
        "store time, exclusive; ms since the epoch, or ISO 8601 with offset",
    )
    """Exclusive, as is ``ending_offsets``."""
    starting_offsets: OffsetBound | None = field(
        default=None,
        metadata=declared(
            "startingOffsets",
            parse_starting_offsets,
            '`earliest`, or JSON `{"topic":{"0":12}}` (-2 = earliest); other queues '
            "start at their first message; applies to each store; streams also accept "
            "`latest` (-1)",
            "earliest",
        ),
    )
    ending_offsets: OffsetBound | None = field(
        default=None,
        metadata=declared(
            "endingOffsets",
            parse_ending_offsets,
            '`latest`, or JSON `{"topic":{"0":12}}`, exclusive (-1 = latest); other '
            "queues end at their last message; applies to each store",
            "latest",
        ),
    )
    keys: tuple[str, ...] | None = option(
        "keys", parse_list, "keys (words of property KEYS): a JSON array, or separated by commas"
    )
    keys_from: str | None = option(
        "keysFrom",
        parse_place,
        "file of keys, or a directory of such files, which tasks read: Parquet with a column "
        "`key` or with a single column of strings, or text with one key per line; selects "
        "messages that have one of them as a word of KEYS or as UNIQ_KEY, and from table "
        "`keys` the rows of those keys; see [millions of keys](#millions-of-keys)",
    )
    unique_keys: tuple[str, ...] | None = option(
        "uniqueKeys",
        parse_list,
        "values of UNIQ_KEY (client message ids): a JSON array, or separated by commas",
    )
    message_ids: tuple[str, ...] | None = option(
        "messageIds", parse_message_ids, "offset message ids: a JSON array, or separated by commas"
    )
    """Upper-case hex, 32 digits (IPv4 store host) or 56 (IPv6)."""
    tags: tuple[str, ...] | None = option(
        "tags", parse_tags, "a tag expression, `TagA || TagB` or `*`", "*"
    )
    """None selects all messages, with and without a tag."""
    sql_filter: str | None = option(
        OPTION,
        parse_text,
        "a SQL92 filter over properties, like a consumer's `MessageSelector.bySql`; see "
        "[SQL92](#sql92)",
    )
    """RocketMQ's SQL92, checked to parse."""
    sql_dialect: int = choice(
        "sqlDialect",
        "dialect of `sqlFilter`: `5`, or `4` to evaluate it as a 4.x broker does",
        5,
        4,
    )
    where: tuple[Comparison, ...] = field(
        default=(),
        metadata=declared(
            _WHERE, parse_where, "comparisons joined by `AND`, as in SQL; see [Filters](#filters)"
        ),
    )
    """A conjunction."""
    access: str = choice(
        "access",
        "force an access path: {}. `consumequeue` reads queues as they are; if a queue has "
        "evidently lost units of messages that are in the log, that is an error with "
        "`FAILFAST`, otherwise a warning",
        *("auto", "commitlog", "consumequeue", "index", "compaction"),
    )
    mode: str = choice(
        "mode", "what happens at damage: {}", "FAILFAST", "PERMISSIVE", "DROPMALFORMED"
    )
    check_crc: bool = option(
        "checkCRC", parse_bool, "`true`: also check the CRCs of bodies", "false"
    )
    snapshot: str | None = option("snapshot", parse_text, "a token from `rmqsource.snapshot(path)`")
    store_time_slack_ms: int = option(
        "storeTimeSlackMs",
        parse_int,
        "how far store times may go backwards without pruning by time missing a message",
        "600000",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        parse_bool,
        "`true`: requested offsets that are gone are an error; `false`: they are skipped and "
        "listed in `table=plan`",
        "true",
    )
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger", _messages, "stream: most messages per batch, over all stores"
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        parse_bytes,
        "stream: most bytes of the log per batch, over all stores; at least one record is read",
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger", _messages, "stream: a batch waits for this many messages"
    )
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay",
        parse_duration_ms,
        "stream: longest wait for `minOffsetsPerTrigger`",
        "15m",
    )
    read_up_to: str = choice(
        "readUpTo", "stream: up to where a batch may read: {}", "dispatched", "written", "flushed"
    )
    max_partition_bytes: int = option(
        "maxPartitionBytes", parse_bytes, "size of a split in bytes", "128m"
    )
    min_partitions: int | None = option("minPartitions", parse_count, "minimum number of splits")
    max_partitions: int = option("maxPartitions", parse_count, "maximum number of splits", "4000")
    batch_rows: int = option(
        "batchRows", parse_count, "maximum number of rows in a record batch", "10000"
    )
    batch_bytes: int = option(
        "batchBytes", _batch_bytes, "size in bytes at which a record batch is handed over", "6m"
    )
    max_decoded_bytes: int = option(
        "maxDecodedBytes",
        _batch_bytes,
        "largest size to which a compressed body or inner batch may expand; more is damage",
        f"{MAX_DECODED_BYTES >> 20}m",
    )
    body: str = choice("body", "`decoded` or `raw` (as stored)", "decoded", "raw")
    config: str | None = option("config", parse_text, CONFIG_MEANING)
    store_config: tuple[tuple[str, int | str], ...] = ()
    """Given sizes and locations of the store, by RocketMQ's own keys."""
    working_directory: str = ""
    """Directory that relative paths start at: the planning process's; if empty, this one's."""
    on_damage: OnDamage = log_damage
    """Called for damage that ``mode`` allows a read to skip; Spark's reads log it."""
    drops_reported: bool = False
    """Whether another read of the same places has already reported what a split drops."""


STORE_OPTIONS = (
    OptionInfo("mappedFileSizeCommitLog", _file_size, "size of a log segment in bytes"),
    OptionInfo("mappedFileSizeConsumeQueue", _file_size, "size of a queue file in bytes"),
    OptionInfo(
        "mapperFileSizeBatchConsumeQueue", _file_size, "size of a batch queue file in bytes"
    ),
    OptionInfo(
        "mappedFileSizeConsumeQueueExt", _file_size, "size of an extension queue file in bytes"
    ),
    OptionInfo("maxHashSlotNum", parse_count, "number of slots in an index file"),
    OptionInfo("maxIndexNum", parse_count, "number of entries in an index file"),
    OptionInfo(
        "storePathCommitLog",
        lambda option, text: ",".join(parse_list(option, text)),
        "directories of the log, separated by commas; relative ones are under each store root",
    ),
    OptionInfo("dLegerSelfId", parse_text, "node of a DLedger group, such as `n0`"),
    OptionInfo("dLegerPeers", parse_text, "nodes of a DLedger group, such as `n0-host:port;…`"),
    OptionInfo("messageDelayLevel", delay_levels_text, "delay levels, such as `1s 5s 10m 2h`"),
)
"""Sizes and locations of a store: the keys of a broker's configuration file that reads need."""

OPTION_TABLE = (
    OptionInfo(
        "path",
        lambda option, text: (parse_place(option, text),),
        "store root, or a glob; `load(PATH)` sets it",
        field="paths",
    ),
    OptionInfo(
        "paths",
        parse_paths,
        "JSON array of paths; `load([A, B])` of a batch sets it",
        field="paths",
    ),
    *options_of(SourceOptions),
    *STORE_OPTIONS,
)
"""All options of reads; no other place lists them."""

_QUEUE_SELECTION = ("topic", "topicPattern", "queueId")
_MESSAGE_SELECTION = (
    *_QUEUE_SELECTION,
    *("startingTimestamp", "endingTimestamp", "startingOffsets", "endingOffsets"),
    *("keys", "keysFrom", "uniqueKeys", "messageIds", "tags", _WHERE, "access", "body"),
    *("sqlFilter", "sqlDialect"),
)

# A selection that does not apply to a table is an error: ignoring it would return too many rows.
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
    "keysFrom": "a file of keys is read only once: read a batch (spark.read), or join in "
    "foreachBatch",
    "messageIds": "a message id names one message that already exists: read a batch (spark.read)",
}
_STREAMED_TABLES = ("messages", "keys")
_STREAMED_ACCESS = ("auto", "commitlog")


def parse_options(options: Mapping[str, str], *, streaming: bool | None = False) -> SourceOptions:
    """Check the options of a read and return their values.

    Parameters
    ----------
    streaming
        Whether they are options of a stream; None if that is not known yet.

    Raises
    ------
    SourceOptionError
        An option is unknown, malformed, out of bounds, or contradicts another one.
    """
    given = given_options(options, OPTION_TABLE)
    _check_pairs(given)
    values = option_values(given)
    if not values.get("paths"):
        raise SourceOptionError("path", "no store is named; use load(PATH) or load([PATH, ...])")
    parsed = SourceOptions(**values)
    if streaming is True:
        _check_stream(parsed, given)
    elif streaming is False:
        _check_batch(parsed, given)
    _check_where(parsed)
    _check_table(parsed, given)
    if "sqlDialect" in given and parsed.sql_filter is None:
        raise SourceOptionError(
            "sqlDialect", "applies only to option 'sqlFilter': give that too, or drop this"
        )
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
    """Check options given in Python, where values may be numbers or booleans."""
    given = {name: property_text(value) for name, value in (options or {}).items()}
    lowered = {name.lower() for name in fixed}
    given = {name: text for name, text in given.items() if name.lower() not in lowered}
    if isinstance(path, (str, os.PathLike)):
        where = {"path": utf8_path(os.fspath(path))}
    else:
        where = {"paths": json.dumps([utf8_path(os.fspath(each)) for each in path])}
    return parse_options({**given, **fixed, **where})


def check_commit_log_paths(options: SourceOptions, stores: tuple[str, ...]) -> None:
    """Raise if several stores would share an absolute ``storePathCommitLog``.

    Called again when globs are expanded, as only then the number of stores is known.
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
            f"{options.table!r} cannot be followed, only {' and '.join(_STREAMED_TABLES)}; "
            "read it as a batch (spark.read), in foreachBatch if you need it repeatedly",
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
    # For table keys, the keys may come from WHERE; for table messages, only unique_key may.
    compared = any(c.column in {"key", "unique_key"} for c in options.where)
    keyless = options.keys is None and options.unique_keys is None and not compared
    if options.access == "index" and options.table != "keys" and keyless:
        raise SourceOptionError(
            "access", "'index' requires option 'keys' or 'uniqueKeys': the index only finds keys"
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
            reason = "column key exists only in table keys; give option table=keys, or option keys"
            raise column_error(_WHERE, comparison, reason)


def narrowed(options: SourceOptions, where: str) -> SourceOptions:
    """Return options with a condition added, as if option ``where`` had both."""
    both = replace(options, where=options.where + parse_where(_WHERE, where))
    _check_where(both)
    return both


def _check_ranges(options: SourceOptions) -> None:
    start, end = options.starting_timestamp_ms, options.ending_timestamp_ms
    if start is not None and end is not None and start > end:
        raise SourceOptionError(
            "startingTimestamp",
            f"{shown_ms(start)} is {start - end} ms after endingTimestamp {shown_ms(end)}, "
            "which is exclusive; are the two swapped?",
        )
    if options.min_partitions is not None and options.min_partitions > options.max_partitions:
        raise SourceOptionError(
            "minPartitions",
            f"{options.min_partitions} is above maxPartitions {options.max_partitions}",
        )
    if options.starting_offsets is not None and options.ending_offsets is not None:
        check_order(options.starting_offsets, options.ending_offsets)


def _check_offset_topics(options: SourceOptions) -> None:
    """Raise for offsets of unread queues: a misspelt name would leave the meant queue unbounded."""
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
    """A filter, and a warning to its author."""

    sql_filter: SqlFilter
    ignored: str
    """Describes the part of the text that RocketMQ ignores; empty if it reads all."""


def sql_option(options: SourceOptions) -> SqlOption | None:
    """Return the SQL filter of a read; None if it has none.

    Raises
    ------
    SourceOptionError
        The text does not parse; the error says where.
    """
    if options.sql_filter is None:
        return None
    return _parsed(options.sql_filter, options.sql_dialect)


def warn_of_ignored_input(options: SourceOptions) -> None:
    """Warn if RocketMQ reads only the beginning of a filter."""
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
