# SPDX-License-Identifier: Apache-2.0
"""Putting messages, compared with RocketMQ's ``putMessage``."""

from __future__ import annotations

import shutil
import threading
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Callable

from bench.figures import rate_figure, time_figure
from bench.java_side import last_round
from bench.message_batches import MessageBatches, message
from store_core import MessageStore, MessageStoreConfig, PutMessageStatus

if TYPE_CHECKING:
    from pathlib import Path

    from bench.context import Context
    from bench.figures import Figure

_POLL_SECONDS = 0.002
_BODY_POOL = 1024
_THREADS = 8


def append_batches(context: Context) -> list[Figure]:
    """Append whole batches; on both sides everything except the bodies is built while timed."""
    figures = []
    for spec, must in ((context.sizes.short, 4.5), (context.sizes.long, 6)):
        work = partial(_append, MessageBatches(spec.body_bytes), spec.messages)
        ours, java = _in_turn(context, work, spec.messages, spec.body_bytes)
        figures.append(
            rate_figure(
                "i",
                f"append_batch until dispatched, {spec.label}",
                "Java putMessage until dispatched",
                rows=spec.messages,
                ours_seconds=ours["dispatched"],
                other_seconds=java["put_and_dispatch"],
                must=must,
                aim=8,
            )
        )
    return figures


def put_one_by_one(context: Context) -> list[Figure]:
    """Put single messages in one thread; Java puts more of them, and is warm sooner."""
    count, spec = context.puts, context.sizes.short
    work = partial(_put, numbers=range(count), body_bytes=spec.body_bytes)
    ours, java = _in_turn(context, work, spec.messages, spec.body_bytes)
    label = f"{count:,} x {spec.body_bytes} B"
    return [
        rate_figure(
            "j",
            f"put_message, one thread, {label}",
            "Java putMessage",
            rows=count,
            ours_seconds=ours["put"],
            other_seconds=[seconds * count / spec.messages for seconds in java["put"]],
            must=0.6,
            aim=1,
        ),
        time_figure(
            "j",
            f"the same until dispatched, {label}",
            "until acknowledged",
            ours_seconds=ours["dispatched"],
            other_seconds=ours["put"],
            must=1.5,
        ),
    ]


def group_commit(context: Context) -> list[Figure]:
    """Put in eight threads that each wait until their message is on disk."""
    count = context.sync_puts

    def put(store: MessageStore) -> None:
        parts = [range(first, count, _THREADS) for first in range(_THREADS)]
        threads = [threading.Thread(target=_put, args=(store, part, 100)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    ours, java = _in_turn(context, put, count, 100, threads=_THREADS, sync=True)
    return [
        rate_figure(
            "n",
            f"put_message, {_THREADS} threads, sync flush, {count:,} x 100 B",
            f"Java putMessage, {_THREADS} threads, sync flush",
            rows=count,
            ours_seconds=ours["put"],
            other_seconds=java["put"],
            must=0.25,
            aim=1,
        )
    ]


def _in_turn(
    context: Context,
    work: Callable[[MessageStore], None],
    java_count: int,
    body_bytes: int,
    *,
    threads: int = 1,
    sync: bool = False,
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the seconds of several runs of both sides, by name, so that both meet one noise."""
    ours: dict[str, list[float]] = defaultdict(list)
    java: dict[str, list[float]] = defaultdict(list)
    settings = {"flush_disk_type": "SYNC_FLUSH"} if sync else {}
    for _ in range(context.store_runs):
        figures = java_put(context, java_count, body_bytes, threads=threads, sync=sync)
        for name, figure in figures.items():
            java[name].append(float(figure["seconds"]))
        for name, seconds in _ours(context, work, **settings).items():
            ours[name].append(seconds)
    return ours, java


def _append(source: MessageBatches, messages: int, store: MessageStore) -> None:
    for batch in source.batches(messages):
        _check(store.append_batch(batch).status)


def _put(store: MessageStore, numbers: range, body_bytes: int) -> None:
    bodies = [bytes([number % 251]) * body_bytes for number in range(_BODY_POOL)]
    put = store.put_message
    for number in numbers:
        _check(put(message(number, bodies[number % _BODY_POOL])).status)


def _check(status: PutMessageStatus) -> None:
    if status is not PutMessageStatus.PUT_OK:
        raise ValueError(f"put failed: {status.name}")


def _ours(context: Context, work: Any, **settings: Any) -> dict[str, float]:
    """Return the seconds until everything was acknowledged, and until it was dispatched."""
    root = _fresh(context.work / "our-put-store")
    config = MessageStoreConfig(store_path_root_dir=str(root.resolve()), **settings)
    store = MessageStore(config)
    store.load()
    store.start()
    try:
        start = time.perf_counter()
        work(store)
        put = time.perf_counter() - start
        while store.dispatch_behind_bytes > 0:
            time.sleep(_POLL_SECONDS)
        dispatched = time.perf_counter() - start
    finally:
        store.shutdown()
        shutil.rmtree(root)
    return {"put": put, "dispatched": dispatched}


def java_put(
    context: Context, count: int, body_bytes: int, *, threads: int = 1, sync: bool = False
) -> dict[str, dict[str, Any]]:
    """Return the time of Java's ``putMessage``, by name of the figure."""
    root = _fresh(context.work / "java-put-store")
    options = ["-DsyncFlush=true"] if sync else []
    try:
        figures = context.java.run(
            "put", str(root.resolve()), count, body_bytes, threads, options=options
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return {name: last_round(figures, name) for name in ("put", "put_and_dispatch")}


def _fresh(root: Path) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    return root
