# SPDX-License-Identifier: Apache-2.0
"""Streaming queries of the benchmarks, and the live store that they follow."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench.message_batches import message
from store_core import MessageStore, MessageStoreConfig, PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from bench.context import Context

WAIT_SECONDS = 60
_POLL_SECONDS = 0.002
_BODY = b"x" * 100
_SETTINGS = {
    "spark.sql.streaming.pollingDelay": "0ms",
    "spark.sql.streaming.noDataProgressEventInterval": "0ms",
    "spark.sql.streaming.numRecentProgressUpdates": "20000",
}
"""No pause between triggers, and a report of each; the last 20,000 reports are kept."""


def followed(context: Context, root: Path | str) -> DataFrame:
    """Return a store as a streaming DataFrame, with default options."""
    return context.spark.readStream.format("rocketmq-store").load(str(root))


@contextmanager
def running(context: Context, frame: DataFrame, each_batch: Any = None) -> Iterator[StreamingQuery]:
    """Run a query, into ``noop`` or a function of (rows, batch number) in this process."""
    for name, value in _SETTINGS.items():
        context.spark.conf.set(name, value)
    writer = frame.writeStream
    writer = writer.format("noop") if each_batch is None else writer.foreachBatch(each_batch)
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


@contextmanager
def live_store(root: Path, **settings: Any) -> Iterator[MessageStore]:
    """Open a store in this process, as a broker would; it is deleted at the end."""
    shutil.rmtree(root, ignore_errors=True)
    config = MessageStoreConfig(store_path_root_dir=str(root), **settings)
    with MessageStore(config) as store:
        yield store
    shutil.rmtree(root)


class OneByOne:
    """Puts a message when the previous message's row has arrived and its batch has ended.

    Spark begins no batch before that, so the end of a batch does not count towards the next one.

    Parameters
    ----------
    store
        The store; a query that calls `arrived` follows it.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._put = 0
        self._has_come = threading.Event()
        self._came_ns = 0
        self._batch = -1

    def arrived(self, rows: DataFrame, number: int) -> None:
        """Receive a batch; the query calls this."""
        count = len(rows.collect())
        self._came_ns = time.monotonic_ns()
        self._batch = number
        if count:
            self._has_come.set()

    def seconds_of_next(self, query: StreamingQuery) -> float:
        """Put a message; return the seconds from its acknowledgement to the arrival of its row."""
        _wait_for_trigger_after(query, self._batch)
        self._has_come.clear()
        result = self._store.put_message(message(self._put, _BODY))
        acknowledged_ns = time.monotonic_ns()
        if result.status is not PutMessageStatus.PUT_OK:
            raise ValueError(f"message {self._put}: {result.status}")
        self._put += 1
        if not self._has_come.wait(WAIT_SECONDS):
            raise ValueError(f"message {self._put - 1} did not come: {query.exception()}")
        return (self._came_ns - acknowledged_ns) / 1e9


def _wait_for_trigger_after(query: Any, batch: int) -> None:
    """Wait until a trigger without data after a batch was reported."""
    deadline = time.monotonic() + WAIT_SECONDS
    told = query._jsq.lastProgress()
    while told is None or told.batchId() <= batch:
        if time.monotonic() > deadline:
            raise ValueError(f"no trigger after batch {batch}: {query.exception()}")
        time.sleep(_POLL_SECONDS)
        told = query._jsq.lastProgress()
