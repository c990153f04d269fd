"""Putting messages, beside RocketMQ's ``putMessage``."""

from __future__ import annotations

import shutil
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.figures import Figure
from bench.java_side import last_round
from bench.message_batches import MessageBatches, message
from store_core import MessageStore, MessageStoreConfig, PutMessageStatus

if TYPE_CHECKING:
    from pathlib import Path

    from bench.context import Context

_POLL_SECONDS = 0.002
_BODY_POOL = 1024
_THREADS = 8


def append_batches(context: Context) -> list[Figure]:
    """Append whole batches; all but their bodies is made while the clock runs, on both sides."""
    figures = []
    for spec in (context.sizes.short, context.sizes.long):
        java = java_put(context, spec.messages, spec.body_bytes)
        ours = _ours(context, partial(_append, MessageBatches(spec.body_bytes), spec.messages))
        figures.append(
            _rate(
                "i",
                f"append_batch until dispatched, {spec.label}",
                "Java putMessage until dispatched",
                spec.messages,
                ours["dispatched"],
                float(java["put_and_dispatch"]["seconds"]),
                must=3,
                aim=6,
            )
        )
    return figures


def put_one_by_one(context: Context) -> list[Figure]:
    """Put single messages in one thread."""
    count = context.puts
    java = java_put(context, context.sizes.short.messages, context.sizes.short.body_bytes)
    ours = _ours(context, lambda store: _put(store, range(count), context.sizes.short.body_bytes))
    label = f"{count:,} x {context.sizes.short.body_bytes} B"
    put = java["put"]
    return [
        Figure(
            "j",
            f"put_message, one thread, {label}",
            "Java putMessage",
            count / ours["put"],
            float(put["count"]) / float(put["seconds"]),
            "rows/s",
            higher_is_better=True,
            must=0.25,
            aim=0.5,
        ),
        Figure(
            "j",
            f"the same until dispatched, {label}",
            "until acknowledged",
            ours["dispatched"] * 1000,
            ours["put"] * 1000,
            "ms",
            higher_is_better=False,
            must=2,
        ),
    ]


def group_commit(context: Context) -> list[Figure]:
    """Eight threads that each wait until their message is on disk."""
    count = context.sync_puts
    java = java_put(context, count, 100, threads=_THREADS, sync=True)

    def put(store: MessageStore) -> None:
        parts = [range(first, count, _THREADS) for first in range(_THREADS)]
        threads = [threading.Thread(target=_put, args=(store, part, 100)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    ours = _ours(context, put, flush_disk_type="SYNC_FLUSH")
    return [
        _rate(
            "n",
            f"put_message, {_THREADS} threads, sync flush, {count:,} x 100 B",
            f"Java putMessage, {_THREADS} threads, sync flush",
            count,
            ours["put"],
            float(java["put"]["seconds"]),
            must=0.25,
            aim=1,
        )
    ]


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
    """Return the seconds until all was acknowledged, and until all was dispatched."""
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
    """Return what Java's ``putMessage`` took, by name of the figure."""
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


def _rate(
    scenario: str,
    what: str,
    against: str,
    count: int,
    ours_seconds: float,
    other_seconds: float,
    *,
    must: float,
    aim: float,
) -> Figure:
    return Figure(
        scenario,
        what,
        against,
        count / ours_seconds,
        count / other_seconds,
        "rows/s",
        higher_is_better=True,
        must=must,
        aim=aim,
    )
