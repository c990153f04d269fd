# SPDX-License-Identifier: Apache-2.0
"""A process that runs one store after the other: ``python -m tests.hostile.worker``.

It reads one JSON object a line (seed, number), reports each command as it begins, and at the end
the result of all.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer.main

from tests.hostile.running import PREPARING, run_store

_MOST_DATA_BYTES = 6 << 30
_TELL_AFTER_SECONDS = 50


def main() -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # only answers may go to the pipe
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_DATA_BYTES, _MOST_DATA_BYTES))
    typer.main.get_command = functools.cache(typer.main.get_command)  # type: ignore[assignment]
    os.fsync = os.fdatasync = lambda _: None  # type: ignore[assignment]  # these stores are copies

    def say(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")

    for line in sys.stdin:
        task = json.loads(line)

        def begin(command: str) -> None:
            faulthandler.cancel_dump_traceback_later()
            if command != PREPARING:
                faulthandler.dump_traceback_later(_TELL_AFTER_SECONDS, exit=False)
            say(begin=command)

        done, failures = run_store(task["seed"], task["number"], Path(task["place"]), begin=begin)
        faulthandler.cancel_dump_traceback_later()
        say(done=[asdict(one) for one in done], failures=[asdict(one) for one in failures])


if __name__ == "__main__":
    main()
