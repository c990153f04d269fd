# SPDX-License-Identifier: Apache-2.0
"""Table ``transactions``: one row per transaction, with its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rmqsource.metadata.columns import NO_TIME, table_part
from rmqsource.metadata.damage import skip_damaged
from rmqsource.scan.read_columns import columns_of_snapshot
from store_core.arrow import pa, pc
from store_core.config.config_files import load_consumer_offsets
from store_core.database.message_database import load_open_halves
from store_core.layout import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK
from store_core.topics import (
    CHECK_TIMES,
    DATABASE_HALF_TOPIC,
    DATABASE_OP_TOPIC,
    DISCARD_TOPIC,
    HALF_PLACE,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_TOPIC,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TRANSACTION_GROUP,
    numbers_of,
    property_of,
)
from store_core.transaction_forms import op_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Array, Table
    from store_core.snapshot.store_snapshot import StoreSnapshot

PENDING, COMMITTED, ROLLED_BACK = "pending", "committed", "rolled_back"
CHECK_EXCEEDED, UNKNOWN = "check_exceeded", "unknown"

_HALF_COLUMNS = (
    *("topic", "queue_offset", "commit_log_offset", "unique_key", "properties"),
    "store_timestamp",
)
_COMMIT_COLUMNS = (
    *("sys_flag", "prepared_transaction_offset", "commit_log_offset", "store_timestamp"),
)


@dataclass
class _Transaction:
    """One transaction, with all copies of its half message."""

    transaction_id: str | None
    topic: str | None
    queue_id: int | None
    producer_group: str | None
    in_database: bool = False
    checks: int = 0
    half_queue_offsets: list[int] = field(default_factory=list)
    half_places: list[int] = field(default_factory=list)
    stored_ms: int = NO_TIME
    state: str = UNKNOWN
    end_ms: int = NO_TIME
    commit_place: int | None = None


def rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Table]:
    """Yield the transactions whose half messages are in the log, in the order of the first ones.

    Copies that checks appended are joined to one transaction by UNIQ_KEY. A commit is recognised by
    its record, a rollback by an op message without such a record, an exceeded check by the copy in
    ``TRANS_CHECK_MAX_TIME_TOPIC``. Other transactions are pending from the offset of group
    ``CID_RMQ_SYS_TRANS`` on; before it they are unknown: the op message is gone or was not read.
    For half messages in ``RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC``, the database ``rocksdbstore`` lists
    the open ones; one that is not open and has no other outcome was checked too often.
    Reads the half, op and discard topics, and headers of the topics that commits go to.
    """
    found = _half_messages(snapshot, options)
    if found:
        _find_commits(snapshot, options, found)
        _find_discarded(snapshot, options, found)
        _find_ops(snapshot, options, [t for t in found if not t.in_database])
        _find_pending(snapshot, options, [t for t in found if not t.in_database])
        _find_in_database(snapshot, options, [t for t in found if t.in_database])
    yield table_part(
        "transactions",
        snapshot.directory.uri,
        len(found),
        transaction_id=_texts([t.transaction_id for t in found]),
        topic=_texts([t.topic for t in found]),
        queue_id=[t.queue_id for t in found],
        producer_group=_texts([t.producer_group for t in found]),
        state=[t.state for t in found],
        checks=[t.checks for t in found],
        half_messages=[len(t.half_places) for t in found],
        half_queue_offset=[t.half_queue_offsets[0] for t in found],
        half_commit_log_offset=[t.half_places[0] for t in found],
        store_timestamp=[t.stored_ms for t in found],
        end_timestamp=[t.end_ms for t in found],
        commit_commit_log_offset=[t.commit_place for t in found],
    )


def _texts(values: list[str | None]) -> Array:
    return pa.array(values, pa.string())


def _half_messages(snapshot: StoreSnapshot, options: SourceOptions) -> list[_Transaction]:
    found: dict[object, _Transaction] = {}
    for batch in columns_of_snapshot(snapshot, options, _HALF_COLUMNS, topics=HALF_TOPICS):
        properties = batch["properties"]
        columns = (
            batch["topic"].to_pylist(),
            batch["unique_key"].to_pylist(),
            batch["queue_offset"].to_pylist(),
            batch["commit_log_offset"].to_pylist(),
            _times(batch["store_timestamp"]),
            property_of(properties, REAL_TOPIC).to_pylist(),
            numbers_of(property_of(properties, REAL_QUEUE_ID)).tolist(),
            property_of(properties, PRODUCER_GROUP).to_pylist(),
            numbers_of(property_of(properties, CHECK_TIMES), absent=0).tolist(),
        )
        for half, key, queue_offset, place, stored, topic, queue_id, group, checks in zip(*columns):
            # Without an id the copies cannot be joined: each is a transaction of its own.
            transaction = found.get(key if key is not None else place)
            if transaction is None:
                queue = None if queue_id < 0 else queue_id
                in_database = half == DATABASE_HALF_TOPIC
                transaction = _Transaction(key, topic, queue, group, in_database, stored_ms=stored)
                found[key if key is not None else place] = transaction
            transaction.half_queue_offsets.append(queue_offset)
            transaction.half_places.append(place)
            transaction.checks = max(transaction.checks, checks)
    return list(found.values())


def _find_commits(
    snapshot: StoreSnapshot, options: SourceOptions, found: list[_Transaction]
) -> None:
    """Mark transactions as committed by records that name their half message, delayed or not."""
    by_place = {place: t for t in found for place in t.half_places}
    topics = {t.topic for t in found if t.topic} | {SCHEDULE_TOPIC}
    wanted = pa.array(sorted(by_place), pa.int64())
    selection = {"topics": tuple(sorted(topics))}
    for batch in columns_of_snapshot(snapshot, options, _COMMIT_COLUMNS, **selection):
        prepared = batch["prepared_transaction_offset"]
        flags = batch["sys_flag"].to_numpy() & TRANSACTION_MASK
        named = pc.is_in(prepared, value_set=wanted).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero((flags == TRANSACTION_COMMIT_TYPE) & named)
        times = _times(batch["store_timestamp"])
        for row in rows.tolist():
            transaction = by_place[prepared[row].as_py()]
            if transaction.commit_place is None:  # a delayed one is stored again on delivery
                transaction.state, transaction.end_ms = COMMITTED, times[row]
                transaction.commit_place = batch["commit_log_offset"][row].as_py()


def _find_discarded(
    snapshot: StoreSnapshot, options: SourceOptions, found: list[_Transaction]
) -> None:
    by_id = {t.transaction_id: t for t in found if t.transaction_id is not None}
    columns = ("unique_key", "store_timestamp")
    for batch in columns_of_snapshot(snapshot, options, columns, topics=(DISCARD_TOPIC,)):
        for key, stored in zip(batch["unique_key"].to_pylist(), _times(batch["store_timestamp"])):
            transaction = by_id.get(key)
            if transaction is not None and transaction.state == UNKNOWN:
                transaction.state, transaction.end_ms = CHECK_EXCEEDED, stored


def _find_ops(snapshot: StoreSnapshot, options: SourceOptions, found: list[_Transaction]) -> None:
    """Mark transactions that an op message names as rolled back if they have no other outcome."""
    by_offset = {offset: t for t in found for offset in t.half_queue_offsets}
    columns = ("body", "store_timestamp")
    for batch in columns_of_snapshot(snapshot, options, columns, topics=(OP_TOPIC,)):
        for body, stored in zip(batch["body"].to_pylist(), _times(batch["store_timestamp"])):
            for offset in op_offsets(body):
                transaction = by_offset.get(offset)
                if transaction is not None and transaction.state == UNKNOWN:
                    transaction.state, transaction.end_ms = ROLLED_BACK, stored


def _find_pending(
    snapshot: StoreSnapshot, options: SourceOptions, found: list[_Transaction]
) -> None:
    offsets: dict[int, int] = {}
    with skip_damaged("config/consumerOffset.json", options):
        snapshot.kind.require_config_files("pending transactions are not known")
        every = load_consumer_offsets(snapshot.directory)
        offsets = every.get((TRANSACTION_GROUP, HALF_TOPIC), {})
    checked_to = offsets.get(0, 0)
    for transaction in found:
        if transaction.state == UNKNOWN and transaction.half_queue_offsets[-1] >= checked_to:
            transaction.state = PENDING


def _find_in_database(
    snapshot: StoreSnapshot, options: SourceOptions, found: list[_Transaction]
) -> None:
    """Apply op messages (rolled back) and the half messages open in the database (pending)."""
    if not found:
        return
    by_place = {place: t for t in found for place in t.half_places}
    columns = ("properties", "store_timestamp")
    for batch in columns_of_snapshot(snapshot, options, columns, topics=(DATABASE_OP_TOPIC,)):
        places = numbers_of(property_of(batch["properties"], HALF_PLACE))
        for place, stored in zip(places.tolist(), _times(batch["store_timestamp"])):
            transaction = by_place.get(place)
            if transaction is not None and transaction.state == UNKNOWN:
                transaction.state, transaction.end_ms = ROLLED_BACK, stored
    with skip_damaged("rocksdbstore", options):
        _compare_with_open(found, load_open_halves(snapshot.directory))


def _compare_with_open(found: list[_Transaction], halves: dict[int, int]) -> None:
    for transaction in found:
        checks = [halves[place] for place in transaction.half_places if place in halves]
        transaction.checks = max([transaction.checks, *checks])
        if transaction.state == UNKNOWN:
            transaction.state = PENDING if checks else CHECK_EXCEEDED


def _times(timestamps: Array) -> list[int]:
    micros = timestamps.cast(pa.int64()).fill_null(NO_TIME).to_pylist()
    return [NO_TIME if value == NO_TIME else value // 1000 for value in micros]
