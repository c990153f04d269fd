# SPDX-License-Identifier: Apache-2.0
"""One of two processes that run at the same time, such as a master and its slave."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIGURE = '{"figure"'
_KEPT_LINES = 30
_END_SECONDS = 60


class SideError(Exception):
    """A benchmark process failed, or did not print the expected output."""


class SideProcess:
    """A program that prints figures, and runs until its standard input ends.

    Parameters
    ----------
    command
        Program and arguments; lines that begin with ``{"figure"`` are figures, others its log.
    env
        Its environment; this process's environment if None.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._name = " ".join(command[-4:])
        self._figures: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._log: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=env,
        )
        self._reader = threading.Thread(target=self._read, name="side-process", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def figure(self, name: str, timeout_s: float = 300) -> dict[str, Any]:
        """Wait for a figure and return it; earlier figures are skipped.

        Raises
        ------
        SideError
            The process ended without printing it, or did not print it in time.
        """
        while True:
            try:
                found = self._figures.get(timeout=timeout_s)
            except queue.Empty:
                raise SideError(self._told(f"no figure {name!r} in {timeout_s:g} s")) from None
            if found is None:
                raise SideError(self._told(f"ended without figure {name!r}"))
            if found["figure"] == name:
                return found

    def close(self) -> None:
        """End the process by closing its input; it has a minute to stop."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def __enter__(self) -> SideProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(FIGURE):
                self._figures.put(json.loads(line))
            else:
                self._log.append(line)
        self._figures.put(None)

    def _told(self, what: str) -> str:
        return f"{self._name}: {what}; it said: {''.join(self._log)[-2000:]}"


def python_side(module: str, *arguments: str | int) -> SideProcess:
    """Start a module of the benchmarks with this Python, precompiled like an installed module.

    The first start compiles the modules and keeps the result.
    """
    own = "PYTHONDONTWRITEBYTECODE"
    compiled = {name: value for name, value in os.environ.items() if name != own}
    return SideProcess([sys.executable, "-m", module, *map(str, arguments)], compiled)


def tell(name: str, **values: float) -> None:
    """Print a figure, in a side process."""
    print(json.dumps({"figure": name, **values}), flush=True)


def until_input_ends() -> None:
    """Wait for the end of standard input, the signal to stop."""
    while sys.stdin.buffer.read(1 << 10):
        pass


def parse_figures(output: str) -> list[dict[str, Any]]:
    """Return the figures among the lines of a log."""
    return [json.loads(line) for line in output.splitlines() if line.startswith(FIGURE)]
