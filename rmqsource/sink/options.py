"""The options of one write, parsed once, into one frozen dataclass."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqsource.errors import SourceOptionError
from rmqsource.options.option_table import given_options
from rmqsource.sink.option_table import SINK_OPTION_TABLE, SPARKS_OWN
from store_core.files.store_directory import StoreDirectory, local_path

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SINK_OPTION_TABLE", "SinkOptions", "parse_sink_options"]

_NEWER_CODECS = ("lz4", "zstd")
_FIRST_WITH_CODECS = 5


@dataclass(frozen=True)
class SinkOptions:
    """Options of one write, checked; plain values only, so that it can be pickled.

    None means "not given".
    """

    path: str
    """Absolute local path of the store root."""
    topic: str | None = None
    queues: int | None = None
    flush: str = "sync"
    create_store: bool = True
    compatibility: int = 4
    compress_body_over: int = 4096
    """Bytes; such a body and longer ones are compressed."""
    compression: str = "zlib"
    system_topics: bool = False
    txn_app_id: str | None = None
    txn_version: int | None = None
    bad_rows: str = "fail"
    max_message_size: int = 4 << 20
    """Bytes of a body as stored."""
    config: str | None = None
    """Path of a broker configuration file."""
    store_config: tuple[tuple[str, int | str], ...] = ()
    """Given sizes and places of the store, under RocketMQ's own keys."""


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write and return their values.

    Raises
    ------
    SourceOptionError
        An option is unknown, malformed, out of bounds, or contradicts another one.
    """
    values: dict[str, Any] = {}
    store_config: list[tuple[str, int | str]] = []
    given = given_options(options, SINK_OPTION_TABLE, " to a write")
    for name, (info, text) in given.items():
        value = info.parse(name, text)
        if info.field:
            values[info.field] = value
        elif name not in SPARKS_OWN:
            store_config.append((name, value))
    if "path" not in values:
        raise SourceOptionError("path", "no store is named; use save(PATH)")
    values["path"] = _local_root(values["path"])
    parsed = SinkOptions(store_config=tuple(sorted(store_config)), **values)
    check_sink_options(parsed)
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
        raise SourceOptionError("path", f"{uri!r} is no name of a directory: NUL, or half a letter")
    return directory.resolve()


def check_sink_options(options: SinkOptions) -> None:
    """Raise `SourceOptionError` where options contradict each other."""
    if (options.txn_app_id is None) != (options.txn_version is None):
        given, missing = ("txnAppId", "txnVersion")
        if options.txn_app_id is None:
            given, missing = missing, given
        raise SourceOptionError(given, f"needs {missing!r} beside it; give both or neither")
    if options.compression in _NEWER_CODECS and options.compatibility < _FIRST_WITH_CODECS:
        raise SourceOptionError(
            "compression",
            f"{options.compression!r} is unknown to brokers and clients of 4.x; set "
            "'compatibility' to 5, or take zlib",
        )
