# SPDX-License-Identifier: Apache-2.0
"""Finding one key among all messages without Spark, compared with ``queryMessage``."""

from __future__ import annotations

import random
import shutil
import time
from typing import TYPE_CHECKING, Any, Callable

from bench.figures import Figure
from bench.java_side import last_round
from bench.make_store import make_store
from bench.store_content import key_of, topic_of
from store_core import StoreSnapshot

if TYPE_CHECKING:
    from bench.context import Context

_MAX_NUM = 32
_END_MS = 2**63 - 1


def warm_query(context: Context) -> list[Figure]:
    """Query random keys; the last of three rounds on both sides."""
    spec = context.sizes.short
    java = _java_round(context)
    snapshot = StoreSnapshot(context.root(spec))

    def query(topic: str, key: str) -> list[Any]:
        return list(snapshot.query_message(topic, key, _MAX_NUM, 0, _END_MS).messages)

    def find(topic: str, key: str) -> list[Any]:
        return list(snapshot.find_messages(topic, [key]))

    return [
        Figure(
            scenario="d",
            what=f"{name}, {spec.label}",
            against="Java queryMessage",
            ours=_microseconds(call, spec.messages, context.queries),
            other=java,
            unit="us",
            higher_is_better=False,
            must=must,
            aim=aim,
        )
        for name, call, must, aim in (
            ("query_message", query, 12, None),
            ("find_messages", find, 20, 5),
        )
    ]


def bulk_lookup(context: Context) -> list[Figure]:
    """Look up every key of the store in one call; Java queries them one by one."""
    spec = context.sizes.short
    java = 1e6 / _java_round(context)
    snapshot = StoreSnapshot(context.root(spec))
    keys: dict[str, list[str]] = {}
    for index in random.Random(0).sample(range(spec.messages), spec.messages):
        keys.setdefault(topic_of(index), []).append(key_of(index))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        found = sum(
            len(snapshot.find_offsets(topic, asked).commit_log_offset)
            for topic, asked in keys.items()
        )
        seconds.append(time.perf_counter() - start)
        if found != spec.messages:
            raise ValueError(f"{found} of {spec.messages} keys were found")
    return [
        Figure(
            scenario="m",
            what=f"find_offsets of every key, {spec.label}",
            against="Java queryMessage in a loop, warm",
            ours=spec.messages / min(seconds),
            other=java,
            unit="keys/s",
            higher_is_better=True,
            must=1,
            aim=3,
        )
    ]


def _java_round(context: Context) -> float:
    """Return Java's microseconds per query, on its own store: it leaves an ``abort`` file."""
    spec = context.sizes.short
    root = context.work / "java-query-store"
    shutil.rmtree(root, ignore_errors=True)
    make_store(root, messages=spec.messages, body_bytes=spec.body_bytes)
    try:
        figures = context.java.run("query", str(root.resolve()), context.queries, spec.messages)
    finally:
        shutil.rmtree(root)
    figure = last_round(figures, "query_by_key")
    return float(figure["seconds"]) / int(figure["count"]) * 1e6


def _microseconds(call: Callable[[str, str], list[Any]], messages: int, queries: int) -> float:
    seconds = 0.0
    for number in range(3):
        picked = random.Random(number).choices(range(messages), k=queries)
        asked = [(topic_of(index), key_of(index)) for index in picked]
        start = time.perf_counter()
        found = [len(call(topic, key)) for topic, key in asked]
        seconds = time.perf_counter() - start
        if min(found) < 1:
            raise ValueError("a key was not found")
    return seconds / queries * 1e6
