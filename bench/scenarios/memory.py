"""Peak memory of Spark's Python workers while they scan 1 GiB segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.figures import Figure
from bench.scenarios.scan import our_frame, ready_frame
from bench.spark_side import run_to_noop
from bench.worker_memory import Peak, sample

if TYPE_CHECKING:
    from bench.context import Context

_MB = 1e6


def peak_memory(context: Context) -> list[Figure]:
    """Scan the largest store and sample ``/proc`` meanwhile."""
    spec = context.sizes.ten_times
    schema = our_frame(context, spec, None).schema
    java: Any = context.spark.sparkContext._jvm  # the only way to the JVM's pid
    pid = int(java.java.lang.ProcessHandle.current().pid())
    context.close()  # workers keep memory that they once had: new ones for each side
    ready = ready_frame(context, spec, schema)
    other_peak = sample(pid, lambda: run_to_noop(ready))
    context.close()
    ours = our_frame(context, spec, None)
    our_peak = sample(pid, lambda: run_to_noop(ours))
    return [
        Figure(
            "h",
            f"worker's peak memory, {kind}, {spec.label}",
            "ready-made batches",
            getattr(our_peak, kind) / _MB,
            getattr(other_peak, kind) / _MB,
            "MB",
            higher_is_better=False,
        )
        for kind in Peak._fields
    ]
