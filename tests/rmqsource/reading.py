# SPDX-License-Identifier: Apache-2.0
"""Reads through the planner and the readers without Spark, and the rows that a dump expects."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource

from rmqsource.options.source_options import SourceOptions, parse_options
from rmqsource.scan.message_batches import ReadRequest
from rmqsource.scan.message_reader import read_split
from rmqsource.scan.predicate import ScanPredicate, from_options, with_filters
from rmqsource.scan.read_columns import plan_read
from rmqsource.scan.splits import StorePlan
from rmqsource.tables import CORRUPT_RECORD, TABLES
from tests.golden_store import GoldenStore

Row = dict[str, Any]

HAS_FILTERS = hasattr(datasource, "EqualTo")
"""Spark 4.0 has no classes of filters."""

PREPARED, COMMIT, ROLLBACK = 4, 8, 12
_TRANSACTION_MASK = 12
PLACE = ("commit_log_offset", "queue_offset")
"""Columns that identify every message of a store."""


def parsed(root: Any, **options: Any) -> SourceOptions:
    """Return the options for a read of one root, or of a list of roots."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
    if isinstance(root, (list, tuple)):
        return parse_options({**given, "paths": json.dumps([str(path) for path in root])})
    return parse_options({**given, "path": str(root)})


def plan(root: Any, filters: Iterable[Any] = (), **options: Any) -> list[StorePlan]:
    """Return the plans of the same read."""
    source = parsed(root, **options)
    return plan_read(source, _predicate(source, filters))


def read_batches(
    root: Any,
    columns: Iterable[str] | None = None,
    filters: Iterable[Any] = (),
    plans: list[StorePlan] | None = None,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Yield the batches of all splits in turn."""
    source = parsed(root, **options)
    predicate = _predicate(source, filters)
    names = tuple(columns or default_columns(source.table, source.mode))
    request = ReadRequest.from_options(source, predicate, names)
    for store_plan in plan_read(source, predicate) if plans is None else plans:
        for split in store_plan.splits:
            yield from read_split(split, request)


def read_rows(root: Any, columns: Iterable[str] | None = None, **options: Any) -> list[Row]:
    """Return all rows in the order of the splits; parameters as of `read_batches`."""
    rows: list[Row] = []
    for batch in read_batches(root, columns, **options):
        rows += pa.table(batch).to_pylist()
    return rows


def read_places(root: Any, **options: Any) -> list[tuple[int, int]]:
    """Return (commit log offset, queue offset) of all rows, sorted, with repeats."""
    return sorted(places(read_rows(root, PLACE, **options)))


def places(rows: Iterable[Row]) -> list[tuple[int, int]]:
    return [(row["commit_log_offset"], row["queue_offset"]) for row in rows]


def default_columns(table: str, mode: str) -> list[str]:
    names = [column.name for column in TABLES[table].columns]
    return [*names, CORRUPT_RECORD.name] if mode == "PERMISSIVE" else names


def _predicate(source: SourceOptions, filters: Iterable[Any]) -> ScanPredicate:
    return with_filters(from_options(source), list(filters), source.table)[0]


# The content of a dump, as rows of table messages.


def expected_rows(store: GoldenStore, *, undispatched: bool = False) -> list[Row]:
    """Return the rows that the dump of a golden store expects, in the order of the log."""
    rows = []
    for line in store.dump("messages"):
        kind = line.get("sys_flag", 0) & _TRANSACTION_MASK
        if line.get("blank") or (kind in {PREPARED, ROLLBACK} and not undispatched):
            continue
        rows += list(_rows_of(line, str(store.root)))
    return rows


def _rows_of(line: Row, root: str) -> Iterator[Row]:
    outer = {
        "topic": line["topic"],
        "queue_id": line["queue_id"],
        "queue_offset": line["queue_offset"],
        "commit_log_offset": line["commit_log_offset"],
        "store_size": line["store_size"],
        "message_id": line["msg_id"],
        "flag": line["flag"],
        "sys_flag": line["sys_flag"],
        "body_crc": line["body_crc"],
        "reconsume_times": line["reconsume_times"],
        "born_timestamp": line["born_timestamp"],
        "store_timestamp": line["store_timestamp"],
        "born_host": _host(line["born_host"]),
        "store_host": _host(line["store_host"]),
        "prepared_transaction_offset": line["prepared_transaction_offset"],
        "store": root,
    }
    inner = line.get("inner_messages") or []
    body = line.get("body_b64", line["body_raw_b64"])
    if not inner:
        yield {**outer, **_of_properties(line["properties"]), "body": base64.b64decode(body)}
    base = int(line["properties"].get("INNER_BASE", line["queue_offset"]))
    for number, item in enumerate(inner):
        yield {
            **outer,
            **_of_properties(item["properties"]),
            "flag": item["flag"],
            "queue_offset": base + number,
            "body": base64.b64decode(item["body_b64"]),
        }


def _of_properties(properties: dict[str, str]) -> Row:
    keys = properties.get("KEYS")
    return {
        "properties": properties,
        "unique_key": properties.get("UNIQ_KEY"),
        "tags": properties.get("TAGS"),
        "keys": None if keys is None else [word for word in keys.split(" ") if word],
    }


def _host(value: Any) -> str:
    if isinstance(value, str):
        return value
    return (
        f"[{value['ip']}]:{value['port']}"
        if ":" in value["ip"]
        else f"{value['ip']}:{value['port']}"
    )


def comparable(rows: Iterable[Row]) -> list[Row]:
    """Return rows of a read with the values of a dump: times in ms, properties as a dict."""
    return [
        {
            **row,
            "properties": dict(row["properties"]),
            "born_timestamp": _ms(row["born_timestamp"]),
            "store_timestamp": _ms(row["store_timestamp"]),
        }
        for row in rows
    ]


def _ms(value: Any) -> int:
    return round(value.timestamp() * 1000)


def key_rows(rows: Iterable[Row]) -> list[tuple[str, str, int, int]]:
    """Return (key, kind, commit log offset, queue offset) of table keys for rows of messages."""
    found = []
    for row in rows:
        words = list(dict.fromkeys(row["keys"] or ()))
        kinds = [(word, "KEYS") for word in words]
        if row["unique_key"] is not None and row["unique_key"] not in words:
            kinds.append((row["unique_key"], "UNIQ_KEY"))
        found += [(key, kind, row["commit_log_offset"], row["queue_offset"]) for key, kind in kinds]
    return found


def name_queues(root: Path, **named: int) -> Path:
    """Write a topics.json that names the existing queues; ``named`` overrides counts."""
    counts: dict[str, int] = {}
    for path in root.glob("consumequeue/*/*"):
        counts[path.parent.name] = max(counts.get(path.parent.name, 0), int(path.name) + 1)
    counts.update(named)
    table = {
        topic: {"topicName": topic, "readQueueNums": count, "writeQueueNums": count}
        for topic, count in counts.items()
    }
    batches = {path.name for path in root.glob("batchconsumequeue/*")}
    for topic in batches:
        table[topic] = {
            "topicName": topic,
            "readQueueNums": 1,
            "writeQueueNums": 1,
            "attributes": {"queue.type": "BatchCQ"},
        }
    config = root / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}), "utf-8")
    return root
