# SPDX-License-Identifier: Apache-2.0
"""Read a cluster through planner, pulls and decoder without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from rmqsource.live.live_options import parse_live_options
from rmqsource.live.live_read import plan_live_read, read_live_split
from rmqsource.tables import TABLES

MESSAGE_COLUMNS = tuple(column.name for column in TABLES["messages"].columns)


def read_live(
    given: dict[str, str], columns: Iterable[str] = MESSAGE_COLUMNS
) -> list[dict[str, Any]]:
    """Return all rows, split by split."""
    options = parse_live_options(given)
    rows: list[dict[str, Any]] = []
    for split in plan_live_read(options):
        for batch in read_live_split(split, options, tuple(columns)):
            rows += pa.table(batch).to_pylist()
    return rows
