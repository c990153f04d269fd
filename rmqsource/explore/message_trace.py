# SPDX-License-Identifier: Apache-2.0
"""The life of messages in one or several stores: every copy a broker made, in order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.errors import SourceOptionError
from rmqsource.explore.trace_events import (
    CHECKED,
    COMMITTED,
    GIVEN_UP,
    HALF,
    ROLLED_BACK,
    SENT,
    Life,
    TraceEvent,
    event_of,
    with_waits,
)
from rmqsource.metadata.delayed import due_time
from rmqsource.options.option_values import is_message_id
from rmqsource.scan.read_columns import columns_of_snapshot
from rmqsource.scan.splits import COMMIT_LOG
from rmqsource.scan.store_versions import open_snapshots
from store_core.config.config_files import load_consumer_offsets
from store_core.errors import StoreError
from store_core.files.store_directory import StoreDirectory
from store_core.state.store_state import store_kind
from store_core.topics import (
    DATABASE_HALF_TOPIC,
    DATABASE_OP_TOPIC,
    DISCARD_TOPIC,
    DLQ_PREFIX,
    HALF_PLACE,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_OUT_MS,
    TIMER_TOPIC,
)
from store_core.transaction_forms import op_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from rmqsource.damage import OnDamage
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Columns
    from store_core.snapshot.store_snapshot import StoreSnapshot

    Record = dict[str, Any]
    HalfKey = tuple[str, str, int]

MAX_LOOKED_UP_TOPICS = 1000
"""With more topics than this, and none selected, a scan of the log is faster than look-ups."""
_SERVICE_TOPICS = (SCHEDULE_TOPIC, *HALF_TOPICS, DISCARD_TOPIC, TIMER_TOPIC)
_COLUMNS = (
    *("topic", "queue_id", "queue_offset", "commit_log_offset", "message_id", "unique_key"),
    *("keys", "tags", "properties", "sys_flag", "body_crc", "reconsume_times"),
    *("born_timestamp", "store_timestamp", "born_host", "prepared_transaction_offset", "store"),
)
_INTERNAL = frozenset(
    {SCHEDULE_TOPIC, TIMER_TOPIC, *HALF_TOPICS, OP_TOPIC, DATABASE_OP_TOPIC, DISCARD_TOPIC}
)


def trace_messages(
    options: SourceOptions, *, keys: Iterable[str] = (), ids: Iterable[str] = ()
) -> list[Life]:
    """Return the lives of all messages that have one of the keys and one of the ids, oldest first.

    Either the keys or the ids may be left out.

    Messages with the same UNIQ_KEY but different KEYS or bodies are different lives: RocketMQ 5.3
    gives one UNIQ_KEY to all messages of a batch.
    """
    if options.where:
        raise SourceOptionError(
            "where", "would leave copies of a message out of its trace; drop it"
        )
    wanted_keys, wanted_ids = tuple(dict.fromkeys(keys)), tuple(dict.fromkeys(ids))
    places = tuple(i.upper() for i in wanted_ids if is_message_id(i.upper()))
    seeds = _of_all_stores(options, "message_ids", places) if places else []
    unique_keys = {*wanted_ids, *(r["unique_key"] for r in seeds if r["unique_key"])}
    found = list(seeds)
    if unique_keys:
        found += _of_all_stores(options, "unique_keys", tuple(sorted(unique_keys)))
    if wanted_keys and not wanted_ids:
        found += _of_all_stores(options, "keys", wanted_keys)
    lives = _lives(_distinct(found))
    if seeds:
        ids_of_seeds = {_life_of(record) for record in seeds}
        asked = frozenset(wanted_ids)
        lives = {
            key: records
            for key, records in lives.items()
            if key in ids_of_seeds or records[0]["unique_key"] in asked
        }
    if wanted_keys:
        some = frozenset(wanted_keys)
        lives = {k: r for k, r in lives.items() if not some.isdisjoint(r[0]["keys"])}
    if options.topics is not None:
        lives = {k: r for k, r in lives.items() if _topic_of(r) in options.topics}
    ended = _rollbacks(options, lives.values())
    groups = ConsumerGroups(options.on_damage)
    told = [_tell(records, ended, groups) for records in lives.values()]
    return sorted(told, key=lambda life: (life.events[0].at_ms, life.unique_key or ""))


def _of_all_stores(options: SourceOptions, field: str, values: tuple[str, ...]) -> list[Record]:
    found: list[Record] = []
    for snapshot in open_snapshots(options):
        with snapshot:
            selection: dict[str, Any] = {field: values}
            if field != "message_ids":
                selection["topics"] = _topics(snapshot, options)
            batches = columns_of_snapshot(snapshot, options, _COLUMNS, **selection)
            for batch in batches:
                found += [{**row, "due_ms": _due_ms(snapshot, row)} for row in _rows(batch)]
    return found


def _topics(snapshot: StoreSnapshot, options: SourceOptions) -> tuple[str, ...] | None:
    """Return the topics that may contain a message; None for all, including deleted ones."""
    if options.access == COMMIT_LOG or snapshot.kind.queue_database:
        return None
    known = {topic for topic, _ in (*snapshot.queue_paths, *snapshot.batch_queue_paths)}
    try:
        known |= set(snapshot.topic_configs or {})
    except StoreError:
        return None  # the topics are not known
    if options.topics is None:
        return tuple(sorted(known)) if len(known) <= MAX_LOOKED_UP_TOPICS else None
    moved = {topic for topic in known if topic.startswith((RETRY_PREFIX, DLQ_PREFIX))}
    return tuple(sorted({*options.topics, *_SERVICE_TOPICS, *moved}))


def _rows(batch: Columns) -> Iterator[Record]:
    columns = {name: column.to_pylist() for name, column in batch.items()}
    for values in zip(*columns.values()):
        row = dict(zip(columns, values))
        row["properties"] = dict(row["properties"])
        row["keys"] = tuple(row["keys"] or ())
        for name in ("born_timestamp", "store_timestamp"):
            row[name] = 0 if row[name] is None else _milliseconds(row[name])
        yield row


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _distinct(records: Iterable[Record]) -> list[Record]:
    """Return each record once: replicas have the same records, and searches may overlap."""
    kept: dict[tuple[Any, ...], Record] = {}
    for record in records:
        place = (record["message_id"], record["queue_offset"], record["store_timestamp"])
        first = kept.setdefault(place, {**record, "stores": []})
        if record["store"] not in first["stores"]:
            first["stores"].append(record["store"])
    return list(kept.values())


def _life_of(record: Record) -> tuple[Any, ...]:
    key = record["unique_key"]
    rest = () if key is not None else (record["born_timestamp"], record["born_host"])
    return (key, record["keys"], record["body_crc"], *rest)


def _lives(records: list[Record]) -> dict[tuple[Any, ...], list[Record]]:
    lives: dict[tuple[Any, ...], list[Record]] = {}
    order = ("store_timestamp", "commit_log_offset")
    for record in sorted(records, key=lambda r: (*(r[name] for name in order), r["queue_offset"])):
        lives.setdefault(_life_of(record), []).append(record)
    return lives


def _topic_of(records: Sequence[Record]) -> str:
    """Return the topic that the producer named."""
    properties = records[0]["properties"]
    topic = records[0]["topic"]
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return str(properties.get("RETRY_TOPIC", topic))
    real = str(properties.get("REAL_TOPIC", topic)) if topic in _SERVICE_TOPICS else str(topic)
    if real.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return str(properties.get("RETRY_TOPIC", real))
    return real


def _rollbacks(options: SourceOptions, lives: Iterable[list[Record]]) -> dict[HalfKey, Record]:
    """Return the op messages that end half messages."""
    halves = [
        r for records in lives if _is_open(records) for r in records if r["topic"] in HALF_TOPICS
    ]
    ended: dict[HalfKey, Record] = {}
    if not halves:
        return ended
    since = min(record["store_timestamp"] for record in halves)
    columns = (*(name for name in _COLUMNS if name != "keys"), "body")
    selection = {"topics": (OP_TOPIC, DATABASE_OP_TOPIC), "starting_timestamp_ms": since}
    for snapshot in open_snapshots(options):
        with snapshot:
            for batch in columns_of_snapshot(snapshot, options, columns, **selection):
                for row in _rows({**batch, "keys": batch["unique_key"]}):
                    for key in _ended_by(row):
                        ended.setdefault(key, row)
    return ended


def _ended_by(op: Record) -> Iterator[HalfKey]:
    """Yield the half messages that an op message ends."""
    if op["topic"] == OP_TOPIC:
        yield from ((op["store"], HALF_TOPIC, offset) for offset in op_offsets(op["body"]))
    elif (op["properties"].get(HALF_PLACE) or "").isdecimal():
        yield op["store"], DATABASE_HALF_TOPIC, int(op["properties"][HALF_PLACE])


def _half_key(record: Record) -> HalfKey:
    """Return the key by which op messages refer to a half message."""
    field = "queue_offset" if record["topic"] == HALF_TOPIC else "commit_log_offset"
    return record["stores"][0], record["topic"], record[field]


def _is_open(records: list[Record]) -> bool:
    ends = {event_of(record, None)[0] for record in records}
    return bool(ends & {HALF, CHECKED}) and not ends & {COMMITTED, GIVEN_UP}


def _tell(records: list[Record], ended: dict[HalfKey, Record], groups: ConsumerGroups) -> Life:
    first = records[0]
    topic = _topic_of(records)
    events = [_event(record, groups) for record in records]
    if _is_open(records):
        events += _rolled_back(records, ended)
    if first["born_timestamp"]:
        sent = TraceEvent(
            first["born_timestamp"], SENT, topic, detail=f"by producer {first['born_host']}"
        )
        events.insert(0, sent)
    return Life(first["unique_key"], first["keys"], first["tags"], topic, with_waits(events))


def _rolled_back(records: list[Record], ended: dict[HalfKey, Record]) -> Iterator[TraceEvent]:
    for record in records:
        op = None
        if record["topic"] in HALF_TOPICS:
            op = ended.get(_half_key(record))
        if op is not None:
            yield TraceEvent(
                op["store_timestamp"],
                ROLLED_BACK,
                op["topic"],
                op["queue_id"],
                op["queue_offset"],
                op["commit_log_offset"],
                op["message_id"],
                f"half message {record['queue_offset']} was ended without a commit",
                store=(op["store"],),
            )
            return


def _event(record: Record, groups: ConsumerGroups) -> TraceEvent:
    store = record["stores"][0]
    event, detail = event_of(record, record["due_ms"])
    standing = groups.standing(store, record["topic"], record["queue_id"], record["queue_offset"])
    return TraceEvent(
        record["store_timestamp"],
        event,
        record["topic"],
        record["queue_id"],
        record["queue_offset"],
        record["commit_log_offset"],
        record["message_id"],
        detail,
        passed_by=standing.passed_by,
        ahead_of=standing.ahead_of,
        store=tuple(record["stores"]),
    )


def _due_ms(snapshot: StoreSnapshot, record: Record) -> int | None:
    if record["topic"] == TIMER_TOPIC:
        text = record["properties"].get(TIMER_OUT_MS, "")
        return int(text) if text.isascii() and text.isdigit() else None
    if record["topic"] != SCHEDULE_TOPIC:
        return None
    place = (record["queue_id"], record["queue_offset"], record["store_timestamp"])
    try:
        return due_time(snapshot, *place)
    except StoreError:
        return None  # its queue is damaged


class Standing(NamedTuple):
    """Groups that read a queue: those past a record's offset, and those not past it."""

    passed_by: tuple[str, ...]
    ahead_of: tuple[str, ...]


