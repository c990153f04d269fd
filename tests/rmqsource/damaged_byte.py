# SPDX-License-Identifier: Apache-2.0
"""One damaged byte of a store: its field, the content of all tables, the findings of `check`."""

from __future__ import annotations

import bisect
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rmqsource.metadata import METADATA_TABLES, read_metadata
from rmqsource.scan.store_versions import open_snapshots
from store_core.errors import StoreError
from store_core.layout import (
    BATCH_CQ_UNIT,
    CHECKPOINT,
    CQ_UNIT,
    HEADER_IPV4,
    INDEX_ENTRY,
    INDEX_HEADER,
    MESSAGE_MAGIC_CODE_V2,
    SYS_FLAG_AT,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    RecordLayout,
    header_layout,
    index_file_bytes,
)
from store_core.tools.check import check_store
from tests.golden_store import GoldenStore
from tests.rmqsource.reading import parsed, read_rows

UNCOVERED = frozenset(
    {
        *("record.flag", "record.sys_flag", "record.born_timestamp", "record.born_host"),
        *("record.store_timestamp", "record.store_host", "record.reconsume_times"),
        *("record.prepared_transaction_offset", "record.properties"),
        *("record.queue_id", "record.queue_offset", "record.topic", "record.body_crc"),
        *("index_header.hash_slot_count", "index_entry.time_diff_seconds"),
        *(f"expired_index_entry.{name}" for name in ("key_hash", "commit_log_offset")),
        *(f"checkpoint.{name}" for name in CHECKPOINT.dtype.names or ()),
        "config",
    }
)
"""Bytes with no copy and no CRC, or only in part (docs/differences.md says when)."""

_KEYED = 4


class Damage(NamedTuple):
    """A byte, its new value and its field."""

    path: str
    position: int
    value: int
    field: str


def damages(store: GoldenStore, chance: random.Random) -> Iterator[Damage]:
    """Yield damages forever: a random file, and mostly a random byte of it."""
    files = {
        str(path.relative_to(store.root)): path.read_bytes()
        for path in sorted(store.root.rglob("*"))
        if path.is_file() and path.stat().st_size < 1 << 22
    }
    records = sorted(
        (row["commit_log_offset"], row["store_size"])
        for row in store.dump("messages")
        if row.get("store_size")
    )
    names = [name for name, data in files.items() if data.strip(b"\0")]
    while True:
        name = chance.choice(names)
        data = files[name]
        at = chance.randrange(len(data))
        if "commitlog" in Path(name).parts and chance.random() < 0.5:  # else bodies get nearly all
            at = chance.choice(records)[0] - int(Path(name).name)
            at += chance.randrange(HEADER_IPV4.size)
            if not 0 <= at < len(data):
                continue
        value = data[at] ^ (1 << chance.randrange(8))
        yield Damage(name, at, value, field_of(store, name, at, data, records))


def field_of(
    store: GoldenStore, name: str, at: int, data: bytes, records: list[tuple[int, int]]
) -> str:
    """Return the name of the field of a byte, from the declared layouts."""
    first = Path(name).parts[0]
    if "commitlog" in Path(name).parts:  # also below disk-a/
        return _record_field(data, at, int(Path(name).name), records)
    if first == "consumequeue":
        return _field("cq_unit", CQ_UNIT, at % CQ_UNIT.size)
    if first == "batchconsumequeue":
        return _field("batch_cq_unit", BATCH_CQ_UNIT, at % BATCH_CQ_UNIT.size)
    if first == "index":
        slots = int(store.config_properties["maxHashSlotNum"])
        begin = index_file_bytes(slots, 0)
        if at < INDEX_HEADER.size:
            return _field("index_header", INDEX_HEADER, at)
        if at < begin:
            return "index_slot"
        return _entry_field(data, begin, at, records[0][0])
    if first == "checkpoint":
        return _field("checkpoint", CHECKPOINT, at) if at < CHECKPOINT.size else "checkpoint"
    return first


def _entry_field(data: bytes, begin: int, at: int, log_start: int) -> str:
    position = (at - begin) % INDEX_ENTRY.size
    field = _field("index_entry", INDEX_ENTRY, position)
    is_expired = INDEX_ENTRY.unpack(data, at - position).commit_log_offset < log_start
    if is_expired and field != "index_entry.time_diff_seconds":
        return f"expired_{field}"
    return field


def _field(name: str, layout: RecordLayout, at: int) -> str:
    found = next(field for field in reversed(layout.dtype.names or ()) if layout.at(field) <= at)
    return f"{name}.{found}"


