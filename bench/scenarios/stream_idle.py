# SPDX-License-Identifier: Apache-2.0
"""Triggers of a stream without new data."""

from __future__ import annotations

import re
import statistics
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench.figures import time_figure
from bench.idle_stream import IDLE_STREAM
from bench.streams import followed, live_store, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bench.context import Context
    from bench.figures import Figure
    from store_core import MessageStore

_TOPICS, _QUEUES = 50, 4
_BODY_BYTES = 1 << 10
_BATCH_ROWS = 10_000
_TRIGGER_MS = re.compile(r'"triggerExecution" : ([0-9]+)')


def idle_triggers(context: Context) -> list[Figure]:
    """Follow 1 GiB in 200 queues that a broker has open and no one writes to."""
    rows = 20_000 if context.quick else 1_000_000
    ours: list[float] = []
    other: list[float] = []
    with live_store(context.work / "idle-store") as store:
        _fill(store, rows)
        stream = followed(context, context.work / "idle-store").select("queue_offset")
        nothing = context.spark.readStream.format(IDLE_STREAM).schema("queue_offset bigint").load()
        for _ in range(context.decode_runs):
            ours.append(_trigger_seconds(context, stream))
            other.append(_trigger_seconds(context, nothing))
    return [
        time_figure(
            "u",
            f"trigger without data, {rows:,} x 1 KB in {_TOPICS * _QUEUES} queues",
            "stream source that does nothing",
            ours_seconds=ours,
            other_seconds=other,
            must=1.5,
            aim=1.1,
        )
    ]


def _fill(store: MessageStore, rows: int) -> None:
    number = pa.array(range(_BATCH_ROWS))
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": [f"Topic{n.as_py() % _TOPICS}" for n in number],
            "queue_id": pa.array([n.as_py() // _TOPICS % _QUEUES for n in number], pa.int32()),
            "body": [bytes(_BODY_BYTES)] * _BATCH_ROWS,
        }
    )
    for _ in range(rows // _BATCH_ROWS):
        store.append_batch(batch)


def _trigger_seconds(context: Context, frame: DataFrame) -> float:
    """Return the mean of ``triggerExecution``, which Spark gives in whole milliseconds."""
    with running(context, frame) as query:
        query.processAllAvailable()
        time.sleep(context.idle_seconds)
        found = [int(ms) for ms in _TRIGGER_MS.findall(_reports(context, query))]
    return statistics.mean(found[len(found) // 2 :]) / 1000  # the later ones, when Java is warm


def _reports(context: Context, query: Any) -> str:
    """Return all reports of a query as one text; fetched one by one they would take a minute."""
    gateway: Any = context.spark.sparkContext._gateway
    box = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    box[0] = query._jsq.recentProgress()
    return str(gateway.jvm.java.util.Arrays.deepToString(box))
