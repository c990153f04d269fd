# SPDX-License-Identifier: Apache-2.0
"""A simulation of Spark's steps with a streaming source, without Spark; it can be killed between.

As in Spark's `MicroBatchExecution`, the end of a batch goes to the offset log before it runs, its
number to the commit log afterwards. A query that starts again repeats the batch that the offset log
has and the commit log lacks. Offsets are passed as JSON, partitions and readers are pickled.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import BinaryType, StructField, StructType

from rmqsource.spark.store_format import RocketMQStoreDataSource
from rmqsource.spark.stream_reader import UnlimitedStreamReader

Row = dict[str, Any]

PLANNED, READ, WRITTEN = "offsets logged", "rows read", "rows written"
STEPS = (PLANNED, READ, WRITTEN)
"""Steps where a query can be killed: a batch repeats from each of them."""
_ON_DEMAND = StructField("properties_raw", BinaryType(), nullable=False)


class KilledError(Exception):
    """The query was killed."""


@dataclass
class Checkpoint:
    """State that survives a kill: the query's logs, and rows of a sink that knows its batches."""

    offsets: list[str] = field(default_factory=list)
    commits: int = 0
    sink: dict[int, list[Row]] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        """All delivered rows, in the order of the batches."""
        return [row for number in sorted(self.sink) for row in self.sink[number]]

    def log_offsets(self, text: str) -> None:
        """Record the end of the next batch, before it runs."""
        self.offsets.append(text)

    def log_commit(self, number: int) -> None:
        """Record that a batch is done."""
        self.commits = number + 1


class SimulatedQuery:
    """One run of a query.

    Parameters
    ----------
    checkpoint
        That of earlier runs, or a new one.
    options
        Options of the source.
    columns
        Names of columns; all if None.
    kill_at
        Called with (batch number, step); the query is killed if it returns true.
    """

    source_class: type[DataSource] = RocketMQStoreDataSource

    def __init__(
        self,
        checkpoint: Checkpoint,
        options: dict[str, Any],
        columns: Iterable[str] | None = None,
        kill_at: Callable[[int, str], bool] = lambda number, step: False,
    ) -> None:
        self.checkpoint, self._kill_at = checkpoint, kill_at
        texts = {name: str(value) for name, value in options.items()}
        source = self.source_class(texts)
        declared = source.schema()
        known = {each.name: each for each in (*declared, _ON_DEMAND)}
        self.schema = StructType([known[name] for name in columns]) if columns else declared
        self.reader: Any = source.streamReader(self.schema)
        self.task_reader = pickle.dumps(source.streamReader(self.schema))
        self.progress: list[dict[str, Any]] = []

    def available_now(self) -> SimulatedQuery:
        """Run all batches of ``Trigger.AvailableNow``."""
        self._repeat()
        self.reader.prepareForTriggerAvailableNow()
        while self.run_once():
            pass
        return self

    def all_available(self) -> SimulatedQuery:
        """Run batches until no data is left."""
        while self.run_once():
            pass
        return self

    def run_once(self) -> bool:
        """Run one batch; return whether there was one."""
        if self._repeat():
            return True
        before = self._text(len(self.checkpoint.offsets) - 1)
        if isinstance(self.reader, UnlimitedStreamReader):
            after = json.dumps(self.reader.latestOffset())
        else:
            limit = self.reader.getDefaultReadLimit()
            after = json.dumps(self.reader.latestOffset(json.loads(before), limit))
            reported = json.dumps(self.reader.reportLatestOffset())
            self.progress.append({"endOffset": after, "latestOffset": reported})
        if after == before:
            return False
        self.checkpoint.log_offsets(after)
        self._run(len(self.checkpoint.offsets) - 1)
        return True

    def _repeat(self) -> bool:
        if self.checkpoint.commits == len(self.checkpoint.offsets):
            return False
        self._run(self.checkpoint.commits)
        return True

    def _text(self, number: int) -> str:
        if number < 0:
            return json.dumps(self.reader.initialOffset())
        return self.checkpoint.offsets[number]

    def _run(self, number: int) -> None:
        self._step(number, PLANNED)
        start, end = json.loads(self._text(number - 1)), json.loads(self._text(number))
        partitions = pickle.loads(pickle.dumps(list(self.reader.partitions(start, end))))
        parts = []
        for partition in partitions:
            task = pickle.loads(self.task_reader)
            parts.append(list(task.read(partition)))
        self._step(number, READ)
        self._write(number, parts)
        self._step(number, WRITTEN)
        self.checkpoint.log_commit(number)

    def _write(self, number: int, parts: list[list[Any]]) -> None:
        """Give a batch to the sink: the record batches of each partition."""
        rows = [row for part in parts for batch in part for row in batch.to_pylist()]
        self.checkpoint.sink.setdefault(number, rows)

    def _step(self, number: int, step: str) -> None:
        if self._kill_at(number, step):
            raise KilledError(f"batch {number}: {step}")


def follow(
    checkpoint: Checkpoint, root: Any, columns: Iterable[str] | None = None, **options: Any
) -> list[Row]:
    """Run a query until no data is left; return all rows so far."""
    query = SimulatedQuery(checkpoint, {**where(root), **options}, columns)
    query.all_available()
    return checkpoint.rows


def where(root: Any) -> dict[str, str]:
    """Return the option that names one root or several."""
    if isinstance(root, (list, tuple)):
        return {"paths": json.dumps([str(path) for path in root])}
    return {"path": str(root)}
