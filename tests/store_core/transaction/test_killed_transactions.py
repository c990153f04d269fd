"""Processes are killed between half message, local work, op message and commit."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path

import pytest

from tests.store_core.test_killed_writer import Writers
from tests.store_core.transaction.decided import judge_transactions, transaction_config
from tests.store_core.transaction.killed_transactions import read_decisions

KILLS = 56
KILLS_PER_STORE = 8
MODULE = "tests.store_core.transaction.killed_transactions"
_SETTINGS = ({}, {"flush_disk_type": "ASYNC_FLUSH"}, {"transaction_op_format": 4})
_MOST_CALLS = 260


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

    What each leaves is judged in a copy: the next one goes on with the store itself.
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
