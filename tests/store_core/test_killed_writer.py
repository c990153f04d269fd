"""A writer with synchronous flush is killed; everything that it was told is stored is there."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.store_core.crash.judge import judge
from tests.store_core.crash.killed_writer import ACKNOWLEDGEMENT
from tests.store_core.crash.messages import config_of

KILLS = 100
_KILLS_PER_STORE = 10
_CLEAN = 0


class Writers:
    """Starts writers by way of one process that has imported everything."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.store_core.crash.killed_writer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )

    def run(self, task: dict[str, object], kill_after: float | None) -> int:
        """Let a writer work; kill it after some seconds unless it dies by itself."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(task) + "\n")
        self._parent.stdin.flush()
        pid = int(self._parent.stdout.readline())
        if kill_after is not None:
            time.sleep(kill_after)  # the moment of the kill, not a wait for something
            os.kill(pid, signal.SIGKILL)
        return int(self._parent.stdout.readline())

    def close(self) -> None:
        """End the process."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.stdout.close()
        assert self._parent.wait(30) == 0


@pytest.fixture(scope="module")
def writers():
    made = Writers()
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(KILLS // _KILLS_PER_STORE))
def test_nothing_acknowledged_is_lost(tmp_path, writers, seed):
    kill_some(tmp_path, writers, random.Random(seed), _KILLS_PER_STORE)


def kill_some(directory: Path, writers: Writers, generator: random.Random, kills: int) -> int:
    """Kill writers of one store until so many died; return how many died."""
    root = directory / "store"
    acknowledged: set[int] = set()
    put: set[int] = set()
    number = died = 0
    while died < kills:
        log = directory / f"acknowledged-{number}-{died}"
        by_clock = generator.random() < 0.4
        task = {
            "root": str(root),
            "seed": generator.randrange(1 << 30),
            "first": number,
            "acknowledgements": str(log),
            "die_after": -1 if by_clock else generator.randrange(1, 600),
            "puts": 10_000 if by_clock else 150,
        }
        status = writers.run(task, generator.uniform(0, 0.12) if by_clock else None)
        assert status in {_CLEAN, signal.SIGKILL}, f"writer {task} ended with {status}"
        died += status != _CLEAN
        for first, stop, is_acknowledged in ACKNOWLEDGEMENT.iter_unpack(_whole(log)):
            (acknowledged if is_acknowledged else put).update(range(first, stop))
            number = max(number, stop)
        if root.exists():
            judge(root, config_of(root), acknowledged, put)
    return died


def _whole(log: Path) -> bytes:
    data = log.read_bytes() if log.exists() else b""
    return data[: len(data) // ACKNOWLEDGEMENT.size * ACKNOWLEDGEMENT.size]
