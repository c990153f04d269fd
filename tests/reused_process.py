# SPDX-License-Identifier: Apache-2.0
"""A child process that runs one function after the other, each with a time limit.

Starting Python for each function would take most of the time of a test that makes a thousand calls.
And a function that hangs or takes all memory must not run in the process of the tests.
"""

from __future__ import annotations

import importlib
import json
import os
import selectors
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

_ROOT = Path(__file__).parent.parent


class ReusedProcess:
    """Calls functions by name in a child; a context manager."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def call(self, function: Any, *arguments: Any, seconds: float = 60) -> Any:
        """Return the result of a module's function; arguments and result pass as JSON.

        AssertionError if it raises, takes longer than ``seconds``, or ends the process.
        """
        child = self._child = self._child or _started()
        assert child.stdin is not None
        assert child.stdout is not None
        what = f"{function.__name__}{arguments}"
        line = json.dumps([function.__module__, function.__name__, arguments])
        child.stdin.write(line.encode() + b"\n")
        child.stdin.flush()
        if not has_data(child.stdout.fileno(), seconds):
            self.close()
            raise AssertionError(f"{what} did not end within {seconds} s")
        answer = child.stdout.readline()
        if not answer:
            self.close()
            raise AssertionError(f"{what} ended the process: {child.returncode}")
        value, error = json.loads(answer)
        assert not error, f"{what}:\n{error}"
        return value

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def __enter__(self) -> ReusedProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def has_data(fd: int, seconds: float) -> bool:
    """Wait for bytes or the end of a pipe; unlike `select`, also for descriptors above 1,023."""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.reused_process"],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of functions is no answer
    for line in sys.stdin:
        module, name, arguments = json.loads(line)
        try:
            answer = [getattr(importlib.import_module(module), name)(*arguments), ""]
        except BaseException:
            answer = [None, traceback.format_exc()]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _main()
