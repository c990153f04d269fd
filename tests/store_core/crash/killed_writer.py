"""A process that starts writers and lets them die: ``python -m tests.store_core.crash.killed_writer``.

Reads one JSON object a line and answers each with the process id of a writer, which is a fork: so
a hundred of them do not import everything a hundred times.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from store_core import MessageStore
from tests.store_core.crash.messages import config_of, put_some

ACKNOWLEDGEMENT = struct.Struct("<qq?")
"""First number, number behind the last, acknowledged (else about to be put)."""
_CALLS = ("pwrite", "ftruncate", "fdatasync", "fsync", "unlink", "open", "mkdir", "replace")


def main() -> None:
    """Serve until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for line in sys.stdin:
        task = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                write(**task)
            finally:
                os._exit(3)  # the writer only ends by a signal, or when it has put all
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def write(  # noqa: PLR0913
    root: str, seed: int, first: int, acknowledgements: str, die_after: int, puts: int
) -> None:
    """Open the store and put messages; stop it cleanly now and then."""
    generator = random.Random(seed)
    log = os.open(acknowledgements, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if die_after >= 0:
        _die_after(die_after, generator)
    config = config_of(Path(root), **json.loads(os.environ.get("CRASH_SETTINGS", "{}")))
    number = first
    while puts > 0:
        store = MessageStore(config)
        store.load()
        store.start()
        for _ in range(min(puts, generator.randrange(5, 60))):
            os.write(log, ACKNOWLEDGEMENT.pack(number, number + 12, False))
            numbers = put_some(store, number, generator)
            for put in numbers:
                os.write(log, ACKNOWLEDGEMENT.pack(put, put + 1, True))
            number = numbers[-1] + 1
            puts -= 1
        store.shutdown()
    os._exit(0)


def _die_after(calls: int, generator: random.Random) -> None:
    """Kill this process at the n-th call that changes files: before, after or half way."""
    left = calls

    def dying(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                moment = generator.randrange(3)
                if name == "pwrite" and moment == 1:
                    call(
                        given[0],
                        memoryview(given[1])[: generator.randrange(len(given[1]))],
                        given[2],
                    )
                elif moment == 2:
                    call(*given, **named)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*given, **named)

        return counted

    for name in _CALLS:
        setattr(os, name, dying(name, getattr(os, name)))


if __name__ == "__main__":
    main()
