# SPDX-License-Identifier: Apache-2.0
"""Peak memory of Spark's Python workers while they scan 1 GiB segments, or write them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.figures import Figure
from bench.scenarios.scan import our_frame, ready_frame
from bench.scenarios.sink import rows_to_write, save
from bench.spark_side import java_pid, run_to_noop
from bench.worker_memory import Peak, sample, sample_phases
from store_core.layout import ABORT_FILE

if TYPE_CHECKING:
    from bench.context import Context
    from bench.stores import StoreSpec

_MB = 1e6
_TASK, _COMMIT = "a task", "the commit"


def peak_memory(context: Context) -> list[Figure]:
    """Scan the largest store, and sample ``/proc`` during the scan."""
    spec = context.sizes.ten_times
    schema = our_frame(context, spec, None).schema
    pid = java_pid(context.spark)
    context.close()  # workers keep memory they once used, so each side gets new ones
    ready = ready_frame(context, spec, schema)
    other_peak = sample(pid, lambda: run_to_noop(ready))
    context.close()
    ours = our_frame(context, spec, None)
    our_peak = sample(pid, lambda: run_to_noop(ours))
    return [
        Figure(
            scenario="h",
            what=f"worker's peak memory, {kind}, {spec.label}",
            against="ready-made batches",
            ours=getattr(our_peak, kind) / _MB,
            other=getattr(other_peak, kind) / _MB,
            unit="MB",
            higher_is_better=False,
        )
        for kind in Peak._fields
    ]


def peak_memory_of_writing(context: Context) -> list[Figure]:
    """Write a tenth of the rows, then all of them: neither tasks nor commit must need more."""
    spec = context.sizes.written
    tenth = _written(context, replace(spec, messages=spec.messages // 10))
    whole = _written(context, spec)
    return [
        Figure(
            scenario="s",
            what=f"peak memory of {process}, df.write, {spec.label}",
            against="df.write of a tenth of the rows",
            ours=whole[process].anonymous / _MB,
            other=tenth[process].anonymous / _MB,
            unit="MB",
            must=1.3,
            aim=1.05,
            higher_is_better=False,
        )
        for process in (_TASK, _COMMIT)
    ]


def _written(context: Context, spec: StoreSpec) -> dict[str, Peak]:
    context.close()  # workers keep memory they once used
    rows, store = rows_to_write(context, spec), context.work / "sink-store"

    def phase() -> str:
        return _COMMIT if (store / ABORT_FILE).exists() else _TASK

    peaks = sample_phases(java_pid(context.spark), lambda: save(rows, store), phase)
    shutil.rmtree(store)
    return peaks
