# SPDX-License-Identifier: Apache-2.0
"""Detects a store's state (stopped, crashed or in use) and kind; writes nothing."""

from __future__ import annotations

import os
import re
import struct
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from store_core.config.config_database import config_databases
from store_core.database.read_only_database import (
    DATABASE_PACKAGE,
    database_path,
    databases_are_readable,
)
from store_core.errors import StoreKindError
from store_core.files.byte_source import open_to_read
from store_core.layout import (
    ABORT_BACKUP_FILE,
    ABORT_FILE,
    COMPACTION_DIR,
    COMPACTION_LOG_DIR,
    COMPACTION_QUEUE_DIR,
    CONFIG_DIR,
    CONSUME_QUEUE_DIR,
    INDEX_DIR,
    LOCK_FILE,
    ROCKSDB_CONSUME_QUEUE_DIR,
    ROCKSDB_STORE_DIR,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.files.store_directory import StoreDirectory

_FileKey = tuple[int, int]
_locked: dict[_FileKey, int] = {}
"""(device, inode) -> the process that locked it: a forked child inherits the table, not the locks.
"""
_NAMED_TOPICS = 5
_INSTALL = f"install the Python package {DATABASE_PACKAGE!r} (extra rocksdb)"
_DLEDGER = re.compile(r"dledger-.+")
_COMPACTED = (COMPACTION_LOG_DIR, COMPACTION_QUEUE_DIR)
_QUEUE_DATABASES = (CONSUME_QUEUE_DIR, ROCKSDB_CONSUME_QUEUE_DIR)
_TIERED = frozenset({"tieredStoreMetadata.json", "tieredStoreMetadata.json.bak"})


class StoreState(Enum):
    """Source: RocketMQ ``DefaultMessageStore.load``, ``start``, ``shutdown`` (5.3.3)."""

    STOPPED = "stopped cleanly"
    CRASHED = "not stopped cleanly"
    LIVE = "open in a broker"


def store_state(directory: StoreDirectory) -> StoreState:
    """Return a store's state: no ``abort`` after a clean stop, ``lock`` locked by a live broker."""
    if directory.stat(directory.resolve(ABORT_FILE)) is None:
        return StoreState.STOPPED
    return StoreState.LIVE if _is_locked(directory) else StoreState.CRASHED


def written_by_5x(directory: StoreDirectory) -> bool:
    """Return whether a 5.x broker has opened the store: it writes its PID into ``abort``.

    That write leaves ``abort.bak``, even after a clean stop; 4.x leaves ``abort`` empty.
    """
    if directory.stat(directory.resolve(ABORT_BACKUP_FILE)) is not None:
        return True
    abort = directory.stat(directory.resolve(ABORT_FILE))
    return abort is not None and abort.size > 0


def _is_locked(directory: StoreDirectory) -> bool:
    """Ask the system whether a process has locked byte 0 of ``lock``, without locking it."""
    path = directory.resolve(LOCK_FILE)
    if not directory.is_local:
        return False
    if is_locked_here(path):  # the system does not report a process's own locks to it
        return True
    if sys.platform != "linux" or directory.stat(path) is None:
        return False
    import fcntl  # noqa: PLC0415 (Unix only)

    query = struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 1, 0)
    try:
        with os.fdopen(open_to_read(path), "rb") as lock:
            answer = fcntl.fcntl(lock, fcntl.F_GETLK, query)
    except OSError:
        return False
    return bool(struct.unpack_from("hh", answer)[0] != fcntl.F_UNLCK)


# POSIX locks belong to a process, which loses them when it closes any descriptor of the file: code
# that opens a ``lock`` file asks here first.
def locked_here(key: _FileKey) -> None:
    """Remember that this process locked a file, identified by device and inode."""
    _locked[key] = os.getpid()


def unlocked_here(key: _FileKey) -> None:
    """Forget that this process locked a file."""
    _locked.pop(key, None)


def is_locked_here(path: str) -> bool:
    """Return whether this process has locked a file; False if the file is missing."""
    try:
        found = Path(path).stat()
    except OSError:
        return False
    return _locked.get((found.st_dev, found.st_ino)) == os.getpid()


