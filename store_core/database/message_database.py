# SPDX-License-Identifier: Apache-2.0
"""Read timers and half messages from ``rocksdbstore``, a database of brokers since 5.4.

Every such broker creates the database. With ``timerRocksDBEnable`` it has messages that wait for a
time, with ``transRocksDBEnable`` open half messages, and with ``indexRocksDBEnable`` the index.

Source: RocketMQ ``MessageRocksDBStorage``, ``Timeline``, ``TimerMessageRocksDBStore``,
``TransMessageRocksDBStore`` (release 5.5.1).
"""

from __future__ import annotations

from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.database.read_only_database import (
    DATABASE_PACKAGE,
    ReadOnlyDatabase,
    database_path,
    databases_are_readable,
)
from store_core.database.rocksdb_layout import (
    HALF_VALUE,
    OFFSET_KEY_BYTES,
    TIMELINE_KEY,
    TIMER_FAMILY,
    TIMER_SCAN_KEY,
    TIMER_VALUE,
    TRANSACTION_FAMILY,
)
from store_core.errors import StoreKindError
from store_core.layout import ROCKSDB_STORE_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.files.store_directory import StoreDirectory

    Int64s = npt.NDArray[np.int64]

_WITH_CONTENT = (".sst", ".log")
_PAIRS_AT_ONCE = 1 << 18
_CHECKPOINTS = frozenset({TIMELINE_KEY, TIMER_SCAN_KEY})


class DatabaseTimers(NamedTuple):
    """Messages that wait for a time, or did and are not deleted yet, one row each.

    Attributes
    ----------
    read_ms
        Time before which all messages are delivered, ms since the epoch.
    times_ms
        Time for which each message waits, ms since the epoch.
    """

    queue_offset: int
    read_ms: int
    times_ms: Int64s
    unique_keys: tuple[bytes, ...]
    commit_log_offset: Int64s


def message_database(directory: StoreDirectory) -> str:
    """Return the path of the database if anything was written to it; else empty."""
    path = database_path(directory, ROCKSDB_STORE_DIR)
    entries = directory.list(path) if path else []
    has_content = any(e.size > 0 and e.name.endswith(_WITH_CONTENT) for e in entries)
    return path if has_content else ""


def load_database_timers(directory: StoreDirectory) -> DatabaseTimers | None:
    """Read the timers of a store's database; None if it has never had any.

    Memory: 200 bytes per timer.

    Raises
    ------
    StoreKindError
        There is a database, but the library to read it is missing.
    StoreFormatError
        The database cannot be opened, or a table is damaged.
    StoreReadError
        A file cannot be read.
    """
    pairs = _pairs(directory, TIMER_FAMILY)
    noted = {key: value for key, value in pairs if key in _CHECKPOINTS}
    timers = [
        (key, value)
        for key, value in pairs
        if len(key) > OFFSET_KEY_BYTES and len(value) == TIMER_VALUE.size
    ]
    if not noted and not timers:
        return None
    times = b"".join(key[:OFFSET_KEY_BYTES] for key, _ in timers)
    table = TIMER_VALUE.table(np.frombuffer(b"".join(value for _, value in timers), np.uint8))
    return DatabaseTimers(
        int.from_bytes(noted.get(TIMER_SCAN_KEY, b""), "big"),
        int.from_bytes(noted.get(TIMELINE_KEY, b""), "big"),
        np.frombuffer(times, ">i8").astype(np.int64),
        tuple(key[OFFSET_KEY_BYTES:] for key, _ in timers),
        table["commit_log_offset"].astype(np.int64),
    )


def timers_are_elsewhere(directory: StoreDirectory) -> str:
    """Return why messages that wait for a time cannot be delivered from here; empty if they can.

    Raises
    ------
    StoreFormatError, StoreReadError
        As `load_database_timers`.
    """
    try:
        timers = load_database_timers(directory)
    except StoreKindError as err:
        return str(err)
    if timers is None:
        return ""
    return (
        f"{directory.resolve(ROCKSDB_STORE_DIR)}: the broker keeps the timers of this store in "
        "RocksDB (timerRocksDBEnable=true), which is read-only here: deliveries could not be "
        "recorded, and the broker would deliver the messages again. Let the broker deliver its "
        "timer messages"
    )


def load_open_halves(directory: StoreDirectory) -> dict[int, int]:
    """Return the starts of the open half messages in the log, with the number of checks of each.

    Raises
    ------
    StoreKindError, StoreFormatError, StoreReadError
        As `load_database_timers`.
    """
    return {
        int.from_bytes(key[:OFFSET_KEY_BYTES], "big"): int(HALF_VALUE.unpack(value).check_times)
        for key, value in _pairs(directory, TRANSACTION_FAMILY)
        if len(key) > OFFSET_KEY_BYTES and len(value) == HALF_VALUE.size
    }


def _pairs(directory: StoreDirectory, family: str) -> list[tuple[bytes, bytes]]:
    path = message_database(directory)
    if not path:
        return []
    if not databases_are_readable():
        raise StoreKindError(
            "the broker keeps timers and transactions in this RocksDB database, which cannot be "
            f"read: install the Python package {DATABASE_PACKAGE!r} (extra rocksdb)",
            path,
        )
    with closing(ReadOnlyDatabase(directory, path)) as database:
        if not database.has_family(family):
            return []
        return list(chain.from_iterable(_in_pieces(database, family)))


def _in_pieces(database: ReadOnlyDatabase, family: str) -> Iterator[list[tuple[bytes, bytes]]]:
    start = b""
    while pairs := database.pairs_from(family, start, _PAIRS_AT_ONCE):
        yield pairs
        start = pairs[-1][0] + b"\0"
