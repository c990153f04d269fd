# SPDX-License-Identifier: Apache-2.0
"""Open the stores that the options name; make and check the tokens that pin them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rmqsource.errors import DataLossError, SourceOptionError
from rmqsource.options.option_values import INT64_MAX
from rmqsource.options.source_options import check_commit_log_paths
from store_core.config.message_store_config import MessageStoreConfig, load_broker_config
from store_core.errors import FileVanishedError
from store_core.files.store_directory import StoreDirectory, expand_paths
from store_core.snapshot.store_snapshot import StoreSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Callable

    from rmqsource.options.source_options import SourceOptions

_T = TypeVar("_T")
_WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]|\\\\")
VANISHED_ATTEMPTS = 64
"""How often a store is listed if its files vanish between listing and reading: a broker can be
configured to delete a segment every millisecond, and a listing takes several."""
_PATH_KEYS = (
    "storePathCommitLog",
    "readOnlyCommitLogStorePaths",
    "storePathDLedgerCommitLog",
)


class LogRange(NamedTuple):
    """Physical offsets ``[start, stop)`` of a log."""

    start: int
    stop: int


def store_config(options: SourceOptions) -> MessageStoreConfig:
    """Return the configuration of the stores: the broker's file, overridden by options."""
    return MessageStoreConfig.from_properties(store_properties(options))


def store_properties(options: SourceOptions) -> dict[str, str]:
    """Return the broker's settings by RocketMQ's keys: its file, overridden by options."""
    properties = {}
    if options.config:
        properties = load_broker_config(str(Path(options.working_directory, options.config)))
    given = {key: str(value) for key, value in options.store_config}
    root = _with_slashes(properties.get("storePathRootDir", "").strip()).rstrip("/")
    for key in _PATH_KEYS:
        if key in properties and key not in given:
            properties[key] = _below_root(key, properties[key], root)
    return {**properties, **given}


def _below_root(key: str, paths: str, root: str) -> str:
    """Make a broker's absolute directories relative, so that they are valid where the store is now.

    Raises
    ------
    SourceOptionError
        A Windows path is not below the root, so it cannot be on this machine.
    """
    names = []
    for name in (_with_slashes(each.strip()) for each in paths.split(",")):
        if root and name.startswith(root + "/"):
            names.append(name[len(root) + 1 :])
        elif _WINDOWS_PATH.match(name):
            raise SourceOptionError(
                "config",
                f"{key}={name} is a Windows path, which this machine does not have; give the "
                f"directory's current place with option {key!r}",
            )
        else:
            names.append(name)
    return ",".join(names)


def _with_slashes(path: str) -> str:
    """Return a Windows path with slashes; any other path unchanged."""
    return path.replace("\\", "/") if _WINDOWS_PATH.match(path) else path


def open_snapshots(options: SourceOptions) -> Iterator[StoreSnapshot]:
    """Open each store in turn; the caller closes them.

    Raises
    ------
    StoreError
        A path matches nothing, is not a store, or cannot be read.
    SourceOptionError
        The token of option ``snapshot`` does not fit a store.
    DataLossError
        Part of the log that option ``snapshot`` pins is gone, and ``failOnDataLoss`` is true.
    """
    base = options.working_directory
    paths = tuple(expand_paths(options.paths, base))
    check_commit_log_paths(options, paths)
    config = store_config(options)
    token = parse_token(options.snapshot) if options.snapshot is not None else None
    for path in paths:
        if token is None:
            yield open_snapshot(path, config, None, base)
            continue
        if path not in token:
            raise SourceOptionError(
                "snapshot", f"the token does not name store {path}; it names {', '.join(token)}"
            )
        pin = token[path]
        yield _pinned(open_snapshot(path, config, pin.stop, base), pin, options)


def open_snapshot(
    path: str, config: MessageStoreConfig, end_offset: int | None, base: str = ""
) -> StoreSnapshot:
    """Open a store, retrying if its files vanish; a relative path starts at ``base``."""
    directory = StoreDirectory(path, base)
    for _ in range(VANISHED_ATTEMPTS - 1):
        try:
            return StoreSnapshot(directory, config, end_offset)
        except FileVanishedError:
            continue
    return StoreSnapshot(directory, config, end_offset)


