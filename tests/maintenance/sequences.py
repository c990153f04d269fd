# SPDX-License-Identifier: Apache-2.0
"""Sequences of damage and maintenance, drawn from a seed, and checks after each step."""

from __future__ import annotations

import functools
import itertools
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import typer.main

from tests.hostile.base_stores import scratch_parent
from tests.maintenance.damages import damage
from tests.maintenance.doors import check, disagreement
from tests.maintenance.large_operations import LARGE_OPERATIONS, spark_scan
from tests.maintenance.ledger import Ledger, kept_records, read_ledger
from tests.maintenance.operations import OPERATIONS, Operation, Outcome
from tests.maintenance.stores import Store, draw_store

LARGE_EVERY = 50
"""One sequence of so many goes through Spark, a network broker and a slave."""

_AMONG = 0.4
"""How often a store is damaged again between two operations."""


class BrokenError(AssertionError):
    """A condition that must hold does not."""


@dataclass
class Run:
    """The steps of a sequence, and its failure."""

    seed: int
    steps: list[str] = field(default_factory=list)
    failure: str = ""
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        """What happened, and the command that repeats it."""
        lines = [f"python -m tests.maintenance {self.seed}: {self.failure or 'held'}", *self.steps]
        return "\n  ".join(lines)


def operations_of(seed: int) -> list[str]:
    """Return the operations of a sequence: all triples are dealt once, then again."""
    triples = list(itertools.product(OPERATIONS, repeat=3))
    round_number, place = divmod(seed, len(triples))
    random.Random(f"triples {round_number}").shuffle(triples)
    found = list(triples[place])
    if is_large(seed):
        at = random.Random(f"large {seed}").sample(range(3), 2)
        large = itertools.cycle(LARGE_OPERATIONS)
        first = seed // LARGE_EVERY % len(LARGE_OPERATIONS)
        for number, name in zip(at, itertools.islice(large, first, None)):
            found[number] = name
    return found


def is_large(seed: int) -> bool:
    """Return whether a sequence goes through Spark and the network, too."""
    return seed % LARGE_EVERY == LARGE_EVERY - 1


def run_sequence(seed: int, *, place: Path | None = None) -> Run:
    """Run a sequence in a directory that is removed, or in a new one that stays."""
    run = Run(seed)
    with _quick(), ExitStack() as stack:
        if place is None:
            scratch = tempfile.TemporaryDirectory(prefix="maintenance-", dir=scratch_parent())
            place = Path(stack.enter_context(scratch), "sequence")
        _run(run, place)
    return run


@contextmanager
def _quick() -> Iterator[None]:
    """Force nothing to the disk, and build the command line only once."""
    get_command = functools.cache(typer.main.get_command)
    with (
        mock.patch.object(os, "fsync", return_value=None),
        mock.patch.object(os, "fdatasync", return_value=None),
        mock.patch.object(typer.main, "get_command", get_command),
    ):
        yield


def _run(run: Run, place: Path) -> None:
    chance = random.Random(f"maintenance {run.seed}")
    store = draw_store(chance, place)
    run.steps.append(f"{store.queues} queues, {store.config_file.read_text().split()}")
    try:
        _judge_doors(store, read_ledger(store.root), run)
        for number, name in enumerate(operations_of(run.seed)):
            if number == 0 or chance.random() < _AMONG:
                _damage(store, run)
            _operate(store, name, run)
    except Exception as err:
        run.failure = f"{type(err).__name__}: {err}"


def _damage(store: Store, run: Run) -> None:
    before = read_ledger(store.root)
    for _ in range(store.chance.choice([1, 1, 1, 2, 3])):
        run.steps.append(damage(store.chance, store.root))
        run.counts["damage"] += 1
    after = read_ledger(store.root)
    run.steps[-1] += f" ({len(before.records)} -> {len(after.records)} records)"
    _judge_doors(store, after, run)
    _judge_sight(store, before, after)


