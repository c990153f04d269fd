# SPDX-License-Identifier: Apache-2.0
"""Spark scans of a whole store, compared with a source of ready-made batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.figures import Figure, rate_figure
from bench.product import scan_split
from bench.ready_source import READY
from bench.spark_side import alternate, run_to_noop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from bench.context import Context
    from bench.stores import StoreSpec

THREE_COLUMNS = "topic string, queue_offset bigint, body binary"


def all_columns(context: Context) -> list[Figure]:
    """Scan with the full schema."""
    return [
        _scan(context, spec, "a", "Spark scan, all columns", None, (0.84, 0.92))
        for spec in (context.sizes.short, context.sizes.long)
    ]


def three_columns(context: Context) -> list[Figure]:
    """Scan with a schema of three columns."""
    return [
        _scan(context, spec, "b", "Spark scan, 3 columns", THREE_COLUMNS, (0.9, 0.97))
        for spec in (context.sizes.short, context.sizes.long)
    ]


def our_frame(context: Context, spec: StoreSpec, schema: StructType | str | None) -> DataFrame:
    """Return the store as a DataFrame, with default options."""
    reader = context.spark.read.format("rocketmq-store")
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load(context.root(spec))


def ready_frame(context: Context, spec: StoreSpec, schema: StructType) -> DataFrame:
    """Return as many ready-made rows, in as many partitions and batches of the same rows."""
    split = scan_split(context.root(spec), schema)
    return (
        context.spark.read.format(READY)
        .schema(schema)
        .options(
            rows=str(spec.messages),
            partitions=str(split.partitions),
            rowsPerBatch=str(split.rows_per_batch),
            bodyBytes=str(spec.body_bytes),
        )
        .load()
    )


def _scan(
    context: Context,
    spec: StoreSpec,
    scenario: str,
    what: str,
    schema: str | None,
    bounds: tuple[float, float],
) -> Figure:
    ours = our_frame(context, spec, schema)
    ready = ready_frame(context, spec, ours.schema)
    rows = ours.select("topic").count()
    if rows != spec.messages:
        raise ValueError(f"the scan found {rows} of {spec.messages} messages")
    ours_seconds, ready_seconds = alternate(
        [lambda: run_to_noop(ours), lambda: run_to_noop(ready)], context.scan_runs
    )
    return rate_figure(
        scenario,
        f"{what}, {spec.label}",
        "ready-made batches",
        rows=spec.messages,
        ours_seconds=ours_seconds,
        other_seconds=ready_seconds,
        must=bounds[0],
        aim=bounds[1],
    )