def _record_field(data: bytes, at: int, base: int, records: list[tuple[int, int]]) -> str:
    row = bisect.bisect_right(records, (base + at, 1 << 62)) - 1
    start, size = records[row]
    if row < 0 or base + at >= start + size:
        return "blank"
    start, at = start - base, base + at - start
    layout = header_layout(int.from_bytes(data[start + SYS_FLAG_AT :][:4], "big"))
    if at < layout.size:
        return _field("record", layout, at)
    header = layout.unpack(data, start)
    is_long = header.magic_code == MESSAGE_MAGIC_CODE_V2
    length = (TOPIC_LENGTH_V2 if is_long else TOPIC_LENGTH_V1).size
    topic = layout.size + header.body_length
    topic_end = topic + length + int.from_bytes(data[start + topic :][:length], "big")
    if at < topic:
        return "record.body"
    if at < topic_end:
        return "record.topic"
    return "record.properties"


def everything(root: Path, options: dict[str, str]) -> dict[str, Any]:
    """Return the rows of all tables, and of queries through index and queues; or the error."""
    found: dict[str, Any] = {}
    for table in METADATA_TABLES:
        found[table] = _rows(lambda t=table: _metadata(root, options, t))
    found["messages"] = _rows(lambda: read_rows(root, **options))
    return found


def queries(rows: list[dict[str, Any]], chance: random.Random) -> list[dict[str, str]]:
    """Return options for reads of a few topics and keys of the store."""
    topics = sorted({row["topic"] for row in rows})
    asked = [{"topic": json.dumps([topic])} for topic in topics[:_KEYED]]
    keyed = [row for row in rows if row["keys"]]
    for row in chance.sample(keyed, min(_KEYED, len(keyed))):
        key = json.dumps(row["keys"][:1])
        asked.append({"topic": json.dumps([row["topic"]]), "keys": key})
    return asked


def asked(root: Path, options: dict[str, str], reads: list[dict[str, str]]) -> dict[str, Any]:
    """Return the rows of some reads, by their options."""
    return {str(read): _rows(lambda r=read: read_rows(root, **options, **r)) for read in reads}


def is_clean(root: Path, options: dict[str, str]) -> bool:
    """Return whether `check` finds nothing wrong."""
    try:
        (view,) = open_snapshots(parsed(root, **options))
        with view:
            return check_store(view).is_good
    except StoreError:
        return False


def _metadata(root: Path, options: dict[str, str], table: str) -> list[dict[str, Any]]:
    source = parsed(root, table=table, **options)
    rows: list[dict[str, Any]] = []
    for snapshot in open_snapshots(source):
        with snapshot:
            for batch in read_metadata(table, snapshot, source):
                columns = {name: column.to_pylist() for name, column in batch.items()}
                rows += [dict(zip(columns, values)) for values in zip(*columns.values())]
    return rows


def _rows(read: Any) -> Any:
    try:
        rows = read()
    except (StoreError, ValueError) as err:
        return f"{type(err).__name__}"
    return sorted(repr({k: v for k, v in row.items() if k != "store"}) for row in rows)


def undetected(
    store: GoldenStore, directory: Path, chance: random.Random, more: Callable[[int], bool]
) -> tuple[int, list[tuple[Damage, list[str]]]]:
    """Damage a copy of a store repeatedly; return the damages `check` did not see, and the count.

    Parameters
    ----------
    store, directory
        The store, and the place of the copy.
    chance
        Generator that draws the damages.
    more
        Called with the number of damages made; False ends the loop.

    Returns
    -------
    count, unseen
        Number of damages; and each one that changed reads unnoticed by `check`, with these reads.
    """
    root, options = store.copy_to(directory), store.options
    reads = queries(read_rows(root, **options), chance)

    def answers() -> dict[str, Any]:
        return {**everything(root, options), **asked(root, options, reads)}

    expected, unseen, count = answers(), [], 0
    for damage in damages(store, chance):
        if not more(count):
            break
        count += 1
        path = root / damage.path
        with path.open("r+b") as file:
            file.seek(damage.position)
            before = file.read(1)
            file.seek(damage.position)
            file.write(bytes([damage.value]))
        if is_clean(root, options):
            found = answers()
            differs = [name for name in expected if found[name] != expected[name]]
            if differs:
                unseen.append((damage, differs))
        with path.open("r+b") as file:
            file.seek(damage.position)
            file.write(before)
    return count, unseen
