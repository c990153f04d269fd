# SPDX-License-Identifier: Apache-2.0
"""SQL filters, compared with RocketMQ's own evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.figures import Figure, rate_figure
from bench.filter_side import run_filter
from bench.java_side import last_round

if TYPE_CHECKING:
    from bench.context import Context

EXPRESSION = "amount > 5 AND region IN ('eu', 'us') AND level = 'gold'"
# Batches whose messages repeat: Java's maps stay in the cache, as on a broker that has just built
# them; columns are as long as in a scan.
_JAVA_BATCH, _OUR_BATCH = 3_000, 21_000


def per_message(context: Context) -> list[Figure]:
    """Compare the last, warm rounds over the same messages."""
    messages = _OUR_BATCH * (1 if context.quick else 50)
    ours, java = [], []
    for _ in range(context.decode_runs):
        java.append(context.java.run("filter", EXPRESSION, _JAVA_BATCH, messages))
        ours.append(run_filter(EXPRESSION, _OUR_BATCH, messages))
    return [
        _figure(name, what, java, ours, messages, bounds)
        for name, what, bounds in (
            ("filter_maps", "properties ready", (0.5, 2.0)),
            ("filter_stored", "from the stored properties", (1.2, 3.0)),
        )
    ]


def _figure(
    name: str,
    what: str,
    java: list[list[dict[str, Any]]],
    ours: list[list[dict[str, Any]]],
    messages: int,
    bounds: tuple[float, float],
) -> Figure:
    sides = [[last_round(run, name) for run in side] for side in (ours, java)]
    matched = {figure["matched"] for side in sides for figure in side}
    if len(matched) != 1:
        raise ValueError(f"the sides do not match the same messages: {sorted(matched)}")
    ours_seconds, java_seconds = [[figure["seconds"] for figure in side] for side in sides]
    return rate_figure(
        "za",
        f"SQL filter, three comparisons, {what}",
        "Java's evaluator",
        rows=messages,
        ours_seconds=ours_seconds,
        other_seconds=java_seconds,
        must=bounds[0],
        aim=bounds[1],
    )
