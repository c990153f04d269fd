# SPDX-License-Identifier: Apache-2.0
"""Ten million keys in one read: option ``keysFrom``, compared with a join and a full scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from bench.figures import Figure, time_figure
from bench.spark_side import alternate, run_to_noop
from bench.store_content import key_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from bench.context import Context

_FULL, _QUICK = 10_000_000, 100_000
_ROWS_AT_ONCE = 1 << 20


def ten_million_keys(context: Context) -> list[Figure]:
    """Find the rows of table ``keys`` of every second message; other keys do not exist."""
    spec = context.sizes.short
    count = _QUICK if context.quick else _FULL
    path = context.work / f"keys-{count}.parquet"
    _write_keys(path, count, spec.messages)
    keys = context.spark.read.format("rocketmq-store").option("table", "keys")
    ours = keys.option("keysFrom", str(path)).load(context.root(spec))
    joined = _joined(context, path)
    found = spec.messages // 2
    if ours.count() != found or joined.count() != found:
        raise ValueError(f"expected the rows of {found} keys")
    times = alternate([lambda: run_to_noop(ours), lambda: run_to_noop(joined)], context.store_runs)
    return [
        time_figure(
            "zv",
            f"{count:,} keys in Parquet, option keysFrom, {spec.label}",
            "Spark's join of them with a full scan",
            ours_seconds=times[0],
            other_seconds=times[1],
        )
    ]


def _joined(context: Context, path: Path) -> DataFrame:
    reader = context.spark.read.format("rocketmq-store").option("table", "keys")
    wanted = context.spark.read.parquet(str(path))
    return reader.load(context.root(context.sizes.short)).join(wanted, "key", "left_semi")


def _write_keys(path: Path, count: int, messages: int) -> None:
    """Write keys of half of the messages; the other keys belong to no message."""
    schema = pa.schema([("key", pa.string())])
    half = messages // 2
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, count, _ROWS_AT_ONCE):
            numbers = range(start, min(start + _ROWS_AT_ONCE, count))
            keys = [key_of(2 * n if n < half else messages + n) for n in numbers]
            writer.write_batch(pa.record_batch([pa.array(keys)], schema))
