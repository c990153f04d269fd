# SPDX-License-Identifier: Apache-2.0
"""A writer is killed, again and again; every message acknowledged to it is stored."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.store_core.crash.judge import judge
from tests.store_core.crash.killed_writer import ACKNOWLEDGEMENT
from tests.store_core.crash.messages import config_of

KILLS = 100
KILLS_PER_STORE = 10
_CLEAN = 0
_SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"enable_consume_queue_ext": True},
    {"flush_disk_type": "ASYNC_FLUSH"},  # a kill takes nothing from the system's memory
    {"transient_store_pool_enable": True},
    {"warm_maped_file_enable": True, "enabled_append_prop_crc": True},
)


class Writers:
    """Starts writers through one process that has imported everything."""

    def __init__(self, module: str = "tests.store_core.crash.killed_writer") -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )

    def run(self, task: dict[str, object], kill_after: float | None) -> int:
        """Let a writer work; kill it after some seconds unless it dies by itself."""
        pid = self.begin(task)
        if kill_after is not None:
            time.sleep(kill_after)  # the moment of the kill, not a wait for something
            with suppress(ProcessLookupError):  # it failed before: see the status
                os.kill(pid, signal.SIGKILL)
        return self.end()

    def begin(self, task: dict[str, object]) -> int:
        """Let a writer work; return its process id."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(task) + "\n")
        self._parent.stdin.flush()
        return int(self._parent.stdout.readline())

    def end(self) -> int:
        """Wait for the writer and return how it ended."""
        assert self._parent.stdout is not None
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


@pytest.mark.parametrize("seed", range(KILLS // KILLS_PER_STORE))
def test_nothing_acknowledged_is_lost(tmp_path, writers, seed):
    assert kill_some(tmp_path, writers, seed, KILLS_PER_STORE) == KILLS_PER_STORE


def kill_some(directory: Path, writers: Writers, seed: int, kills: int) -> int:
    """Kill writers of one store until so many died; return how many died."""
    generator = random.Random(seed)
    settings = {**_SETTINGS[seed % len(_SETTINGS)], "flush_interval_consume_queue": 20}
    root = directory / "store"
    acknowledged: set[int] = set()
    put: set[int] = set()
    number = turn = died = 0
    while died < kills:
        turn += 1
        log = directory / f"acknowledged-{turn}"
        by_clock = generator.random() < 0.4
        task = {
            "root": str(root),
            "settings": settings,
            "seed": generator.randrange(1 << 30),
            "first": number,
            "acknowledgements": str(log),
            "die_after": -1 if by_clock else generator.randrange(1, 600),
            "puts": 10_000 if by_clock else 150,
        }
        status = writers.run(task, generator.uniform(0, 0.12) if by_clock else None)
        assert status in {_CLEAN, signal.SIGKILL}, f"writer {task} ended with {status}"
        died += status != _CLEAN
        for first, stop, is_acknowledged in acknowledgements(log):
            (acknowledged if is_acknowledged else put).update(range(first, stop))
            number = max(number, stop)
        if root.exists():
            judge(root, config_of(root, **settings), acknowledged, put)
    return died


def acknowledgements(log: Path) -> Iterator[tuple[int, int, bool]]:
    """Return the notes of a killed process (see ``ACKNOWLEDGEMENT``), without half an entry."""
    data = log.read_bytes() if log.exists() else b""
    whole = data[: len(data) // ACKNOWLEDGEMENT.size * ACKNOWLEDGEMENT.size]
    return ACKNOWLEDGEMENT.iter_unpack(whole)
