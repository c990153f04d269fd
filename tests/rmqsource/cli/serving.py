# SPDX-License-Identifier: Apache-2.0
"""``rocketmq-store serve`` in a process of its own, as a person starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

DEADLINE_S = 60


class Serving:
    """Serves a store until it is stopped; leaving the block ends it in any case.

    Parameters
    ----------
    path
        The store.
    more
        More options of the command.
    deadline_s
        Time limit, after which the command is killed.

    Attributes
    ----------
    process
        The process of the command.
    first
        The first line of output: addresses, and the state.
    """

    def __init__(self, path: Path, *more: object, deadline_s: float = DEADLINE_S) -> None:
        python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "rmqsource.cli", "serve", str(path)),
                *("--format", "json", *map(str, more)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": python_path},
        )
        self.timer = threading.Timer(deadline_s, self.process.kill)
        self.timer.start()
        self.first = self.line()

    def line(self) -> dict[str, Any]:
        """Return the next line of output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1])
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.timer.cancel()
        self.process.kill()
        self.process.communicate()

    def stop(self) -> tuple[int, list[Any], str]:
        """Stop it with SIGTERM; return exit code, the remaining lines, and the text for people."""
        self.process.send_signal(signal.SIGTERM)  # Ctrl-C is in the test with a terminal
        out, err = self.process.communicate()
        return self.process.returncode, [json.loads(line) for line in out.splitlines()], err
