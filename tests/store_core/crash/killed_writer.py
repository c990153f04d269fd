# SPDX-License-Identifier: Apache-2.0
"""A process that starts writers and lets them die.

``python -m tests.store_core.crash.killed_writer``
Reads one JSON object a line and answers each with the process id of a writer. A writer is a fork,
so that a hundred of them do not import everything a hundred times.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from store_core import MessageStore
from store_core.files import mapped_file
from store_core.layout import CHECKPOINT_FILE_BYTES
from tests.store_core.crash.messages import config_of, put_some

ACKNOWLEDGEMENT = struct.Struct("<qq?")
"""First number, number after the last, and whether they are acknowledged or about to be put."""
_START_MS = 1_700_000_000_000
_CALLS = (
    "pwrite", "ftruncate", "posix_fallocate", "fdatasync", "fsync", "unlink", "open", "mkdir",
    "replace", "link",
)  # fmt: skip


def serve(work: Callable[..., None]) -> None:
    """Let a new process do some work for each line, until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for line in sys.stdin:
        task = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                work(**task)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(3)  # the writer ends only by a signal, or when it has put all
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def write(
    root: str,
    settings: dict[str, Any],
    seed: int,
    first: int,
    acknowledgements: str,
    die_after: int,
    puts: int,
) -> None:
    """Open the store and put messages; stop it cleanly now and then."""
    generator = random.Random(seed)
    log = os.open(acknowledgements, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if die_after >= 0:
        Death(die_after, generator).install()
    config = config_of(Path(root), **settings)
    number = first
    while puts > 0:
        store = MessageStore(config, clock=fast_clock_ms)
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


def fast_clock_ms() -> int:
    """Return a time that runs a thousand times as fast: queues and checkpoint flush often."""
    return _START_MS + time.monotonic_ns() // 1000


class Death:
    """Kills this process at the n-th call that changes files: before it, after it or half way."""

    def __init__(self, calls: int, generator: random.Random) -> None:
        self._left, self._generator = calls, generator
        self._lock = threading.Lock()

    def around(self, call: Callable[..., Any], half: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function like ``call``; its last call may do nothing, or only ``half``."""

        def counted(*given: Any, **named: Any) -> Any:
            with self._lock:
                self._left -= 1
                is_last = self._left == 0
            if is_last:
                moment = self._generator.randrange(3)
                if moment:
                    (half if moment == 1 else call)(*given, **named)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*given, **named)

        return counted

    def install(self) -> None:
        """Count calls of module ``os`` and writes to the map of a segment."""
        pwrite, put = os.pwrite, mmap.mmap.__setitem__
        cut = self._generator.randrange

        def half_pwrite(fd: int, data: Any, at: int) -> None:
            is_one_sector = at == 0 and len(data) == CHECKPOINT_FILE_BYTES
            pwrite(fd, memoryview(data)[: 0 if is_one_sector else cut(len(data) + 1)], at)

        def half_put(window: Any, part: slice, data: Any) -> None:
            kept = cut(len(data) + 1)
            put(window, slice(part.start, part.start + kept), data[:kept])

        class Window(mmap.mmap):
            __setitem__ = self.around(put, half_put)

        constants = {each: getattr(mmap, each) for each in ("ALLOCATIONGRANULARITY", "ACCESS_READ")}
        names = SimpleNamespace(mmap=Window, **constants)
        mapped_file.mmap = names  # type: ignore[assignment]
        for name in _CALLS:
            call = getattr(os, name)
            half = half_pwrite if name == "pwrite" else call
            setattr(os, name, self.around(call, half))


if __name__ == "__main__":
    serve(write)
