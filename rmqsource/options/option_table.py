"""Every reading option, declared once: name, default, meaning, and how its text is read."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from rmqsource.errors import SourceOptionError
from rmqsource.options.offsets import parse_ending_offsets, parse_starting_offsets
from rmqsource.options.option_values import (
    INT32_MAX,
    did_you_mean,
    load_json,
    parse_bool,
    parse_bytes,
    parse_choice,
    parse_duration_ms,
    parse_int,
    parse_int_list,
    parse_list,
    parse_time_ms,
)
from rmqsource.options.where import parse_where
from rmqsource.tables import TABLES
from store_core.files.store_directory import named_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ACCESS_PATHS = ("auto", "commitlog", "consumequeue", "index", "compaction")
MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
READ_UP_TO = ("dispatched", "written", "flushed")

_TAG_SEPARATOR = "||"
_ALL_TAGS = "*"
_MESSAGE_ID = re.compile(r"[0-9A-F]{32}|[0-9A-F]{56}")
_DELAY_LEVELS = re.compile(r"[0-9]{1,9}[smhd]( +[0-9]{1,9}[smhd])*")
# Arrow's binary columns have int32 offsets; half of their reach leaves room for a last row.
_MAX_BATCH_BYTES = 1 << 30


class OptionInfo(NamedTuple):
    """An option as users know it: name, default as they would write it, meaning."""

    name: str
    default: str
    meaning: str
    field: str
    """Field of ``SourceOptions``; empty for those kept in ``store_config``."""
    parse: Callable[[str, str], Any]


def _text(option: str, text: str) -> str:
    if not text.strip():
        raise SourceOptionError(option, "is empty; give a value or leave the option away")
    return text


def _place(option: str, text: str) -> str:
    return named_store(_text(option, text))


def _path(option: str, text: str) -> tuple[str, ...]:
    return (_place(option, text),)


def _paths(option: str, text: str) -> tuple[str, ...]:
    expected = 'a JSON array of paths as ["/a", "/b"]'
    items = load_json(option, text, expected)
    if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
        raise SourceOptionError(option, f"expected {expected}; found {text!r}")
    return tuple(named_store(item) for item in items)


def _pattern(option: str, text: str) -> str:
    try:
        re.compile(_text(option, text))
    except re.error as err:
        raise SourceOptionError(
            option, f"{text!r} is not a Python regular expression: {err}"
        ) from err
    return text


def _message_ids(option: str, text: str) -> tuple[str, ...]:
    ids = tuple(dict.fromkeys(item.upper() for item in parse_list(option, text)))
    for message_id in ids:
        if not is_message_id(message_id):
            raise SourceOptionError(
                option,
                "expected offset message ids of 32 or 56 hex digits (column message_id); found "
                f"{message_id!r}. For a client's message id use uniqueKeys",
            )
    return ids


def is_message_id(text: str) -> bool:
    """Return whether the text has the form of column ``message_id``."""
    return _MESSAGE_ID.fullmatch(text) is not None


def _tags(option: str, text: str) -> tuple[str, ...] | None:
    """As RocketMQ's ``FilterAPI.buildSubscriptionData`` (5.3.3): ``*`` and blank are all."""
    if text.strip() in {"", _ALL_TAGS}:
        return None
    tags = tuple(dict.fromkeys(t.strip() for t in text.split(_TAG_SEPARATOR) if t.strip()))
    if not tags:
        raise SourceOptionError(option, f"expected TagA || TagB, or *; found {text!r}")
    return tags


def _delay_levels(option: str, text: str) -> str:
    if not _DELAY_LEVELS.fullmatch(text.strip()):
        raise SourceOptionError(option, f"expected times as 1s 5s 10m 2h; found {text!r}")
    return text.strip()


def _directories(option: str, text: str) -> str:
    return ",".join(parse_list(option, text))


_count = partial(parse_int, low=1, high=INT32_MAX)
_messages = partial(parse_int, low=1)
_file_size = partial(parse_bytes, high=INT32_MAX)  # RocketMQ keeps file sizes in a Java int

