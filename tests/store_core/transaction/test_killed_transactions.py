# SPDX-License-Identifier: Apache-2.0
"""Processes are killed between half message, local work, op message and commit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

from store_core import Message, MessageStore
from store_core.transaction.transactional_message_service import TransactionalMessageService
from store_core.transaction_forms import TransactionState
from tests.store_core.crash.killed_writer import Death, fast_clock_ms, serve
from tests.store_core.test_killed_writer import Writers
from tests.store_core.transaction.decided import (
    COMMIT,
    ROLLBACK,
    decided_message,
    judge_transactions,
    number_of,
    transaction_config,
)

KILLS = 56
KILLS_PER_STORE = 8
MODULE = "tests.store_core.transaction.test_killed_transactions"
_SETTINGS = ({}, {"flush_disk_type": "ASYNC_FLUSH"}, {"transaction_op_format": 4})
_MOST_CALLS = 260
DECISION = struct.Struct("<qb")
"""Number, and state: 0 begun, 1 rolled back, 2 committed."""
BEGUN, ROLLED_BACK, COMMITTED = range(3)


@pytest.fixture(scope="module")
def writers():
    made = Writers(MODULE)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(KILLS // KILLS_PER_STORE))
def test_committed_once_or_not_at_all(tmp_path, writers, seed):
    assert kill_some(tmp_path, writers, seed, KILLS_PER_STORE) == KILLS_PER_STORE


def kill_some(directory: Path, writers: Writers, seed: int, kills: int) -> int:
    """Kill processes that work on one store until so many died; return how many died.

    The result of each is checked in a copy: the next one goes on with the store itself.
    """
    generator = random.Random(seed)
    settings = {**_SETTINGS[seed % len(_SETTINGS)], "flush_interval_consume_queue": 20}
    root, log = directory / "store", directory / "decisions"
    died = turns = 0
    while died < kills:
        turns += 1
        assert turns < 20 * kills, "hardly any of them dies"
        task = {
            "root": str(root),
            "settings": settings,
            "seed": generator.randrange(1 << 30),
            "first": read_decisions(log)[1],
            "decisions": str(log),
            "die_after": generator.randrange(1, _MOST_CALLS),
            "transactions": 60,
        }
        status = writers.run(task, None)
        assert status in {0, signal.SIGKILL}, f"writer {task} ended with {status}"
        died += status != 0
        if root.exists():
            copy = directory / "copy"
            shutil.copytree(root, copy)
            decisions, _ = read_decisions(log)
            judge_transactions(transaction_config(copy, **settings), decisions, decisions)
            shutil.rmtree(copy)
    return died


# A process that opens, ends and checks transactions, and dies while it does.
#
# ``python -m tests.store_core.transaction.test_killed_transactions``, see ``crash.killed_writer``.


class Producer:
    """Opens transactions in one process; its decisions are on the disk before they are sent."""

    def __init__(
        self, store: MessageStore, log: int, decisions: dict[int, bool], generator: random.Random
    ) -> None:
        self._store, self._log, self._decisions = store, log, decisions
        self._generator = generator
        self._in_flight: dict[int, Any] = {}
        self.service = TransactionalMessageService(store, self._answer)
        self.service.load()

    def work(self, number: int) -> int:
        """Begin and end some transactions in one of the possible ways; return the next number."""
        way = self._generator.random()
        self._note(number, BEGUN)
        if way < 0.3:
            self._block(number)
        else:
            self._begin(number)
            if way < 0.6:
                self._end(number)
            elif way < 0.7:
                self._end_many()
        if self._generator.random() < 0.3:
            self._store.wait_for_dispatch()
            self.service.check()
        if self._generator.random() < 0.2:
            self.service.op_batch_service.run_once()
        return number + 1

    def _begin(self, number: int) -> None:
        result = self.service.prepare_message(decided_message(number))
        assert result.status.name == "PUT_OK", result
        self._in_flight[number] = result.append_result

    def _block(self, number: int) -> None:
        try:
            with self._store.transaction(decided_message(number), "writers"):
                self._in_flight[number] = None
                if not self._decide(number):
                    raise InterruptedError
        except InterruptedError:
            pass

    def _end(self, number: int) -> None:
        state = COMMIT if self._decide(number) else ROLLBACK
        self.service.end_transaction(self._in_flight[number], state)

    def _end_many(self) -> None:
        """Decide alike for all waiting transactions; end them in one call, newest copies only."""
        waiting = [n for n, place in self._in_flight.items() if n not in self._decisions and place]
        is_commit = self._generator.random() < 0.7
        for number in waiting:
            self._decisions[number] = is_commit
            self._note(number, COMMITTED if is_commit else ROLLED_BACK)
        offsets = [self._in_flight[number].queue_offset for number in waiting]
        self._store.wait_for_dispatch()
        self.service.end_transactions(offsets, COMMIT if is_commit else ROLLBACK)

    def _decide(self, number: int) -> bool:
        is_commit = self._generator.random() < 0.7
        self._decisions[number] = is_commit
        self._note(number, COMMITTED if is_commit else ROLLED_BACK)
        return is_commit

    def _note(self, number: int, kind: int) -> None:
        os.write(self._log, DECISION.pack(number, kind))

    def _answer(self, half: Message) -> TransactionState:
        number = number_of(half)
        if number in self._decisions:
            return COMMIT if self._decisions[number] else ROLLBACK
        return TransactionState.UNKNOW if number in self._in_flight else ROLLBACK


def work(
    root: str,
    settings: dict[str, Any],
    seed: int,
    first: int,
    decisions: str,
    die_after: int,
    transactions: int,
) -> None:
    """Open the store, begin and end transactions; stop cleanly now and then."""
    generator = random.Random(seed)
    known = read_decisions(Path(decisions))[0]
    log = os.open(decisions, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if die_after >= 0:
        Death(die_after, generator).install()
    config, number = transaction_config(Path(root), **settings), first
    while transactions > 0:
        with MessageStore(config, clock=fast_clock_ms) as store:
            producer = Producer(store, log, known, generator)
            for _ in range(min(transactions, generator.randrange(3, 30))):
                number = producer.work(number)
                transactions -= 1
            if generator.random() < 0.5:
                producer.service.shutdown()
    os._exit(0)


def read_decisions(log: Path) -> tuple[dict[int, bool], int]:
    """Return the decisions, and the number after the last begun transaction."""
    data = log.read_bytes() if log.exists() else b""
    whole = data[: len(data) // DECISION.size * DECISION.size]
    decisions, following = {}, 0
    for number, kind in DECISION.iter_unpack(whole):
        if kind != BEGUN:
            decisions[number] = kind == COMMITTED
        following = max(following, number + 1)
    return decisions, following


if __name__ == "__main__":
    serve(work)
