# SPDX-License-Identifier: Apache-2.0
"""Stores with a DLedger log, written by real brokers (golden/dledger/README.md)."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.golden_store import GOLDEN_DIR, unpack

DLEDGER_NAMES = tuple(sorted(path.parent.name for path in GOLDEN_DIR.glob("dledger/*/*.tar.gz")))
OPTIONS = {"maxHashSlotNum": "100", "maxIndexNum": "400"}


def unpack_dledger(name: str, directory: Path) -> Path:
    """Unpack a store below a directory; return its root."""
    unpack(GOLDEN_DIR / "dledger" / name / "store.tar.gz", directory)
    return directory / "store"


@cache
def received(name: str) -> tuple[dict[str, Any], ...]:
    """Return the messages that a real client got, in the order of topics, queues and offsets."""
    path = GOLDEN_DIR / "dledger" / name / "received.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    return tuple(sorted(rows, key=lambda r: (r["topic"], r["queue_id"], r["queue_offset"])))


@cache
def answers(name: str, event: str) -> tuple[dict[str, Any], ...]:
    """Return the broker's answers of one kind: ``ready``, ``topic``, ``key`` or ``id``."""
    text = (GOLDEN_DIR / "dledger" / name / "answers.jsonl").read_text("utf-8")
    return tuple(row for line in text.splitlines() if (row := json.loads(line))["event"] == event)
