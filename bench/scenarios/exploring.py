# SPDX-License-Identifier: Apache-2.0
"""The report compared with a full scan, and the export with Spark from Parquet to Parquet."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Callable

from bench.figures import Figure, rate_figure, time_figure
from bench.scenarios.scan import our_frame
from bench.spark_side import alternate, run_to_noop
from rmqsource.options.source_options import options_for
from rmqsource.report.page import report_page
from rmqsource.report.report_data import collect
from rmqsource.transfer.export_store import write_export

if TYPE_CHECKING:
    from pathlib import Path

    from bench.context import Context

PASSES = 2
"""Passes of a report: one over the log, one over the queues."""


def report(context: Context) -> list[Figure]:
    """Write a report; the other side is a Spark scan of all columns."""
    spec = context.sizes.short
    frame = our_frame(context, spec, None)
    ours, scan = alternate(
        [lambda: _report(context.root(spec)), lambda: run_to_noop(frame)], context.decode_runs
    )
    return [
        time_figure(
            "r",
            f"report, {spec.label}, {PASSES} passes",
            "Spark scan, all columns",
            ours_seconds=ours,
            other_seconds=scan,
            must=2 * PASSES,
            aim=PASSES,
        )
    ]


def _report(root: str) -> None:
    found = collect(options_for(root))
    page = report_page(found, time.time_ns() // 1_000_000)
    if found.counts.messages == 0 or len(page) == 0:
        raise ValueError(f"the report of {root} is empty")


def export_parquet(context: Context) -> list[Figure]:
    """Export to Parquet; the other side reads the same rows from Parquet and writes them."""
    return [
        _export(context, spec.label, context.root(spec), spec.messages)
        for spec in (context.sizes.short, context.sizes.long)
    ]


def _export(context: Context, label: str, root: str, rows: int) -> Figure:
    scratch = context.work / "export"
    shutil.rmtree(scratch, ignore_errors=True)
    kept = scratch / "kept"
    options = {"path": root}
    write_export(context.spark, options, kept, "parquet")
    parquet = context.spark.read.parquet(str(kept))
    ours, other = alternate(
        [
            lambda: _written(
                scratch / "ours", lambda to: write_export(context.spark, options, to, "parquet")
            ),
            lambda: _written(scratch / "other", lambda to: parquet.write.parquet(str(to))),
        ],
        context.decode_runs,
    )
    shutil.rmtree(scratch)
    return rate_figure(
        "x",
        f"export to Parquet, {label}",
        "Spark, Parquet to Parquet",
        rows=rows,
        ours_seconds=ours,
        other_seconds=other,
        must=0.8,
        aim=1.0,
    )


def _written(target: Path, write: Callable[[Path], object]) -> None:
    shutil.rmtree(target, ignore_errors=True)
    write(target)
