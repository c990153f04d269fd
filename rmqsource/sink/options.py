# SPDX-License-Identifier: Apache-2.0
"""The options of one write, declared and parsed once into a frozen dataclass."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rmqsource.errors import SourceOptionError
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
    parse_int,
    parse_name,
    parse_text,
)
from rmqsource.options.source_options import CONFIG_MEANING, STORE_OPTIONS
from store_core.files.store_directory import StoreDirectory, local_path

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_QUEUES = 65_536
"""Limit of queues in a topic: a broker and each client keep an object for every id below the
highest."""
OF_QUERIES = ("checkpointLocation", "queryName")
"""Options of a streaming query that Spark passes on to its sink."""
_NEWER_CODECS = ("lz4", "zstd")
_FIRST_WITH_CODECS = 5
_topic = partial(parse_name, kind="topic")


@dataclass(frozen=True)
class SinkOptions:
    """Checked options of one write; plain values only, so that it can be pickled.

    None means "not given".
    """

    path: str
    """Absolute local path of the store root."""
    topic: str | None = option("topic", _topic, "topic for rows that have none")
    queues: int | None = option(
        "queues",
        partial(parse_int, low=1, high=MAX_QUEUES),
        "queues per topic for rows without queue_id (round robin, or by sharding_key); as in "
        "the store's topics.json, otherwise 4",
    )
    flush: str = choice(
        "flush",
        "`sync`: committed messages are on disk; `async`: the operating system decides when "
        "to write them",
        *("sync", "async"),
    )
    create_store: bool = option(
        "createStore", parse_bool, "`true`: create a store if there is none", "true"
    )
    compatibility: int = choice(
        "compatibility",
        "`4`: every byte readable by 4.9 and 5.x; `5`: topics over 127 bytes, LZ4, ZSTD",
        *(4, 5),
    )
    compress_body_over: int = option(
        "compressBodyOver",
        partial(parse_bytes, low=0),
        "bodies of at least this many bytes are compressed",
        "4096",
    )
    compression: str = choice("compression", "one of {}", "zlib", "lz4", "zstd", "none")
    system_topics: bool = option(
        "systemTopics",
        parse_bool,
        "`true`: accept rows of system, retry and dead-letter topics, which a broker may deliver "
        "or check again",
        "false",
    )
    txn_app_id: str | None = option(
        "txnAppId", parse_text, "name of the application to which txnVersion belongs"
    )
    txn_version: int | None = option(
        "txnVersion",
        parse_int,
        "a write is skipped if its version is not above the last one committed for txnAppId",
    )
    bad_rows: str = choice(
        "badRows", "what happens with a row that cannot be a message: {}", "fail", "drop"
    )
    max_message_size: int = option(
        "maxMessageSize", parse_bytes, "maximum size of a stored body in bytes", "4m"
    )
    config: str | None = option("config", parse_text, CONFIG_MEANING)
    store_config: tuple[tuple[str, int | str], ...] = ()
    """Given sizes and locations of the store, by RocketMQ's own keys."""


SINK_OPTION_TABLE = (
    OptionInfo("path", parse_text, "root of one local store; `save(PATH)` sets it", field="path"),
    *options_of(SinkOptions),
    *STORE_OPTIONS,
    *(
        OptionInfo(name, parse_text, "Spark's option for the query; not used here", field=name)
        for name in OF_QUERIES
    ),
)
"""All options of writes to a store; no other place lists them."""


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write and return their values.

    Raises
    ------
    SourceOptionError
        An option is unknown, malformed, out of bounds, or contradicts another one.
    """
    given = given_options(options, SINK_OPTION_TABLE, " to a write")
    values = option_values(given)
    if "path" not in values:
        raise SourceOptionError("path", "no store is named; use save(PATH)")
    values["path"] = _local_root(values["path"])
    parsed = filled(SinkOptions, values)
    check_together(given, "txnAppId", "txnVersion")
    check_codec(parsed)
    return parsed


def _local_root(uri: str) -> str:
    directory = StoreDirectory(uri)
    if not directory.is_local:
        text = f"{directory.uri!r} is not local; a store can only be written on a local file system"
        raise SourceOptionError("path", text)
    path = local_path(uri)
    try:
        is_name = "\0" not in path and bool(os.fsencode(path))
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise SourceOptionError(
            "path",
            f"{uri!r} is not a valid directory name: it has a NUL or an incomplete character",
        )
    return directory.resolve()


def check_codec(options: SinkOptions) -> None:
    """Raise if the brokers of ``compatibility`` cannot decompress the messages."""
    if options.compression in _NEWER_CODECS and options.compatibility < _FIRST_WITH_CODECS:
        raise SourceOptionError(
            "compression",
            f"{options.compression!r} is unknown to brokers and clients of 4.x; set "
            "'compatibility' to 5, or use zlib",
        )
