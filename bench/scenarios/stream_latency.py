# SPDX-License-Identifier: Apache-2.0
"""Time from the acknowledgement of a message to its arrival in a running query."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from bench.figures import time_figure
from bench.ready_stream import READY_STREAM
from bench.streams import WAIT_SECONDS, OneByOne, followed, live_store, running
from rmqsource.schema import table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bench.context import Context
    from bench.figures import Figure

_WARM_UP = 20


def latency(context: Context) -> list[Figure]:
    """Put one message at a time, compared with a source that always has one ready row."""
    ours: list[float] = []
    ready: list[float] = []
    for number in range(context.store_runs + 1):
        found = _latencies(context), _ready_latencies(context)
        if number > 0:  # then Java is warm
            ours += found[0]
            ready += found[1]
    return [
        time_figure(
            "v",
            f"put_message until its row has come, {name}",
            "source of ready rows",
            ours_seconds=[float(np.percentile(ours, percent))],
            other_seconds=[float(np.percentile(ready, percent))],
            must=1.5,
            aim=1.1,
        )
        for name, percent in (("median", 50), ("99th percentile", 99))
    ]


def _latencies(context: Context) -> list[float]:
    root = context.work / "latency-store"
    with live_store(root) as store:
        one_by_one = OneByOne(store)
        with running(context, followed(context, root), one_by_one.arrived) as query:
            found = [
                one_by_one.seconds_of_next(query)
                for _ in range(_WARM_UP + context.followed_messages)
            ]
    return found[_WARM_UP:]


def _ready_latencies(context: Context) -> list[float]:
    found: list[float] = []
    done = threading.Event()

    def arrived(rows: DataFrame, number: int) -> None:
        del number
        stamps = [int(row["body"]) for row in rows.collect()]
        found.extend((time.monotonic_ns() - stamp) / 1e9 for stamp in stamps)
        if len(found) >= _WARM_UP + context.followed_messages:
            done.set()

    schema = table_schema("messages", "FAILFAST")
    frame = context.spark.readStream.format(READY_STREAM).schema(schema).load()
    with running(context, frame, arrived) as query:
        if not done.wait(WAIT_SECONDS * 10):
            raise ValueError(f"the ready rows did not come: {query.exception()}")
    return found[_WARM_UP:]