def _judge_sight(store: Store, before: Ledger, after: Ledger) -> None:
    """`check` must report lost messages, unless they look expired, or cut by a crash."""
    lost = before.records.keys() - after.records.keys()
    if after.is_crashed or all(start < after.begin for start, _ in lost):
        return
    if not check(store)[0]:
        raise BrokenError(
            f"{len(lost)} messages are lost, from {min(lost)[0]} on, and check says 0"
        )


def _operate(store: Store, name: str, run: Run) -> None:
    operation = (OPERATIONS | LARGE_OPERATIONS)[name]
    before, root = read_ledger(store.root), store.root
    run.steps.append(name)
    outcome = operation.run(store)
    after = read_ledger(root)
    run.steps[-1] += f": {outcome.code}, {outcome.said} ({len(after.records)} records)"
    run.counts[name] += 1
    _judge_loss(before, after, operation, outcome, root)
    if store.root != root:
        made = read_ledger(store.root)
        run.steps[-1] += f"; on with {store.root.name} ({len(made.records)} records)"
        _judge_new_store(after, made, outcome)
        after = made
    if not outcome.elsewhere:
        _judge_put(after, outcome)
    _judge_doors(store, after, run)


def _judge_loss(
    before: Ledger, after: Ledger, operation: Operation, outcome: Outcome, root: Path
) -> None:
    """A store must keep its messages, unless a flag allows a cut, or they are a crash's tail."""
    lost = before.records.keys() - after.records.keys()
    if lost:
        told = f"{len(lost)} readable records are gone, from {min(lost)[0]} on"
        if not lost <= kept_records(root):
            raise BrokenError(f"{told}, and no copy is kept")
        if not operation.may_cut and not (operation.opens and _is_tail(before, after, lost)):
            raise BrokenError(f"{told}, and no flag says so: {outcome.said}")
        if operation.may_cut and outcome.cut < len(lost):  # it counts records with bad bodies, too
            raise BrokenError(f"{told}, and {outcome.cut} are said to be")
    elif not operation.may_leave_out and outcome.code == 0:
        less = before.delivered() - after.delivered()
        if less:
            raise BrokenError(
                f"{len(less)} records are in no queue any more, from {min(less)[0]} on"
            )


def _is_tail(before: Ledger, after: Ledger, lost: set[tuple[int, bytes]]) -> bool:
    """Return whether records were neither flushed nor dispatched before a crash, and came last."""
    if not before.is_crashed:
        return False
    records = [before.records[key] for key in lost]
    first = min(records).start
    kept_after = any(key[0] > first for key in before.records.keys() & after.records.keys())
    return not kept_after and not any(
        before.is_referred_to(r) or r.store_ms < before.flushed_ms for r in records
    )


def _judge_new_store(old: Ledger, new: Ledger, outcome: Outcome) -> None:
    """A salvaged store or a copy must have all of the old one's messages except those it names."""
    bodies = {body for record in new.records.values() for body in record.messages}
    records = sorted(record for record in old.records.values() if record.is_queued)
    lacking = [record for record in records if not bodies.issuperset(record.messages)]
    if len(lacking) > outcome.left_out:
        raise BrokenError(
            f"the new store lacks {len(lacking)} readable records, from {lacking[0].start} on, and "
            f"{outcome.left_out} are said to be left out"
        )


def _judge_put(after: Ledger, outcome: Outcome) -> None:
    bodies = {body for record in after.records.values() for body in record.messages}
    lacking = [body for body in outcome.put if body not in bodies]
    if lacking:
        raise BrokenError(
            f"{len(lacking)} acknowledged messages are not in the log: {lacking[0][:20]!r}"
        )


def _judge_doors(store: Store, ledger: Ledger, run: Run) -> None:
    run.counts["doors"] += 1
    doors = {"Spark": spark_scan} if is_large(run.seed) else {}
    wrong = disagreement(store, ledger, doors)
    if wrong:
        raise BrokenError(wrong)
