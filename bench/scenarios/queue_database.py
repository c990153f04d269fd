# SPDX-License-Identifier: Apache-2.0
"""A scan by topic of a store with queues in RocksDB, compared with queues in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.figures import Figure, rate_figure
from bench.queue_database import ensure_queue_database
from bench.spark_side import alternate, run_to_noop
from bench.store_content import topic_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bench.context import Context


def scan_by_topic(context: Context) -> list[Figure]:
    """Scan all messages of all topics through the queues."""
    spec = context.sizes.short
    root = context.root(spec)
    topics = ",".join(sorted({topic_of(number) for number in range(spec.messages)}))

    def frame(path: str) -> DataFrame:
        reader = context.spark.read.format("rocketmq-store")
        return reader.option("topic", topics).option("access", "consumequeue").load(path)

    in_database, in_files = frame(ensure_queue_database(root)), frame(root)
    if in_database.count() != spec.messages or in_files.count() != spec.messages:
        raise ValueError("a scan does not find all messages")
    jobs = [lambda: run_to_noop(in_database), lambda: run_to_noop(in_files)]
    ours, other = alternate(jobs, context.scan_runs)
    return [
        rate_figure(
            "zs",
            f"Spark scan by topic, queues in RocksDB, {spec.label}",
            "the same with queues in files",
            rows=spec.messages,
            ours_seconds=ours,
            other_seconds=other,
            must=0.6,
            aim=0.9,
        )
    ]
