# SPDX-License-Identifier: Apache-2.0
"""Memory of the process that plans the batches of a stream, as their number grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.figures import Figure
from bench.spark_side import java_pid
from bench.streams import OneByOne, followed, live_store, running
from bench.worker_memory import command_line, descendants, private_bytes

if TYPE_CHECKING:
    from bench.context import Context

_RUNNER = "python_streaming_source_runner"
_MB = 1e6
_SEGMENT_BYTES = 64 << 10
"""A message in each batch: the log rolls every two hundred batches."""


def stream_memory(context: Context) -> list[Figure]:
    """Follow a store that gets one message for each batch."""
    few, many = (2, 10) if context.quick else (10, 1000)
    root = context.work / "memory-store"
    with live_store(root, mapped_file_size_commit_log=_SEGMENT_BYTES) as store:
        one_by_one = OneByOne(store)
        with running(context, followed(context, root), one_by_one.arrived) as query:
            sizes = []
            for number in range(1, many + 1):
                one_by_one.seconds_of_next(query)
                if number in {few, many}:
                    sizes.append(private_bytes(_runner(context)) / _MB)
    return [
        Figure(
            scenario="w",
            what=f"memory of the stream's process after {many:,} batches",
            against=f"after {few}",
            ours=sizes[1],
            other=sizes[0],
            unit="MB",
            higher_is_better=False,
            must=1.05,
            aim=1.0,
        )
    ]


def _runner(context: Context) -> int:
    """Return the one process that runs a stream's reader."""
    found = [pid for pid in descendants(java_pid(context.spark)) if _RUNNER in command_line(pid)]
    if len(found) != 1:
        raise ValueError(f"expected one process of {_RUNNER}, found {found}")
    return found[0]
