# SPDX-License-Identifier: Apache-2.0
"""Writing DataFrames as messages, compared with Parquet, ``putMessage`` and a plain copy."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.figures import Figure, rate_figure
from bench.message_batches import MessageBatches
from bench.scenarios.writes import java_put
from bench.spark_side import alternate, seconds_of
from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.committing import commit_parts
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from rmqsource.sink.task import stage_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.context import Context
    from bench.stores import StoreSpec
    from store_core.staged_commit.staged_part import StagedPart

_HASH_CHARACTERS = 64
_COLUMNS = {
    "topic": "string",
    "queue_id": "int",
    "body": "binary",
    "properties_raw": "binary",
}
_PARTS = 2
_MAX_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def beside_parquet(context: Context) -> list[Figure]:
    """Measure ``df.write`` of cached rows, and ``df.write.parquet`` of the same rows."""
    figures = []
    for spec, must in ((context.sizes.short, 0.6), (context.sizes.long, 0.65)):
        rows = _cached_rows(context, spec)
        store, files = context.work / "sink-store", context.work / "sink-parquet"
        remove = partial(_remove, store, files)
        ours, unweighed, parquet = alternate(
            [
                partial(save, rows, store),
                partial(_save_unweighed, rows, store),
                partial(_save_parquet, rows, files),
            ],
            context.scan_runs,
            before=remove,
        )
        rows.unpersist()
        remove()
        for seconds, how in ((ours, ""), (unweighed, ", rows not weighed")):
            figures.append(
                rate_figure(
                    "o",
                    f"df.write, {spec.label}{how}",
                    "df.write.parquet, uncompressed",
                    rows=spec.messages,
                    ours_seconds=seconds,
                    other_seconds=parquet,
                    must=must,
                    aim=1.0,
                )
            )
    return figures


def beside_java(context: Context) -> list[Figure]:
    """Measure ``df.write`` of cached rows, and Java ``putMessage`` in one thread."""
    figures = []
    for spec in (context.sizes.short, context.sizes.long):
        java = java_put(context, spec.messages, spec.body_bytes)
        rows, store = _cached_rows(context, spec), context.work / "sink-store"
        (ours,) = alternate(
            [partial(save, rows, store)], context.decode_runs, before=partial(_remove, store)
        )
        rows.unpersist()
        _remove(store)
        figures.append(
            rate_figure(
                "p",
                f"df.write, {spec.label}",
                "Java putMessage until dispatched",
                rows=spec.messages,
                ours_seconds=ours,
                other_seconds=[float(java["put_and_dispatch"]["seconds"])],
                must=1.2,
                aim=3,
            )
        )
    return figures


def commit_phase(context: Context) -> list[Figure]:
    """Commit staged records, as the driver does, compared with a copy of the same bytes."""
    figures = []
    for spec in (context.sizes.short, context.sizes.long):
        ours, copies = [], []
        for _ in range(context.commit_runs):
            store, copy = context.work / "sink-store", context.work / "sink-copy"
            _remove(store, copy)
            plan = _plan(store)
            parts = [stage_part(batches, plan, n) for n, batches in enumerate(_batches(spec))]
            _take_memory(context.work / "sink-memory", parts)
            copies.append(seconds_of(partial(_copy, parts, copy)))
            _remove(copy)
            _take_memory(context.work / "sink-memory", parts)
            ours.append(seconds_of(partial(commit_parts, plan, parts)))
            _remove(store)
        figures.append(
            rate_figure(
                "q",
                f"commit of staged rows, {spec.label}",
                "shutil.copyfile and fsync of the same bytes",
                rows=spec.messages,
                ours_seconds=ours,
                other_seconds=copies,
                must=0.4,
                aim=0.8,
            )
        )
    return figures


def rows_to_write(context: Context, spec: StoreSpec) -> Any:
    """Return a DataFrame of messages that are created while it is written."""
    hashes = -(-spec.body_bytes // _HASH_CHARACTERS)
    return context.spark.range(spec.messages).selectExpr(
        "concat('TopicTest', id % 4) topic",
        "int(id div 4 % 4) queue_id",
        "array(concat('key', id)) keys",
        "concat('tag', id % 10) tags",
        f"encode(left(repeat(sha2(string(id), 256), {hashes}), {spec.body_bytes}), 'utf-8') body",
    )


def _cached_rows(context: Context, spec: StoreSpec) -> Any:
    rows = rows_to_write(context, spec)
    rows.cache()
    rows.count()
    return rows


def save(rows: Any, store: Path) -> None:
    """Write rows into a new store."""
    rows.write.format("rocketmq-store").mode("append").save(str(store.resolve()))


def _save_unweighed(rows: Any, store: Path) -> None:
    """Write rows without Spark measuring its batch at every row (docs/writing.md)."""
    conf = rows.sparkSession.conf
    conf.set(_MAX_BATCH_BYTES, (1 << 31) - 1)
    try:
        save(rows, store)
    finally:
        conf.unset(_MAX_BATCH_BYTES)


def _save_parquet(rows: Any, files: Path) -> None:
    rows.write.option("compression", "none").parquet(str(files.resolve()))


def _plan(store: Path) -> Any:
    options = parse_sink_options({"path": str(store.resolve())})
    return plan_write(options, resolve_sink_columns(_COLUMNS.items()))


def _batches(spec: StoreSpec) -> list[list[Any]]:
    batches = [
        batch.select(list(_COLUMNS))
        for batch in MessageBatches(spec.body_bytes).batches(spec.messages)
    ]
    step = -(-len(batches) // _PARTS)
    return [batches[at : at + step] for at in range(0, len(batches), step)]


def _copy(parts: Sequence[StagedPart], target: Path) -> None:
    target.mkdir()
    for part in parts:
        copied = target / part.name
        with copied.open("wb") as file:
            for number in range(part.chunks[-1].file + 1):
                with Path(part.records_path(number)).open("rb") as source:
                    shutil.copyfileobj(source, file, 1 << 22)
            os.fsync(file.fileno())


def _take_memory(path: Path, parts: Sequence[StagedPart]) -> None:
    """Write and delete a file, so that the next writes go to memory that is available.

    A virtual machine gives free memory back to its host, and gets it back page by page. Writing
    to such memory takes five times as long, on whichever side it happens.
    """
    os.sync()
    piece = bytes(1 << 22)
    with path.open("wb", buffering=0) as file:
        for _ in range(0, 3 * sum(part.records_bytes for part in parts) // 2, len(piece)):
            file.write(piece)
    path.unlink()


def _remove(*paths: Path) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
