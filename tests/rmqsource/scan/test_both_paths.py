# SPDX-License-Identifier: Apache-2.0
"""Whole reads by the kernel and by NumPy: of damaged logs, inner batches and DLedger entries."""

from __future__ import annotations

import random

import pytest

from tests.both_paths import by_both
from tests.golden_dledger import DLEDGER_NAMES, OPTIONS, unpack_dledger
from tests.golden_store import golden
from tests.rmqsource.reading import read_rows

COLUMNS = ["topic", "commit_log_offset", "queue_offset", "tags", "_corrupt_record"]
SELECTIONS = [
    {},
    {"topicPattern": "[A-Z].*"},
    {"tags": "TagA || TagB || TAG1 || tag-1"},
    {"where": "queue_id IN (0, 2)"},
    {"where": "store_timestamp >= '2020-01-01T00:00:00Z' AND queue_offset < 5"},
    {"sqlFilter": "TAGS IS NOT NULL OR KEYS IS NULL"},
    {"sqlFilter": "TAGS > 5"},
]


def damage(root, chance):
    """Change bits of every third segment of the log."""
    logs = sorted(path for path in root.rglob("0" * 10 + "*") if "queue" not in str(path.parent))
    for path in logs[::3]:
        data = bytearray(path.read_bytes())
        for _ in range(40):
            data[chance.randrange(len(data) // 2)] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def rows_by_both(root, **options):
    numpy, kernel = by_both(lambda: read_rows(root, COLUMNS, **options))
    assert numpy == kernel
    return numpy


@pytest.mark.parametrize(
    ("name", "check_crc"), [("classic-5x", True), ("batch-5x", False), (DLEDGER_NAMES[0], True)]
)
def test_damaged_logs(name, check_crc, tmp_path):
    options = {"mode": "PERMISSIVE", "access": "commitlog", "checkCRC": check_crc}
    if name in DLEDGER_NAMES:
        root, options = unpack_dledger(name, tmp_path), {**options, **OPTIONS}
    else:
        root, options = golden(name).copy_to(tmp_path), {**options, **golden(name).options}
    damage(root, random.Random(name))
    for selection in SELECTIONS:
        rows_by_both(root, **options, **selection)
    rows = rows_by_both(root, **options)
    topics = {row["topic"] for row in rows}
    assert None in topics  # a row of damage
    for topic in sorted(topics - {None})[:3]:
        found = rows_by_both(root, **options, topic=topic)
        expected = [row for row in rows if row["topic"] == topic]
        assert [row for row in found if row["topic"] is not None] == expected
