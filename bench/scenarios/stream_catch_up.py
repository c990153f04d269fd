# SPDX-License-Identifier: Apache-2.0
"""A stream that reads a whole store in one go, compared with a batch read of the same rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bench.figures import rate_figure
from bench.scenarios.scan import our_frame
from bench.spark_side import alternate, run_to_noop
from bench.streams import followed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bench.context import Context
    from bench.figures import Figure


def catch_up(context: Context) -> list[Figure]:
    """Run ``Trigger.AvailableNow`` without limits.

    A query starts its own Python process for any source. The rate is therefore that of its
    triggers, as Spark reports it; start and end of the query are a separate figure.
    """
    figures = []
    for spec in (context.sizes.short, context.sizes.followed):
        stream, batch = followed(context, context.root(spec)), our_frame(context, spec, None)
        in_triggers: list[float] = []
        run = partial(_run, stream, spec.messages, in_triggers)
        whole, other = alternate([run, partial(run_to_noop, batch)], context.scan_runs)
        figure = partial(
            rate_figure, "t", against="the batch source", rows=spec.messages, other_seconds=other
        )
        figures += [
            figure(
                f"stream, AvailableNow, {spec.label}",
                ours_seconds=in_triggers[-context.scan_runs :],
                must=0.8,
                aim=0.95,
            ),
            figure("the same with start and end of the query", ours_seconds=whole),
        ]
    return figures


def _run(stream: DataFrame, messages: int, in_triggers: list[float]) -> None:
    """Read everything, and add up the time of the triggers."""
    query = stream.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    told = query.recentProgress
    rows = sum(int(progress["numInputRows"]) for progress in told)
    if rows != messages:
        raise ValueError(f"the stream found {rows} of {messages} messages")
    in_triggers.append(sum(progress["durationMs"]["triggerExecution"] for progress in told) / 1000)
