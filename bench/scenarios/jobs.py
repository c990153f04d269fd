# SPDX-License-Identifier: Apache-2.0
"""Small Spark jobs end to end, compared with a job over a Python source without rows."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Callable

from bench.empty_source import EMPTY
from bench.figures import Figure, time_figure
from bench.spark_side import alternate, run_to_noop
from bench.store_content import (
    SMALL_EVERY,
    SMALL_TOPIC,
    TENTH_EVERY,
    TENTH_TOPIC,
    key_of,
    topic_of,
)
from rmqsource.schema import table_schema

if TYPE_CHECKING:
    from bench.context import Context
    from bench.stores import StoreSpec

_WARM_UP = 3


def one_key(context: Context) -> list[Figure]:
    """Option ``where``: ``topic = … AND key = …`` on table ``keys``, another key in each run."""
    spec = context.sizes.short
    ours, empty = alternate(
        [_key_job(context, spec), _empty_job(context, "keys")], context.job_runs, _WARM_UP
    )
    return [
        time_figure(
            "e",
            f"Spark, one key, {spec.label}",
            "job that yields nothing",
            ours_seconds=ours,
            other_seconds=empty,
            must=1.4,
            aim=1.2,
        )
    ]


def small_topic(context: Context) -> list[Figure]:
    """Read one topic that is 1 % of the bytes."""
    figures = []
    for spec in (context.sizes.short, context.sizes.long):
        ours, empty = alternate(
            [_topic_job(context, spec, SMALL_TOPIC), _empty_job(context, "messages")],
            context.job_runs,
            _WARM_UP,
        )
        figures.append(
            time_figure(
                "f",
                f"Spark, topic of 1 %, {spec.label}",
                "job that yields nothing",
                ours_seconds=ours,
                other_seconds=empty,
                must=1.5,
                aim=1.2,
            )
        )
    return figures


def ten_times(context: Context) -> list[Figure]:
    """Run the same jobs on a store ten times as large.

    Jobs with the same number of rows have bounds: the cost of a job must not grow with the store.
    Reading ten times the rows must take longer, so that figure is only reported.
    """
    short, large = context.sizes.short, context.sizes.ten_times
    pairs = [
        ("one key", _key_job(context, large), _key_job(context, short), True),
        (
            "topic of 1 % (ten times the rows)",
            _topic_job(context, large, SMALL_TOPIC),
            _topic_job(context, short, SMALL_TOPIC),
            False,
        ),
        (
            "topic of as many rows",
            _topic_job(context, large, TENTH_TOPIC),
            _topic_job(context, short, SMALL_TOPIC),
            True,
        ),
    ]
    figures = []
    for what, on_large, on_short, bounded in pairs:
        ours, other = alternate([on_large, on_short], context.job_runs, _WARM_UP)
        figures.append(
            time_figure(
                "g",
                f"Spark, {what}, {large.label}",
                f"itself on {short.label}",
                ours_seconds=ours,
                other_seconds=other,
                must=1.3 if bounded else None,
                aim=1.05 if bounded else None,
            )
        )
    return figures


def _key_job(context: Context, spec: StoreSpec) -> Callable[[], None]:
    root = context.root(spec)
    # 7919 is prime to all sizes: no message comes twice.
    indices = itertools.count(1)

    def job() -> None:
        index = next(indices) * 7919 * 101 % spec.messages
        where = f"topic = '{topic_of(index)}' AND key = '{key_of(index)}'"
        reader = context.spark.read.format("rocketmq-store").options(table="keys", where=where)
        rows = reader.load(root).collect()
        if len(rows) != 1:
            raise ValueError(f"key {key_of(index)} gave {len(rows)} rows")

    return job


def _topic_job(context: Context, spec: StoreSpec, topic: str) -> Callable[[], None]:
    root = context.root(spec)
    every = {SMALL_TOPIC: SMALL_EVERY, TENTH_TOPIC: TENTH_EVERY}[topic]

    def frame() -> Any:
        reader = context.spark.read.format("rocketmq-store").option("topic", topic)
        return reader.load(root)

    rows = frame().count()
    if rows != spec.messages // every:
        raise ValueError(f"topic {topic} gave {rows} rows")
    return lambda: run_to_noop(frame())


def _empty_job(context: Context, table: str) -> Callable[[], Any]:
    """Return a job of the same schema whose source has no rows."""
    schema = table_schema(table, "FAILFAST")

    def frame() -> Any:
        return context.spark.read.format(EMPTY).schema(schema).load()

    if table == "keys":
        return lambda: frame().collect()
    return lambda: run_to_noop(frame())
