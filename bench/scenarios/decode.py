# SPDX-License-Identifier: Apache-2.0
"""Decoding in one thread without Spark, compared with RocketMQ's ``MessageDecoder``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.decode_side import run_decode
from bench.figures import Figure, rate_figure
from bench.java_side import last_round

if TYPE_CHECKING:
    from bench.context import Context


def one_thread(context: Context) -> list[Figure]:
    """Compare the third, warm rounds."""
    figures = []
    for spec, must, aim in ((context.sizes.short, 1.5, 3), (context.sizes.long, 1.2, 2)):
        root = context.root(spec)
        ours, java = [], []
        for _ in range(context.decode_runs):
            java.append(last_round(context.java.run("scan", root, 1), "scan_decode"))
            ours.append(run_decode(root)[-1])
        counts = {figure["count"] for figure in ours + java}
        if counts != {spec.messages}:
            raise ValueError(f"decoded {sorted(counts)} of {spec.messages} messages")
        figures.append(
            rate_figure(
                "c",
                f"decode, all columns, one thread, {spec.label}",
                "Java MessageDecoder",
                rows=spec.messages,
                ours_seconds=[figure["seconds"] for figure in ours],
                other_seconds=[figure["seconds"] for figure in java],
                must=must,
                aim=aim,
            )
        )
    return figures
