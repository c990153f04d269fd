# SPDX-License-Identifier: Apache-2.0
"""A streaming query from one store to another by this project's sink, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rmqsource
from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from rmqsource.sink.task import stage_part
from rmqsource.spark.store_format import StoreWrite
from rmqsource.spark.writer import PartMessage, SparkStreamWriter
from rmqsource.transfer.copy_store import COPIED_COLUMNS
from store_core.staged_commit.staging import Commit
from tests.rmqsource.sink.killed_sink import SIZES
from tests.rmqsource.stream.simulated_query import (
    PLANNED,
    READ,
    WRITTEN,
    Checkpoint,
    SimulatedQuery,
    where,
)

STAGED = "rows staged"
MIRROR_STEPS = (PLANNED, READ, STAGED, WRITTEN)
"""Steps where a mirror can be killed: before the sink's commit, and before the checkpoint's."""
_QUERY_ID = "mirror"


class MirrorQuery(SimulatedQuery):
    """One run of a query that appends all messages of a store to another one.

    Parameters
    ----------
    checkpoint
        That of earlier runs, or a new one; the query's id goes with it.
    source, target
        Store roots; the target is created if missing.
    kill_at
        As in `SimulatedQuery`.
    options
        Options of the source.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        source: Path,
        target: Path,
        kill_at: Callable[[int, str], bool] = lambda number, step: False,
        **options: Any,
    ) -> None:
        super().__init__(checkpoint, {**where(source), **options}, COPIED_COLUMNS, kill_at)
        self._target = target

    def _write(self, number: int, parts: list[list[Any]]) -> None:
        sizes = {name: str(size) for name, size in SIZES.items()}
        columns = resolve_sink_columns(list(COPIED_COLUMNS.items()))
        plan = plan_write(parse_sink_options({"path": str(self._target), **sizes}), columns)
        messages: list[Any] = []
        for partition_id, batches in enumerate(parts):
            part = stage_part(batches, plan, partition_id)
            messages.append(pickle.loads(pickle.dumps(PartMessage(part, _QUERY_ID))))
        self._step(number, STAGED)
        SparkStreamWriter(StoreWrite(plan), self.schema).commit(messages, number)


class Deaths:
    """Decides where a mirror is killed, and checks the target at every step.

    Parameters
    ----------
    target
        The target's root.
    kill
        Returns whether to kill at a step of a batch; called when it is reached for the first time.
    """

    def __init__(self, target: Path, kill: Callable[[int, str], bool]) -> None:
        self._target, self._kill = target, kill
        self._reached: set[tuple[int, str]] = set()
        self.died: list[tuple[int, str]] = []
        self.commits: list[Commit] = []

    def __call__(self, number: int, step: str) -> bool:
        """Return whether the query is killed here."""
        self._look(number, step)
        is_first = (number, step) not in self._reached
        self._reached.add((number, step))
        if is_first and self._kill(number, step):
            self.died.append((number, step))
            return True
        return False

    def _look(self, number: int, step: str) -> None:
        """Check that the target has all batches up to this one, in turn, each once."""
        last = rmqsource.last_commit(str(self._target))
        if last is not None and len(self.commits) == last.version:
            assert step == WRITTEN
            self.commits.append(last)
        assert last == (self.commits[-1] if self.commits else None)
        assert len(self.commits) in ((number + 1,) if step == WRITTEN else (number, number + 1))