class ConsumerGroups:
    """Consumer offsets that brokers saved in their stores; each store's file is read once."""

    def __init__(self, on_damage: OnDamage) -> None:
        self._on_damage = on_damage
        self._by_store: dict[str, dict[tuple[str, int], list[tuple[str, int]]]] = {}

    def standing(self, store: str, topic: str, queue_id: int, queue_offset: int) -> Standing:
        """Return the groups that have passed a queue offset, and those that have not."""
        if topic in _INTERNAL:
            return Standing((), ())
        commits = self._of_store(store).get((topic, queue_id), ())
        passed = tuple(group for group, offset in commits if offset > queue_offset)
        return Standing(passed, tuple(group for group, offset in commits if offset <= queue_offset))

    def _of_store(self, store: str) -> dict[tuple[str, int], list[tuple[str, int]]]:
        if store not in self._by_store:
            self._by_store[store] = {}
            try:
                directory = StoreDirectory(store)
                store_kind(directory).require_config_files("consumer offsets cannot be read")
                offsets = load_consumer_offsets(directory, is_needed=True)
            except StoreError as err:
                self._on_damage(f"consumer groups of {store} are not shown: {err}")
                offsets = {}
            for (group, topic), queues in sorted(offsets.items()):
                for queue_id, offset in queues.items():
                    queue = self._by_store[store].setdefault((topic, queue_id), [])
                    queue.append((group, offset))
        return self._by_store[store]
