"""Every option of the sinks, declared once: name, default, meaning, and how its text is read."""

from __future__ import annotations

import re
from functools import partial

from rmqsource.errors import SourceOptionError
from rmqsource.options.option_table import OPTION_TABLE, OptionInfo
from rmqsource.options.option_values import (
    INT32_MAX,
    parse_bool,
    parse_bytes,
    parse_choice,
    parse_int,
)

MAX_QUEUES = 65_536
"""Queues of one topic. A broker and every client keep objects for each number below the highest."""
CODECS = ("zlib", "lz4", "zstd", "none")
BAD_ROWS = ("fail", "drop")
FLUSHES = ("sync", "async")

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_CHECKPOINT_OPTION = "checkpointLocation"
_LAYOUT_OPTIONS = ("config", *(info.name for info in OPTION_TABLE if not info.field))


def is_topic_name(name: str) -> bool:
    """Return whether RocketMQ's ``TopicValidator`` (5.3.3) accepts the characters of a name."""
    return _TOPIC.fullmatch(name) is not None


def _text(option: str, text: str) -> str:
    if not text.strip():
        raise SourceOptionError(option, "is empty; give a value or leave the option away")
    return text


def _topic(option: str, text: str) -> str:
    if not is_topic_name(text.strip()):
        raise SourceOptionError(
            option, f"expected one topic name of letters, digits and % | _ -; found {text!r}"
        )
    return text.strip()


def _compatibility(option: str, text: str) -> int:
    return int(parse_choice(option, text, ("4", "5")))


_count = partial(parse_int, low=1, high=INT32_MAX)

SINK_OPTION_TABLE = (
    OptionInfo("path", "", "root of one local store; `save(PATH)` sets it", "path", _text),
    OptionInfo("topic", "", "topic of rows without one", "topic", _topic),
    OptionInfo(
        "queues",
        "",
        "queues per topic for rows without queue_id (round robin, or by sharding_key); as the "
        "store's topics.json says, else 4",
        "queues",
        partial(parse_int, low=1, high=MAX_QUEUES),
    ),
    OptionInfo(
        "flush",
        "sync",
        "`sync`: committed means on the disk; `async`: the operating system writes when it likes",
        "flush",
        partial(parse_choice, choices=FLUSHES),
    ),
    OptionInfo("createStore", "true", "make a store where none is", "create_store", parse_bool),
    OptionInfo(
        "compatibility",
        "4",
        "`4`: every byte readable by 4.9 and 5.x; `5`: topics over 127 bytes, LZ4, ZSTD",
        "compatibility",
        _compatibility,
    ),
    OptionInfo(
        "compressBodyOver",
        "4096",
        "bodies of so many bytes and more are compressed",
        "compress_body_over",
        partial(parse_bytes, low=0),
    ),
    OptionInfo(
        "compression",
        "zlib",
        "one of " + ", ".join(CODECS),
        "compression",
        partial(parse_choice, choices=CODECS),
    ),
    OptionInfo(
        "systemTopics",
        "false",
        "`true`: accept rows of system, retry and dead-letter topics, which a broker may deliver "
        "or check again",
        "system_topics",
        parse_bool,
    ),
    OptionInfo("txnAppId", "", "names the application of txnVersion", "txn_app_id", _text),
    OptionInfo(
        "txnVersion",
        "",
        "a write whose version is not above the last one committed for txnAppId is skipped",
        "txn_version",
        parse_int,
    ),
    OptionInfo(
        "badRows",
        "fail",
        "what a row does that cannot be a message: " + ", ".join(BAD_ROWS),
        "bad_rows",
        partial(parse_choice, choices=BAD_ROWS),
    ),
    OptionInfo(
        "maxMessageSize", "4m", "most bytes of a stored body", "max_message_size", parse_bytes
    ),
    *(info for info in OPTION_TABLE if info.name in _LAYOUT_OPTIONS),
    OptionInfo(_CHECKPOINT_OPTION, "", "Spark's own, of a streaming query; unused", "", _text),
)
"""Every option of the sinks: the one place that knows them."""

SPARKS_OWN = frozenset({_CHECKPOINT_OPTION})
