# SPDX-License-Identifier: Apache-2.0
"""Delivery of a backlog of delayed messages, compared with appending as many."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from bench.figures import rate_figure
from bench.message_batches import MessageBatches
from store_core import MessageStore, MessageStoreConfig, PutMessageStatus, ScheduleMessageService

if TYPE_CHECKING:
    from pathlib import Path

    from bench.context import Context
    from bench.figures import Figure

_POLL_SECONDS = 0.002
_LEVEL = b"DELAY\x011\x02"
_LEVEL_MS = 1_000


def deliver_backlog(context: Context) -> list[Figure]:
    """Deliver all due messages together; both sides end when queues and index have them."""
    spec = context.sizes.short
    batches = MessageBatches(spec.body_bytes)
    appended, delivered = [], []
    for _ in range(context.store_runs):
        appended.append(_append(context.work / "append-store", batches, spec.messages))
        delivered.append(_deliver(context.work / "delay-store", batches, spec.messages))
    return [
        rate_figure(
            "zd",
            f"delivery of due delayed messages until dispatched, {spec.label}",
            "append_batch of as many until dispatched",
            rows=spec.messages,
            ours_seconds=delivered,
            other_seconds=appended,
            must=0.4,
            aim=0.7,
        )
    ]


def _append(root: Path, batches: MessageBatches, rows: int) -> float:
    made = list(batches.batches(rows))  # delivery also has its messages ready
    with _fresh(root) as store:
        begin = time.perf_counter()
        for batch in made:
            _check(store.append_batch(batch).status)
        _wait(store)
        seconds = time.perf_counter() - begin
    shutil.rmtree(root)
    return seconds


def _deliver(root: Path, batches: MessageBatches, rows: int) -> float:
    with _fresh(root) as store:
        for batch in batches.batches(rows):
            at = batch.schema.get_field_index("properties_raw")
            properties = pc.binary_join_element_wise(
                batch.column(at), pa.scalar(_LEVEL), pa.scalar(b"")
            )
            _check(store.append_batch(batch.set_column(at, "properties_raw", properties)).status)
        _wait(store)
        service, now = ScheduleMessageService(store), store.clock() + _LEVEL_MS
        begin = time.perf_counter()
        while service.run_once(now):
            pass
        _wait(store)
        seconds = time.perf_counter() - begin
        if service.delivered != rows:
            raise ValueError(f"{service.delivered} of {rows} messages were delivered")
    shutil.rmtree(root)
    return seconds


def _fresh(root: Path) -> MessageStore:
    shutil.rmtree(root, ignore_errors=True)
    return MessageStore(MessageStoreConfig(store_path_root_dir=str(root.resolve())))


def _wait(store: MessageStore) -> None:
    while store.dispatch_behind_bytes > 0:
        time.sleep(_POLL_SECONDS)


def _check(status: PutMessageStatus) -> None:
    if status is not PutMessageStatus.PUT_OK:
        raise ValueError(f"put failed: {status.name}")
