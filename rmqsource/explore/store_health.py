# SPDX-License-Identifier: Apache-2.0
"""Health of a store: its broker, how it was stopped, how full its disk is."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqsource.explore.trace_events import moment
from rmqsource.scan.store_versions import open_snapshots
from store_core.config.message_store_config import load_broker_config
from store_core.errors import StoreError
from store_core.layout import CHECKPOINT_FILE, LOCK_FILE
from store_core.log.commit_log import commit_log_directories
from store_core.services.environment import DiskSpace, disk_space

if TYPE_CHECKING:
    from rmqsource.options.source_options import SourceOptions
    from store_core.snapshot.store_snapshot import StoreSnapshot

__all__ = ["StoreHealth", "broker_names", "lost_log", "no_log", "store_health"]

UNKNOWN_SEVERITY = "unknown"
_TEMPLATE, _REPLY, _SYSTEM, _INHERIT = "TBW102", "_REPLY_TOPIC", "rmq_sys_", 1
_MADE_BY_A_BROKER = (LOCK_FILE, CHECKPOINT_FILE)
_NO_TRACE = (
    "the commit log has no file in {}, and nothing shows that a broker made this store; is "
    "its disk mounted, and is the path right?"
)


@dataclass(frozen=True)
class StoreHealth:
    """The first facts to know about a store.

    Attributes
    ----------
    problem
        Why ``state`` is unknown; else empty.
    first_ms, last_ms
        Store times of the first and the last record; None if there is none.
    disk
        The disk of the log's last file; None if unknown, as for remote stores.
    """

    store: str
    state: str
    problem: str = ""
    not_read: tuple[str, ...] = ()
    has_queues: bool = True
    has_offsets: bool = True
    broker: str | None = None
    cluster: str | None = None
    log_bytes: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    kept_hours: int = 72
    forced_share: float = 0.85
    refused_share: float = 0.9
    disk: DiskSpace | None = None


def store_health(options: SourceOptions) -> list[StoreHealth]:
    """Return the health of each store that the options name."""
    found = []
    for snapshot in open_snapshots(options):
        with snapshot:
            found.append(_health(snapshot, options))
    return found


def _health(snapshot: StoreSnapshot, options: SourceOptions) -> StoreHealth:
    problem = lost_log(snapshot) or no_log(snapshot)
    broker: str | None = None
    cluster: str | None = None
    with suppress(StoreError):  # a damaged topics.json is reported where topics are read
        broker, cluster = broker_names(snapshot, options)
    begin = max(snapshot.min_phy_offset, 0)
    config = snapshot.config
    return StoreHealth(
        store=snapshot.directory.uri,
        state=UNKNOWN_SEVERITY if problem else snapshot.state.value,
        problem=problem,
        not_read=snapshot.kind.unread(),
        has_queues=not snapshot.kind.queue_database,
        has_offsets=not snapshot.kind.config_databases,
        broker=broker,
        cluster=cluster,
        log_bytes=snapshot.end_offset - begin,
        first_ms=snapshot.oldest_store_timestamp(),
        last_ms=snapshot.newest_store_timestamp(),
        kept_hours=config.file_reserved_time,
        forced_share=config.disk_space_clean_forcibly_ratio / 100,
        refused_share=config.disk_space_warning_level_ratio / 100,
        disk=_disk(snapshot),
    )


def _disk(snapshot: StoreSnapshot) -> DiskSpace | None:
    segments = list(snapshot.log.segments)
    if not snapshot.directory.is_local or not segments:
        return None
    return disk_space(segments[-1].path)


def broker_names(snapshot: StoreSnapshot, options: SourceOptions) -> tuple[str | None, str | None]:
    """Return the names of broker and cluster: as configured, or as topics are named after them."""
    given = load_broker_config(options.config) if options.config else {}
    topics = snapshot.topic_configs or {}
    replies = [t[: -len(_REPLY)] for t in topics if t.endswith(_REPLY)]
    # A broker creates topics named after itself and its cluster, from which others inherit.
    own = [
        topic
        for topic, config in topics.items()
        if config.perm & _INHERIT and topic != _TEMPLATE and not topic.startswith(_SYSTEM)
    ]
    cluster = replies[0] if len(replies) == 1 else None
    brokers = [t for t in own if t != cluster]
    broker = brokers[0] if cluster and len(brokers) == 1 else None
    return given.get("brokerName", broker), given.get("brokerClusterName", cluster)


def lost_log(snapshot: StoreSnapshot) -> str:
    """Return the problem of a store that had messages but has no log file, or "".

    A disk that is not mounted looks like this.
    """
    checkpoint = snapshot.checkpoint
    stored_ms = (checkpoint.physic_msg_timestamp if checkpoint is not None else None) or 0
    if len(snapshot.log.segments) > 0 or stored_ms <= 0:
        return ""
    return (
        f"{snapshot.directory.uri}: the commit log has no file in {_log_places(snapshot)}, though "
        f"messages were stored until {moment(stored_ms)} UTC; is its disk mounted, and is "
        "storePathCommitLog right?"
    )


def _log_places(snapshot: StoreSnapshot) -> str:
    places = commit_log_directories(snapshot.directory, snapshot.config)
    return ", ".join([*places, *snapshot.dledger_directories])


def no_log(snapshot: StoreSnapshot) -> str:
    """Return the problem of a log that no broker made or that begins with no record, or ""."""
    if not len(snapshot.log.segments):
        directory = snapshot.directory
        made = [directory.stat(directory.resolve(name)) for name in _MADE_BY_A_BROKER]
        told = _NO_TRACE.format(_log_places(snapshot))
        return "" if all(made) else f"{directory.uri}: {told}"
    begin = max(snapshot.min_phy_offset, 0)
    first = snapshot.log.segments.find(begin)
    end = snapshot.end_offset
    if begin >= end or (first and snapshot.log.first_store_timestamp(first, end) is not None):
        return ""
    return (
        f"{snapshot.directory.uri}: the log begins with bytes that are not a record, so it is "
        "not known how the store was stopped; run check for details"
    )
