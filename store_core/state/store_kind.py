"""What kind of store a directory holds: RocketMQ keeps some of them in other files than these.

Read here are the files of ``storeType=default``. A 5.x broker can keep queues and settings in
RocksDB databases (``storeType=defaultRocksDB``), its log in DLedger, and more messages in compacted
logs and tiered storage. Seen in stores of real brokers, release 5.3.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store_core.errors import StoreKindError
from store_core.layout.store_paths import CONFIG_DIR, CONSUME_QUEUE_DIR

if TYPE_CHECKING:
    from store_core.files.store_directory import StoreDirectory

_OF_A_DATABASE = ("CURRENT", "IDENTITY", "LOCK")
_NAMED_TOPICS = 5
_DLEDGER = re.compile(r"dledger-.+")
_COMPACTION = "compaction"
_COMPACTED_LOG = "compactionLog"
_TIERED = frozenset({"tieredStoreMetadata.json", "tieredStoreMetadata.json.bak"})


@dataclass(frozen=True)
class StoreKind:
    """Which parts of a store are kept in a way that is not read here; empty: none.

    Attributes
    ----------
    queue_database
        Path of the RocksDB database that holds the queues.
    config_databases
        Paths of those that hold topics, consumer offsets and groups.
    dledger_log
        Path of the directory that holds the log of a DLedger group.
    compacted_topics
        Topics with a compacted log: only there are messages that the commit log has lost.
    tiered
        The file in which tiered storage keeps its list of segments.
    """

    queue_database: str = ""
    config_databases: tuple[str, ...] = ()
    dledger_log: str = ""
    compacted_topics: tuple[str, ...] = ()
    tiered: str = ""

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each part that is not read."""
        found = []
        if self.queue_database:
            found.append(
                f"the queues are in a RocksDB database ({self.queue_database}), which is not read: "
                "messages come from the log"
            )
        if self.config_databases:
            places = ", ".join(self.config_databases)
            found.append(
                f"topics, groups and consumer offsets are in RocksDB databases ({places}), "
                "which are not read"
            )
        if self.compacted_topics:
            names = ", ".join(self.compacted_topics[:_NAMED_TOPICS])
            rest = len(self.compacted_topics) - _NAMED_TOPICS
            more = f" and {rest} more" if rest > 0 else ""
            found.append(
                f"topics with a compacted log, which is not read ({names}{more}): messages come "
                "from the commit log, as long as it has them"
            )
        if self.tiered:
            found.append(
                f"the broker moves messages to tiered storage ({self.tiered}), which is not read: "
                "messages come from the local log, as long as it has them"
            )
        return tuple(found)

    def require_queue_files(self, what: str) -> None:
        """Raise `StoreKindError` where the queues are not in files; ``what`` needs them."""
        if self.queue_database:
            raise StoreKindError(
                f"the queues of this store are in a RocksDB database (storeType=defaultRocksDB): "
                f"{what}. Its messages can be read, and salvaged into a new store with queues in "
                "files",
                self.queue_database,
            )

    def require_config_files(self, what: str) -> None:
        """Raise `StoreKindError` where settings are not in files; ``what`` needs them."""
        if self.config_databases:
            raise StoreKindError(
                f"topics, groups and consumer offsets of this store are in RocksDB databases: "
                f"{what}",
                self.config_databases[0],
            )

    def require_commit_log(self) -> None:
        """Raise `StoreKindError` where the log is one of DLedger, whose records are others."""
        if self.dledger_log:
            raise StoreKindError(
                "the log of this store is one of DLedger (enableDLegerCommitLog=true), which "
                "cannot be read or written here; read a store with a commit log of its own",
                self.dledger_log,
            )


def store_kind(directory: StoreDirectory) -> StoreKind:
    """Return what kind of store a directory holds, by the names in it; opens no file.

    Raises
    ------
    StoreReadError
        A directory cannot be read.
    """
    names = {entry.name: entry for entry in directory.list(directory.resolve()) if entry.is_dir}
    dledger = sorted(name for name in names if _DLEDGER.fullmatch(name))
    config = directory.list(directory.resolve(CONFIG_DIR)) if CONFIG_DIR in names else []
    return StoreKind(
        queue_database=_database(directory, CONSUME_QUEUE_DIR)
        if CONSUME_QUEUE_DIR in names
        else "",
        config_databases=tuple(
            path
            for entry in config
            if entry.is_dir and (path := _database(directory, CONFIG_DIR, entry.name))
        ),
        dledger_log=directory.resolve(dledger[0]) if dledger else "",
        compacted_topics=_compacted_topics(directory) if _COMPACTION in names else (),
        tiered=next((e.path for e in config if e.name in _TIERED and not e.is_dir), ""),
    )


def require_writable(directory: StoreDirectory) -> None:
    """Raise `StoreKindError` where a store has no files that could be appended to or repaired.

    Also settings in a database forbid it: new topics and delivery offsets would stand in files
    that the broker does not look at.
    """
    kind = store_kind(directory)
    kind.require_commit_log()
    kind.require_queue_files("nothing can be written to it here")


def _database(directory: StoreDirectory, *names: str) -> str:
    """Return the path of a directory if RocksDB's files lie in it, else nothing.

    Each database has all of them; a copy may have lost one.
    """
    found = (directory.stat(directory.resolve(*names, name)) for name in _OF_A_DATABASE)
    is_database = any(entry is not None and not entry.is_dir for entry in found)
    return directory.resolve(*names) if is_database else ""


def _compacted_topics(directory: StoreDirectory) -> tuple[str, ...]:
    entries = directory.list(directory.resolve(_COMPACTION, _COMPACTED_LOG))
    return tuple(entry.name for entry in entries if entry.is_dir)
