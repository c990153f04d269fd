# SPDX-License-Identifier: Apache-2.0
"""Salvaging a store, compared with appending as many messages to a new one."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from bench.figures import Figure, rate_figure
from bench.message_batches import MessageBatches
from store_core import MessageStore, MessageStoreConfig, PutMessageStatus
from store_core.tools.salvage import SalvageOptions, report_path, salvage_store

if TYPE_CHECKING:
    from pathlib import Path

    from bench.context import Context
    from bench.stores import StoreSpec

_POLL_SECONDS = 0.002


def salvage(context: Context) -> list[Figure]:
    """Salvage stores without damage: every record is read, checked, written and dispatched."""
    return [_beside_append(context, spec) for spec in (context.sizes.short, context.sizes.long)]


def _beside_append(context: Context, spec: StoreSpec) -> Figure:
    root, target = context.root(spec), context.work / "salvaged"
    batches = MessageBatches(spec.body_bytes)
    ours, other = [], []
    for number in range(context.store_runs + 1):  # in turn, so that both meet the same noise
        salvaged = _salvage(root, target, spec.messages)
        appended = _append(context.work / "appended", batches, spec.messages)
        if number or context.quick:  # the first is a warm-up
            ours.append(salvaged)
            other.append(appended)
    return rate_figure(
        "y",
        f"salvage until all is on the disk, {spec.label}",
        "append_batch until dispatched",
        rows=spec.messages,
        ours_seconds=ours,
        other_seconds=other,
        must=0.7,
        aim=1.0,
    )


def _salvage(root: str, target: Path, rows: int) -> float:
    shutil.rmtree(target, ignore_errors=True)
    options = SalvageOptions(clock=lambda: time.time_ns() // 1_000_000)
    begin = time.perf_counter()
    found = salvage_store(root, str(target), MessageStoreConfig(), options)
    seconds = time.perf_counter() - begin
    shutil.rmtree(target)
    report_path(str(target)).unlink()
    if found.records != rows or found.lost_bytes:
        raise ValueError(f"{found.records} of {rows} messages were salvaged")
    return seconds


def _append(root: Path, batches: MessageBatches, rows: int) -> float:
    shutil.rmtree(root, ignore_errors=True)
    store = MessageStore(MessageStoreConfig(store_path_root_dir=str(root.resolve())))
    with store:
        begin = time.perf_counter()
        for batch in batches.batches(rows):
            status = store.append_batch(batch).status
            if status is not PutMessageStatus.PUT_OK:
                raise ValueError(f"put failed: {status.name}")
        while store.dispatch_behind_bytes > 0:
            time.sleep(_POLL_SECONDS)
        seconds = time.perf_counter() - begin
    shutil.rmtree(root)
    return seconds