OPTION_TABLE = (
    OptionInfo("path", "", "store root, or a glob; `load(PATH)` sets it", "paths", _path),
    OptionInfo(
        "paths", "", "JSON array of paths; `load([A, B])` of a batch sets it", "paths", _paths
    ),
    OptionInfo(
        "table",
        "messages",
        "one of " + ", ".join(TABLES),
        "table",
        partial(parse_choice, choices=tuple(TABLES)),
    ),
    OptionInfo("topic", "", "names separated by commas, or a JSON array", "topics", parse_list),
    OptionInfo(
        "topicPattern",
        "",
        "a Python regular expression that must match the whole name",
        "topic_pattern",
        _pattern,
    ),
    OptionInfo("queueId", "", "ids separated by commas", "queue_ids", parse_int_list),
    OptionInfo(
        "startingTimestamp",
        "",
        "store time, inclusive; ms since the epoch, or ISO 8601 with offset",
        "starting_timestamp_ms",
        parse_time_ms,
    ),
    OptionInfo(
        "endingTimestamp",
        "",
        "store time, exclusive; ms since the epoch, or ISO 8601 with offset",
        "ending_timestamp_ms",
        parse_time_ms,
    ),
    OptionInfo(
        "startingOffsets",
        "earliest",
        '`earliest`, or JSON `{"topic":{"0":12}}` (-2 = earliest); queues not named start at '
        "their first message; applies to each store; in a stream also `latest` (-1)",
        "starting_offsets",
        parse_starting_offsets,
    ),
    OptionInfo(
        "endingOffsets",
        "latest",
        '`latest`, or JSON `{"topic":{"0":12}}`, exclusive (-1 = latest); queues not named end '
        "at their last message; applies to each store",
        "ending_offsets",
        parse_ending_offsets,
    ),
    OptionInfo(
        "keys", "", "words of property KEYS: JSON array, or separated by commas", "keys", parse_list
    ),
    OptionInfo(
        "keysFrom",
        "",
        "file of keys, or a directory of such files, which tasks read: Parquet with a column `key` "
        "or with one column of strings, or text with a key a line; messages that have one as a "
        "word of KEYS or as UNIQ_KEY, of table `keys` the rows of those keys; "
        "[millions of keys](#millions-of-keys)",
        "keys_from",
        _place,
    ),
    OptionInfo(
        "uniqueKeys",
        "",
        "values of UNIQ_KEY (client message ids): JSON array, or separated by commas",
        "unique_keys",
        parse_list,
    ),
    OptionInfo(
        "messageIds",
        "",
        "offset message ids: JSON array, or separated by commas",
        "message_ids",
        _message_ids,
    ),
    OptionInfo("tags", "*", "a tag expression, `TagA || TagB` or `*`", "tags", _tags),
    OptionInfo(
        "sqlFilter",
        "",
        "RocketMQ's SQL92 over properties, as a consumer's `MessageSelector.bySql`; see "
        "[SQL92](#sql92)",
        "sql_filter",
        _text,
    ),
    OptionInfo(
        "sqlDialect",
        "5",
        "of `sqlFilter`: `5`, or `4` for what a 4.x broker makes of it",
        "sql_dialect",
        lambda option, text: int(parse_choice(option, text, choices=("5", "4"))),
    ),
    OptionInfo(
        "where",
        "",
        "comparisons joined by `AND`, as in SQL; see [Filters](#filters)",
        "where",
        parse_where,
    ),
    OptionInfo(
        "access",
        "auto",
        f"force an access path: {', '.join(ACCESS_PATHS)}. `consumequeue` reads queues as they "
        "are; where one evidently lost units of messages that are in the log, it is an error with "
        "`FAILFAST`, else a warning",
        "access",
        partial(parse_choice, choices=ACCESS_PATHS),
    ),
    OptionInfo(
        "mode",
        "FAILFAST",
        "what damage does: " + ", ".join(MODES),
        "mode",
        partial(parse_choice, choices=MODES),
    ),
    OptionInfo("checkCRC", "false", "check the CRC of bodies too", "check_crc", parse_bool),
    OptionInfo("snapshot", "", "a token from `rmqsource.snapshot(path)`", "snapshot", _text),
    OptionInfo(
        "storeTimeSlackMs",
        "600000",
        "how far store times may run backwards before pruning by time may miss a message",
        "store_time_slack_ms",
        parse_int,
    ),
    OptionInfo(
        "failOnDataLoss",
        "true",
        "asked-for offsets that are gone are an error; `false`: skipped, listed in `table=plan`",
        "fail_on_data_loss",
        parse_bool,
    ),
    OptionInfo(
        "maxOffsetsPerTrigger",
        "",
        "stream: most messages of a batch, over all stores",
        "max_offsets_per_trigger",
        _messages,
    ),
    OptionInfo(
        "maxBytesPerTrigger",
        "",
        "stream: most bytes of the log of a batch, over all stores; one record at least",
        "max_bytes_per_trigger",
        parse_bytes,
    ),
    OptionInfo(
        "minOffsetsPerTrigger",
        "",
        "stream: a batch waits for so many messages",
        "min_offsets_per_trigger",
        _messages,
    ),
    OptionInfo(
        "maxTriggerDelay",
        "15m",
        "stream: it waits so long at most (`minOffsetsPerTrigger`)",
        "max_trigger_delay_ms",
        parse_duration_ms,
    ),
    OptionInfo(
        "readUpTo",
        "dispatched",
        "stream: how far a batch may go: " + ", ".join(READ_UP_TO),
        "read_up_to",
        partial(parse_choice, choices=READ_UP_TO),
    ),
    OptionInfo("maxPartitionBytes", "128m", "bytes of a split", "max_partition_bytes", parse_bytes),
    OptionInfo("minPartitions", "", "least number of splits", "min_partitions", _count),
    OptionInfo("maxPartitions", "4000", "greatest number of splits", "max_partitions", _count),
    OptionInfo("batchRows", "10000", "most rows of a record batch", "batch_rows", _count),
    OptionInfo(
        "batchBytes",
        "6m",
        "bytes at which a record batch is handed over",
        "batch_bytes",
        partial(parse_bytes, high=_MAX_BATCH_BYTES),
    ),
    OptionInfo(
        "maxDecodedBytes",
        "16m",
        "most that a compressed body or inner batch may expand to; more is damage",
        "max_decoded_bytes",
        partial(parse_bytes, high=_MAX_BATCH_BYTES),
    ),
    OptionInfo(
        "body",
        "decoded",
        "`decoded` or `raw` (as stored)",
        "body",
        partial(parse_choice, choices=("decoded", "raw")),
    ),
    OptionInfo("config", "", "path of a broker configuration file", "config", _text),
    OptionInfo("mappedFileSizeCommitLog", "", "bytes of a log segment", "", _file_size),
    OptionInfo("mappedFileSizeConsumeQueue", "", "bytes of a queue file", "", _file_size),
    OptionInfo("mapperFileSizeBatchConsumeQueue", "", "bytes of a batch queue", "", _file_size),
    OptionInfo("mappedFileSizeConsumeQueueExt", "", "bytes of an ext queue", "", _file_size),
    OptionInfo("maxHashSlotNum", "", "slots of an index file", "", _count),
    OptionInfo("maxIndexNum", "", "entries of an index file", "", _count),
    OptionInfo(
        "storePathCommitLog",
        "",
        "directories of the log, separated by commas; relative ones are below each store root",
        "",
        _directories,
    ),
    OptionInfo("dLegerSelfId", "", "node of a DLedger group, as `n0`", "", _text),
    OptionInfo("dLegerPeers", "", "nodes of a DLedger group, as `n0-host:port;…`", "", _text),
    OptionInfo("messageDelayLevel", "", "delay levels, as `1s 5s 10m 2h`", "", _delay_levels),
)
"""Every reading option: the one place that knows them."""


