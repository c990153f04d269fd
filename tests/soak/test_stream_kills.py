# SPDX-License-Identifier: Apache-2.0
"""A mirror with Spark whose driver or workers are killed has every message once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rmqsource
from rmqsource.explore.diff_stores import compare_stores
from tests.rmqsource.reading import parsed
from tests.rmqsource.sink.spark_jobs import READY
from tests.rmqsource.stream.growing_store import GrowingStore

pytestmark = pytest.mark.soak

KILLS_PER_MINUTE = 5
"""After a kill of the driver Spark starts again, which takes longer than anything else."""
_ROOT = Path(__file__).parents[2]
_LONGEST_S, _HANGS_S = 4.0, 300.0
_AFTER_A_BATCH = 0.8
"""The first batch takes longest, because Python starts for all its parts: few kills come before."""
_OF_WORKERS = 0.5
_MOST_PUT_AT_ONCE, _PAUSE_S = 6, 0.05
_SEGMENT_BYTES = 1 << 16
_WORKER = b"pyspark.daemon"


class Mirror:
    """A driver that mirrors a growing store, and is started again after its end."""

    def __init__(self, directory: Path, source: Path, seed: int) -> None:
        self.target, self.checkpoint = directory / "mirror", directory / "checkpoint"
        self.figures: Counter[str] = Counter()
        self._source, self._log = source, directory / "driver.log"
        self._generator = random.Random(seed)
        self._driver: subprocess.Popen[str] | None = None
        self._may_end = False

    @property
    def kills(self) -> int:
        return self.figures["killed drivers"] + self.figures["killed workers"]

    @property
    def batches(self) -> int:
        last = rmqsource.last_commit(str(self.target)) if self.target.exists() else None
        return 0 if last is None or last.version is None else last.version + 1

    def follow(self) -> None:
        """Start the driver unless it runs."""
        if self._driver is None:
            self._start("follow")

    def is_running(self) -> bool:
        return self._driver is not None and self._driver.poll() is None

    def kill(self) -> None:
        """Kill the driver or one of its Python workers, unless the driver has ended."""
        assert self._driver is not None
        workers = _workers(self._driver.pid)
        if self._driver.poll() is not None:
            assert self._may_end, f"the query ended by itself:\n{self._log.read_text()[-6000:]}"
            self.figures["queries that a killed worker ended"] += 1
            self._reap()
        elif workers and self._generator.random() < _OF_WORKERS:
            self._may_end = True
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(self._generator.choice(workers), signal.SIGKILL)
                self.figures["killed workers"] += 1
        else:
            self.stop()
            self.figures["killed drivers"] += 1
            self.figures["batches that only the mirror knew of"] += self._unnoted_batches()

    def stop(self) -> None:
        """Kill the driver and its JVM, if they run."""
        if self._driver is not None:
            if self._driver.poll() is None:
                os.killpg(self._driver.pid, signal.SIGKILL)
            self._reap()

    def finish(self) -> None:
        """Mirror all remaining messages; the query has to end well."""
        self.stop()
        self._start("end")
        assert self._driver is not None
        assert self._driver.wait() == 0, self._log.read_text()[-6000:]
        self._reap()

    def _start(self, trigger: str) -> None:
        places = (self._source, self.target, self.checkpoint)
        command = [sys.executable, "-m", "tests.rmqsource.sink.spark_jobs", "mirror"]
        with self._log.open("w") as log:
            self._driver = subprocess.Popen(
                [*command, *map(str, places), trigger],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=_ROOT,
                text=True,
                start_new_session=True,
            )
        assert self._driver.stdout is not None
        assert self._driver.stdout.readline() == f"{READY}\n", self._log.read_text()[-6000:]
        self.figures["starts"] += 1
        self._may_end = False

    def _reap(self) -> None:
        assert self._driver is not None
        assert self._driver.stdout is not None
        self._driver.wait()
        self._driver.stdout.close()
        self._driver = None

    def _unnoted_batches(self) -> int:
        """Return how many batches of the mirror Spark has not recorded, and will repeat."""
        batches = self.batches
        return int(batches and not (self.checkpoint / "commits" / str(batches - 1)).exists())


def test_a_mirror_has_every_message_once(tmp_path, capsys, soak_seconds, soak_seed):
    kills = max(1, round(soak_seconds / 60 * KILLS_PER_MINUTE))
    generator = random.Random(soak_seed)
    with GrowingStore(tmp_path / "source", segment_bytes=_SEGMENT_BYTES) as growing:
        growing.put(1)  # a stream of a store that is not there is refused
        mirror = Mirror(tmp_path, growing.root, soak_seed)
        try:
            while mirror.kills < kills:
                mirror.follow()
                if generator.random() < _AFTER_A_BATCH:
                    before, deadline = mirror.batches, time.monotonic() + _HANGS_S
                    while mirror.is_running() and mirror.batches == before:
                        assert time.monotonic() < deadline, "the query hangs"
                        _grow(growing, generator, _PAUSE_S * 10)
                _grow(growing, generator, _LONGEST_S)
                mirror.kill()
            mirror.stop()
            mirror.figures["batches between kills"] = mirror.batches
            mirror.finish()
            mirror.figures["batches"] = mirror.batches
        finally:
            mirror.stop()
            with capsys.disabled():
                print(f"\n{len(growing.put_bodies)} messages: {dict(mirror.figures)}")
        found = compare_stores(parsed(growing.root), parsed(mirror.target))
        count = len(growing.put_bodies)
        assert (found.rows[:3], found.damage) == ([], ())
        assert (found.messages_a, found.messages_b, found.same) == (count, count, count)


def _grow(growing: GrowingStore, generator: random.Random, longest_s: float) -> None:
    """Put messages for a while."""
    for _ in range(1 + int(generator.uniform(0, longest_s) / _PAUSE_S)):
        growing.put(generator.randrange(_MOST_PUT_AT_ONCE + 1))
        time.sleep(_PAUSE_S)


def _workers(session: int) -> list[int]:
    """Return the Python workers of a driver, and the process that forks them."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "stat").read_text().rpartition(")")[2].split()
            if int(words[3]) == session and _WORKER in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except OSError:  # it has ended meanwhile
            continue
    return sorted(found)


def _environment() -> dict[str, Any]:
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**os.environ, **python, "PYTHONPATH": str(_ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