def _pinned(snapshot: StoreSnapshot, pin: LogRange, options: SourceOptions) -> StoreSnapshot:
    """Check that a store still has the log that a token pins; close the store if not."""
    try:
        _check_pin(snapshot, pin, options)
    except BaseException:
        snapshot.close()
        raise
    return snapshot


def _check_pin(snapshot: StoreSnapshot, pin: LogRange, options: SourceOptions) -> None:
    path, segments = snapshot.directory.uri, snapshot.log.segments
    if len(segments) and pin.stop > segments.max_offset:
        raise SourceOptionError(
            "snapshot",
            f"the token ends store {path} at {pin.stop}, but its log has "
            f"{segments.max_offset} bytes: it is another store, or was cut since; create a "
            "new token",
        )
    if len(segments) and segments.min_offset < pin.start:
        raise SourceOptionError(
            "snapshot",
            f"the token begins store {path} at {pin.start}, but its log begins at "
            f"{segments.min_offset}: it is another store; create a new token",
        )
    gone = missing_log(snapshot, options)
    if gone is not None and options.fail_on_data_loss:
        reason = (
            f"bytes {gone.start} to {gone.stop} of the log, which option 'snapshot' pins, are gone"
        )
        raise DataLossError(path, reason)


def missing_log(snapshot: StoreSnapshot, options: SourceOptions) -> LogRange | None:
    """Return the range that option ``snapshot`` pins and the log has lost; None if nothing."""
    if options.snapshot is None:
        return None
    pin = parse_token(options.snapshot)[snapshot.directory.uri]
    held = snapshot.min_phy_offset if len(snapshot.log.segments) else pin.stop
    gone = LogRange(pin.start, min(held, pin.stop))
    return gone if gone.start < gone.stop else None


def on_present_files(snapshot: StoreSnapshot, work: Callable[[StoreSnapshot], _T]) -> _T:
    """Return the result of ``work`` on a store, reopening the store if a file of it vanishes."""
    for attempt in range(VANISHED_ATTEMPTS - 1):
        try:
            if attempt == 0:
                return work(snapshot)
            with snapshot.reopened() as again:
                return work(again)
        except FileVanishedError:
            continue
    with snapshot.reopened() as again:
        return work(again)


def make_token(options: SourceOptions) -> str:
    """Return a token that pins where the log of each store begins and ends now."""
    stores = {}
    for snapshot in open_snapshots(options):
        with snapshot:
            begin = max(snapshot.min_phy_offset, 0)
            stores[snapshot.directory.uri] = {"begin": begin, "end": snapshot.end_offset}
    return json.dumps({"stores": stores}, ensure_ascii=False)


def parse_token(token: str) -> dict[str, LogRange]:
    """Return the pinned range of each store's log, by the store's path.

    Raises
    ------
    SourceOptionError
        The text is not a valid token.
    """
    try:
        values = json.loads(token)
    except (ValueError, RecursionError):
        values = None
    if isinstance(values, dict) and set(values) == {"ends"}:
        raise SourceOptionError(
            "snapshot",
            "the token is from an earlier release, which pinned only the ends of stores; "
            "create a new one with rmqsource.snapshot(path)",
        )
    stores = values.get("stores") if isinstance(values, dict) and len(values) == 1 else None
    if not isinstance(stores, dict):
        raise SourceOptionError(
            "snapshot", f"{token!r} is not a token; create one with rmqsource.snapshot(path)"
        )
    return {path: _pin(path, pin) for path, pin in stores.items()}


def _pin(path: str, pin: object) -> LogRange:
    if isinstance(pin, dict) and set(pin) == {"begin", "end"}:
        begin, end = pin["begin"], pin["end"]
        are_numbers = type(begin) is int and type(end) is int  # excludes bool
        if are_numbers and 0 <= begin <= end <= INT64_MAX:
            return LogRange(begin, end)
    raise SourceOptionError(
        "snapshot",
        f"for store {path} the token has {pin!r}, expected the begin and end of a log, 0 <= "
        "begin <= end; create a new one with rmqsource.snapshot(path)",
    )
