# SPDX-License-Identifier: Apache-2.0
"""A pool of workers, each killed and replaced if it takes too long or dies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.hostile.base_stores import scratch_parent
from tests.hostile.running import MOST_SECONDS, PREPARING, Failure
from tests.hostile.spark_session import SCRATCH_VARIABLE
from tests.reused_process import has_data

_ROOT = Path(__file__).parents[2]
_STORES_PER_WORKER = 1000
_STARTING_SECONDS = 300.0


@dataclass
class Tally:
    """The stores that were run, and the failures."""

    stores: int = 0
    commands: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    peak_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)
    wall_seconds: float = 0.0

    def text(self, seed: int) -> str:
        """Return the results as lines for a person."""
        rate, count = self.stores / max(self.wall_seconds, 1e-9), sum(self.commands.values())
        lines = [
            f"{self.stores} stores, {count} commands in {self.wall_seconds:.0f} s: "
            f"{rate:.1f} stores/s; most memory {self.peak_bytes >> 20} MiB"
        ]
        for name, count in sorted(self.commands.items()):
            ends = [
                (e.split(": ", 1)[1], n) for e, n in self.ends.items() if e.startswith(f"{name}: ")
            ]
            told = ", ".join(f"{end} {n}" for end, n in sorted(ends))
            mean, most = self.seconds[name] / count, self.slowest[name]
            lines.append(f"  {name}: {count} times, {mean:.2f} s, at most {most:.1f} s; {told}")
        kinds = Counter(f"{failure.command}: {failure.kind}" for failure in self.failures)
        lines.append(f"{len(self.failures)} failures of {len(kinds)} kinds")
        for kind, count in kinds.most_common():
            first = next(f for f in self.failures if f"{f.command}: {f.kind}" == kind)
            lines.append(f"  {count} × {kind}\n      {first.text.strip()[-700:]}")
            lines.append(f"      after {first.mutations}")
            lines.append(f"      replay: python -m tests.hostile {seed} {first.number}")
        return "\n".join(lines)


def run_stores(
    seed: int, numbers: Iterable[int], workers: int = 0, deadline: float | None = None
) -> Tally:
    """Run stores in one worker for each core, or in a given number of workers."""
    tally, lock, begin = Tally(), threading.Lock(), time.monotonic()
    todo = iter(numbers)
    place = tempfile.mkdtemp(prefix="hostile-", dir=scratch_parent())
    try:
        threads = [
            threading.Thread(target=_serve, args=(seed, todo, lock, tally, place, deadline))
            for _ in range(workers or os.cpu_count() or 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    tally.wall_seconds = time.monotonic() - begin
    return tally


def _serve(
    seed: int,
    todo: Iterator[int],
    lock: threading.Lock,
    tally: Tally,
    place: str,
    deadline: float | None,
) -> None:
    worker: _Worker | None = None
    try:
        while deadline is None or time.monotonic() < deadline:
            with lock:
                number = next(todo, None)
            if number is None:
                break
            if worker is None or worker.served >= _STORES_PER_WORKER:
                if worker is not None:
                    worker.end()
                worker = _Worker(place)
            answer = worker.run(seed, number)
            with lock:
                _note(tally, answer)
            if answer["is_dead"]:
                worker = None
    finally:
        if worker is not None:
            worker.end()


def _note(tally: Tally, answer: dict[str, Any]) -> None:
    tally.stores += 1
    for one in answer["done"]:
        name = one["command"]
        tally.commands[name] += 1
        tally.ends[f"{name}: {one['end']}"] += 1
        tally.seconds[name] += one["seconds"]
        tally.slowest[name] = max(tally.slowest.get(name, 0.0), one["seconds"])
        tally.peak_bytes = max(tally.peak_bytes, one["peak_bytes"])
    tally.failures += [Failure(**one) for one in answer["failures"]]


class _Worker:
    def __init__(self, place: str) -> None:
        self.served = 0
        self._read = b""
        self._place = tempfile.mkdtemp(dir=place)
        self._log: IO[str] = open(Path(self._place, "stderr"), "w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=_ROOT,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(_ROOT),
                "MPLBACKEND": "Agg",
                SCRATCH_VARIABLE: self._place,
            },
        )

    def run(self, seed: int, number: int) -> dict[str, Any]:
        """Return how a store ended; a worker that took too long or died is ended."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        task = {"seed": seed, "number": number, "place": str(Path(self._place, f"store-{number}"))}
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        command, limit = "the mutation", _STARTING_SECONDS
        self.served += 1
        while True:
            line, is_late = self._line(limit)
            if not line:
                return self._dead(number, command, is_late=is_late)
            answer = json.loads(line)
            if "begin" not in answer:
                return {**answer, "is_dead": False}
            command = answer["begin"]
            limit = _STARTING_SECONDS if command == PREPARING else MOST_SECONDS + 5

    def _line(self, limit: float) -> tuple[bytes, bool]:
        """Return the next line, or none at the end; and whether it was late.

        Read from the descriptor: a buffered reader may take several lines in one read, and `select`
        does not know of the lines left in its buffer.
        """
        assert self._process.stdout is not None
        fd, deadline = self._process.stdout.fileno(), time.monotonic() + limit
        while b"\n" not in self._read:
            if not has_data(fd, max(deadline - time.monotonic(), 0)):
                return b"", True
            data = os.read(fd, 1 << 16)
            if not data:
                return b"", False
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line, False

    def _dead(self, number: int, command: str, *, is_late: bool) -> dict[str, Any]:
        self._process.kill()
        code = self._process.wait()
        kind = "took more than 60 s" if is_late else f"the process ended with {code}"
        self._log.seek(0)
        text = f"{kind}\n{self._log.read()[-2500:]}"
        self.end()
        failure = {
            "number": number,
            "command": command,
            "kind": kind,
            "text": text,
            "mutations": [],
        }
        return {"done": [], "failures": [failure], "is_dead": True}

    def end(self) -> None:
        """Let the process end, and remove its files."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self._place, ignore_errors=True)