# This project reads the files of ``storeType=default``, and compacted logs on request. A 5.x broker
# can also store queues and settings in RocksDB databases (``storeType=defaultRocksDB``), its log in
# DLedger, and more messages in compacted logs and tiered storage. Observed in stores of real
# brokers, release 5.3.3.
@dataclass(frozen=True)
class StoreKind:
    """The parts of a store that are not in log and queue files; empty fields do not apply.

    Attributes
    ----------
    index_database
        Path of the RocksDB database that may replace the index files (5.4.0 on); it is not read.
        It may contain timers and transactions only.
    """

    queue_database: str = ""
    config_databases: tuple[str, ...] = ()
    unread_because: str = _INSTALL
    dledger_log: str = ""
    compacted_topics: tuple[str, ...] = ()
    index_database: str = ""
    tiered: str = ""

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each part that is stored elsewhere."""
        return (*self.unread(), *self._compacted())

    def _compacted(self) -> tuple[str, ...]:
        if not self.compacted_topics:
            return ()
        names = ", ".join(self.compacted_topics[:_NAMED_TOPICS])
        rest = len(self.compacted_topics) - _NAMED_TOPICS
        more = f" and {rest} more" if rest > 0 else ""
        return (
            f"consumers of compacted topics ({names}{more}) get the newest message of each key "
            "from compacted logs; access=compaction reads those. Otherwise messages come from the "
            "commit log, as long as it has them",
        )

    def unread(self) -> tuple[str, ...]:
        """Return a sentence for each part that is not read."""
        found = []
        if self.queue_database:
            found.append(
                f"the queues are in a RocksDB database ({self.queue_database}), which is not read: "
                f"{self.unread_because}. Messages come from the log"
            )
        if self.config_databases:
            places = ", ".join(self.config_databases)
            found.append(
                f"topics, groups and consumer offsets are in RocksDB databases ({places}), "
                f"which are not read: {self.unread_because}"
            )
        if self.index_database:
            found.append(
                "there are no index files, and with indexRocksDBEnable the index is in a RocksDB "
                f"database ({self.index_database}), which is not read: queries by key scan the log"
            )
        if self.tiered:
            found.append(
                f"the broker moves messages to tiered storage ({self.tiered}), which is not read: "
                "messages come from the local log, as long as it has them"
            )
        return tuple(found)

    def require_queue_files(self, what: str) -> None:
        """Raise `StoreKindError` if the queues are not in files, which ``what`` needs."""
        if self.queue_database:
            raise StoreKindError(
                "the queues of this store are in a RocksDB database (storeType=defaultRocksDB): "
                f"{what}: {self.unread_because}. Its messages can be read, and salvaged into a new "
                "store with queues in files",
                self.queue_database,
            )

    def require_config_files(self, what: str) -> None:
        """Raise `StoreKindError` if settings are not in files, which ``what`` needs."""
        if self.config_databases:
            raise StoreKindError(
                f"topics, groups and consumer offsets of this store are in RocksDB databases: "
                f"{what}: {self.unread_because}",
                self.config_databases[0],
            )

    def require_commit_log(self) -> None:
        """Raise `StoreKindError` if the log is DLedger's, which can only be read."""
        if self.dledger_log:
            raise StoreKindError(
                "the log of this store is a DLedger log (enableDLegerCommitLog=true): nothing can "
                "be written to it here. Its messages can be read, and salvaged into a new store "
                "with a commit log of its own",
                self.dledger_log,
            )


def store_kind(directory: StoreDirectory) -> StoreKind:
    """Return the kind of store in a directory, judged by file names; opens no file.

    Raises
    ------
    StoreReadError
        A directory cannot be read.
    """
    names = {entry.name: entry for entry in directory.list(directory.resolve()) if entry.is_dir}
    dledger = sorted(name for name in names if _DLEDGER.fullmatch(name))
    config = directory.list(directory.resolve(CONFIG_DIR)) if CONFIG_DIR in names else []
    is_unread = not databases_are_readable()
    return StoreKind(
        queue_database=queue_database(directory)
        if is_unread and not names.keys().isdisjoint(_QUEUE_DATABASES)
        else "",
        config_databases=config_databases(directory) if is_unread and CONFIG_DIR in names else (),
        dledger_log=directory.resolve(dledger[0]) if dledger else "",
        compacted_topics=_compacted_topics(directory) if COMPACTION_DIR in names else (),
        index_database=_index_database(directory) if ROCKSDB_STORE_DIR in names else "",
        tiered=next((e.path for e in config if e.name in _TIERED and not e.is_dir), ""),
    )


def has_dledger_log(names: Iterable[str]) -> bool:
    """Return whether one of the names in a store's directory belongs to a DLedger node."""
    return any(_DLEDGER.fullmatch(name) for name in names)


def require_writable(directory: StoreDirectory) -> None:
    """Raise `StoreKindError` if a store has a DLedger log or queues in a database."""
    store_kind(directory).require_commit_log()
    require_queue_files(directory, "nothing can be written to it here")


def require_queue_files(directory: StoreDirectory, what: str) -> None:
    """Raise `StoreKindError` if the queues are in a database; ``what`` needs them in files."""
    path = queue_database(directory)
    if path:
        raise StoreKindError(
            "the queues of this store are in a RocksDB database (storeType=defaultRocksDB): "
            f"{what}. Its messages can be read, and salvaged into a new store with queues in files",
            path,
        )


def queue_database(directory: StoreDirectory) -> str:
    """Return the path of the database with a store's queues; empty if there is none.

    A 5.5 broker with ``useSeparateStorePathForRocksdbCQ`` stores it beside ``consumequeue``, and
    refuses to start if it finds a database in the other place too.
    """
    found = (database_path(directory, name) for name in _QUEUE_DATABASES)
    return next((path for path in found if path), "")


def _index_database(directory: StoreDirectory) -> str:
    """Return the path of the database that may contain the index; every broker since 5.4.0 has one.

    A database that was never used has no tables and an empty log.
    """
    if any(entry.name.isdigit() for entry in directory.list(directory.resolve(INDEX_DIR))):
        return ""
    path = directory.resolve(ROCKSDB_STORE_DIR)
    for entry in directory.list(path):
        if entry.name.endswith(".sst") or (entry.name.endswith(".log") and entry.size):
            return path
    return ""


def _compacted_topics(directory: StoreDirectory) -> tuple[str, ...]:
    paths = (directory.resolve(COMPACTION_DIR, name) for name in _COMPACTED)
    found = {entry.name for path in paths for entry in directory.list(path) if entry.is_dir}
    return tuple(sorted(found))
