# SPDX-License-Identifier: Apache-2.0
"""Power is lost at any moment of a transaction: decisions hold, once."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from store_core import Message, MessageStore
from store_core.services.environment import Environment
from store_core.transaction.transactional_message_service import TransactionalMessageService
from store_core.transaction_forms import TransactionState
from tests.store_core.crash.by_hand import (
    dispatch_all,
    nothing_forced,
    run_some_service,
    without_threads,
)
from tests.store_core.simulated_disk import SimulatedDisk, fates
from tests.store_core.transaction.decided import (
    COMMIT,
    ROLLBACK,
    decided_message,
    judge_transactions,
    number_of,
    transaction_config,
)
from tests.store_core.transaction.transactions_by_hand import START_MS, driven

STORES, MOMENTS = 2, 5
_FATES = 5
_RUNS, _STEPS = 2, 7
_STEPS_MS = (0, 1, 700, 8_000, 40_000)
_START_MS = 1_600_000_000_000


@pytest.mark.parametrize("seed", range(STORES))
def test_decisions_survive(tmp_path, seed):
    assert cut_power_of_transactions(tmp_path, seed, MOMENTS) >= MOMENTS * _FATES


def test_offsets_are_not_ahead_of_the_copies_they_count_on(tmp_path):
    """No flush awaits the copy of an immune half message: copy and message could be lost."""
    root, clock = tmp_path / "store", [START_MS]
    root.mkdir()
    disk = SimulatedDisk(root)
    with nothing_forced(), disk.recording(), driven(root, clock, forced=True) as run:
        run.prepare(1, CHECK_IMMUNITY_TIME_IN_SECONDS="300")
        assert run.check(30_000).half_offset == 1
        disk.build(disk.time, next(fates(random.Random(0))), tmp_path / "left")
    with driven(tmp_path / "left", clock) as run:
        assert len(run.service.open_queue_offsets()) == 1


# Transactions on a simulated disk, and checks of the states that a power loss leaves.


class _Life:
    """Begins, decides, ends and checks transactions; notes when each was begun and decided."""

    def __init__(self, root: Path, generator: random.Random, settings: dict[str, Any]) -> None:
        root.mkdir()
        self.disk = SimulatedDisk(root)
        self.begun: list[tuple[int, int]] = []
        self.decided: list[tuple[int, int, bool]] = []
        self._config = transaction_config(root, **settings)
        self._generator, self._now, self._number = generator, _START_MS, 0
        self._places: dict[int, Any] = {}
        self._decisions: dict[int, bool] = {}

    def lead(self) -> None:
        """Open, work and close some times."""
        with self.disk.recording(), without_threads():
            for _ in range(_RUNS):
                environment = Environment(lambda: self._now, lambda _: 0.1, lambda _: 12)
                with MessageStore(self._config, environment=environment) as store:
                    dispatch_all(store)
                    service = TransactionalMessageService(store, self._answer)
                    service.load()
                    for _ in range(_STEPS):
                        self._step(store, service)
                    if self._generator.random() < 0.5:
                        service.shutdown()

    def _step(self, store: MessageStore, service: TransactionalMessageService) -> None:
        generator = self._generator
        self._now += generator.choice(_STEPS_MS)
        self._number += 1
        number = self._number
        result = service.prepare_message(decided_message(number))
        assert result.status.name == "PUT_OK"
        self.begun.append((self.disk.time, number))
        self._places[number] = result.append_result
        run_some_service(store, generator)
        chosen = generator.choice(sorted(self._places))
        if chosen not in self._decisions and generator.random() < 0.8:
            self._decisions[chosen] = generator.random() < 0.7
            self.decided.append((self.disk.time, chosen, self._decisions[chosen]))
            if generator.random() < 0.7:
                state = COMMIT if self._decisions[chosen] else ROLLBACK
                service.end_transaction(self._places[chosen], state)
        run_some_service(store, generator)
        service.op_batch_service.run_once()
        if generator.random() < 0.5:
            dispatch_all(store)
            service.check()

    def _answer(self, half: Message) -> TransactionState:
        decision = self._decisions.get(number_of(half))
        if decision is None:
            return TransactionState.UNKNOW
        return COMMIT if decision else ROLLBACK


def cut_power_of_transactions(directory: Path, seed: int, moments: int) -> int:
    """Check the states left by a power loss at some moments; return the number of states."""
    generator = random.Random(seed)
    settings = {"transaction_op_format": 4} if seed % 2 else {}
    states = 0
    with nothing_forced():
        life = _Life(directory / "store", generator, settings)
        life.lead()
        times = range(life.disk.time + 1)
        for moment in sorted(generator.sample(times, min(moments, len(times)))):
            decisions = {n: commit for time, n, commit in life.decided if time <= moment}
            safe = {n for time, n in life.begun if time <= moment}
            for fate in fates(generator):
                left = directory / "left"
                life.disk.build(moment, fate, left)
                judge_transactions(transaction_config(left, **settings), decisions, safe)
                shutil.rmtree(left)
                states += 1
    return states