_OF_A_CATALOG = frozenset({"comment", "external", "location", "owner", "provider"})
"""What ``CREATE TABLE … USING`` hands over instead of the options."""


def given_options(
    options: Mapping[str, str], table: Sequence[OptionInfo], where: str = ""
) -> dict[str, tuple[OptionInfo, str]]:
    """Return the given options by documented name, with what is known of each.

    Parameters
    ----------
    options
        As Spark hands them over, names in any case; None means absent.

    Raises
    ------
    SourceOptionError
        An option is unknown, or given twice.
    """
    by_lower_name = {info.name.lower(): info for info in table}
    given: dict[str, tuple[OptionInfo, str]] = {}
    for name, text in options.items():
        info = by_lower_name.get(name.lower())
        if info is None and name.lower() in _OF_A_CATALOG:
            raise SourceOptionError(
                name,
                "is what Spark's catalog notes of a table, which loses the options of a source "
                "in Python; use CREATE TEMPORARY VIEW … USING `rocketmq-store` OPTIONS (…)",
            )
        if info is None:
            names = [info.name for info in table]
            hint = did_you_mean(name, names) or f"; options are {', '.join(names)}"
            raise SourceOptionError(name, f"is unknown{where}{hint}")
        if info.name in given:
            raise SourceOptionError(info.name, "is given twice, in different case of letters")
        if text is not None:
            given[info.name] = (info, str(text))
    return given
