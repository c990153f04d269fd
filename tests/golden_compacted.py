# SPDX-License-Identifier: Apache-2.0
"""A store with a compacted topic, and the messages a real client got (golden/compacted-5x)."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.golden_store import GOLDEN_DIR, unpack

TOPIC = "prices"
LOST_IN_LOG = 10
"""Messages that only the compacted log has: the first five of each queue."""
_FOLDER = GOLDEN_DIR / "compacted-5x"
# Properties that the client itself adds to a message.
_OF_THE_CLIENT = ("CONSUME_START_TIME", "MAX_OFFSET", "MIN_OFFSET")
_SAME = (
    *("topic", "queue_id", "queue_offset", "commit_log_offset", "store_size", "tags", "flag"),
    *("sys_flag", "body_crc", "reconsume_times", "prepared_transaction_offset"),
)


def unpack_compacted(directory: Path) -> Path:
    """Unpack the store below a directory; return its root."""
    unpack(_FOLDER / "store.tar.gz", directory)
    return directory / "store"


def received() -> list[dict[str, Any]]:
    """Return the messages that the client reported, from the first one on."""
    return [json.loads(line) for line in (_FOLDER / "received.jsonl").read_text().splitlines()]


def topic_stats() -> list[dict[str, Any]]:
    """Return the broker admin's answers about the topic's queues."""
    rows: list[dict[str, Any]] = json.loads((_FOLDER / "topic_stats.json").read_text())
    return rows


def as_received(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert rows of table ``messages`` to the client's form, queue after queue."""
    return [
        {
            **{name: row[name] for name in _SAME},
            "offset_msg_id": row["message_id"],
            "msg_id": row["unique_key"],
            "keys": " ".join(row["keys"]),
            "born_timestamp": round(row["born_timestamp"].timestamp() * 1000),
            "store_timestamp": round(row["store_timestamp"].timestamp() * 1000),
            "properties": dict(row["properties"]),
            "body": row["body"],
        }
        for row in rows
    ]


def by_queue(deliveries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return deliveries queue by queue, in their order, without properties that the client adds."""
    names = (*_SAME, "offset_msg_id", "msg_id", "keys", "born_timestamp", "store_timestamp")
    rows = [
        {
            **{name: row[name] for name in names},
            "properties": {k: v for k, v in row["properties"].items() if k not in _OF_THE_CLIENT},
            "body": b64decode(row["body_b64"]),
        }
        for row in deliveries
    ]
    return sorted(rows, key=lambda row: row["queue_id"])
