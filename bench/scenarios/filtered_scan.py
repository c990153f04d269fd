# SPDX-License-Identifier: Apache-2.0
"""Spark scans with a SQL filter, compared with the same scans without it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.figures import Figure, rate_figure
from bench.filter_side import properties_of
from bench.scenarios.filters import EXPRESSION
from bench.spark_side import alternate, run_to_noop
from store_core import MessageStore, MessageStoreConfig, PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.context import Context

_KEEPS_ALL = "amount >= 0 AND region <> 'none' AND level <> 'none'"
_MUST, _AIM = 0.7, 0.9
_BATCH = 20_000
_FORMAT = 1
"""Part of the directory name; raise it when what is written changes."""


def filtered_scan(context: Context) -> list[Figure]:
    """Scan all columns with filters of three comparisons: of 13 % of the messages, and of all."""
    spec = context.sizes.short
    root = _filtered_store(context.work, spec.messages, spec.body_bytes)
    reader = context.spark.read.format("rocketmq-store")
    plain = reader.load(str(root))
    few, every = (
        context.spark.read.format("rocketmq-store").option("sqlFilter", text).load(str(root))
        for text in (EXPRESSION, _KEEPS_ALL)
    )
    counted = [frame.select("topic").count() for frame in (plain, few, every)]
    if counted != [spec.messages, _matches(spec.messages), spec.messages]:
        raise ValueError(f"the scans found {counted} of {spec.messages} messages")
    times = alternate(
        [lambda: run_to_noop(plain), lambda: run_to_noop(few), lambda: run_to_noop(every)],
        context.scan_runs,
    )
    return [
        rate_figure(
            "z",
            f"Spark scan, {what}, {spec.label}",
            "the same scan without a filter",
            rows=spec.messages,
            ours_seconds=seconds,
            other_seconds=times[0],
            must=_MUST,
            aim=_AIM,
        )
        for what, seconds in (
            ("sqlFilter that keeps 13 %", times[1]),
            ("sqlFilter that keeps all", times[2]),
        )
    ]


def _matches(messages: int) -> int:
    """Return the number of messages for which the expression is true."""
    index = np.arange(messages)
    amount = index * 7919 % 1000
    return int(np.count_nonzero((amount > 5) & (index % 5 < 2) & (index % 3 == 0)))


def _filtered_store(work: Path, messages: int, body_bytes: int) -> Path:
    """Return a store of messages with three more properties; write it if it does not exist."""
    root = work / "stores" / f"filtered-{_FORMAT}-{messages}x{body_bytes}"
    if not root.exists():
        unfinished = root.with_name(f"{root.name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        with MessageStore(MessageStoreConfig(store_path_root_dir=str(unfinished))) as store:
            for batch in _batches(messages, body_bytes):
                status = store.append_batch(batch).status
                if status is not PutMessageStatus.PUT_OK:
                    raise OSError(f"append_batch says {status.name}")
            store.wait_for_dispatch()
        unfinished.rename(root)
    return root


def _batches(messages: int, body_bytes: int) -> Iterator[Any]:
    bodies = np.random.default_rng(1).integers(0, 256, (_BATCH, body_bytes), np.uint8)
    for at in range(0, messages, _BATCH):
        rows = range(at, min(at + _BATCH, messages))
        yield pa.RecordBatch.from_pydict(
            {
                "topic": pa.array([f"TopicTest{index % 4}" for index in rows]),
                "queue_id": pa.array([index // 4 % 4 for index in rows], pa.int32()),
                "body": pa.array([body.tobytes() for body in bodies[: len(rows)]], pa.binary()),
                "properties_raw": pa.array([properties_of(index) for index in rows], pa.binary()),
            }
        )
