from __future__ import annotations

import os
import subprocess
import sys

from bench.worker_memory import command_line, descendants, private_bytes, resident_bytes, sample

HOLD = "data = b'x' * 50_000_000; print('ready', flush=True); input()"


def test_a_childs_memory_is_seen():
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        assert child.stdout.readline() == b"ready\n"
        assert child.pid in descendants(os.getpid())
        anonymous, total = resident_bytes(child.pid)
        assert 50_000_000 < anonymous <= total
        assert 50_000_000 < private_bytes(child.pid) <= total
        assert HOLD in command_line(child.pid)

        def job() -> None:
            subprocess.run(["sleep", "0.2"], check=True)

        assert sample(os.getpid(), job).anonymous > 50_000_000
        child.stdin.close()
    assert resident_bytes(2**22 + 1) == (0, 0)
    assert command_line(2**22 + 1) == ""
