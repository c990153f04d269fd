# SPDX-License-Identifier: Apache-2.0
"""Peak memory of the processes below a JVM, from ``/proc`` (Linux)."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any, Callable, NamedTuple

_INTERVAL_SECONDS = 0.02
_PRIVATE = re.compile(r"^Private_(?:Clean|Dirty): +([0-9]+) kB$", re.MULTILINE)


class Peak(NamedTuple):
    """Largest resident bytes of any single worker: its own, and including mapped files."""

    anonymous: int
    total: int


def sample(java_pid: int, job: Callable[[], Any]) -> Peak:
    """Run a job and return the peak of the Python processes below a JVM."""
    return sample_phases(java_pid, job, lambda: "")[""]


def sample_phases(
    java_pid: int, job: Callable[[], Any], phase: Callable[[], str]
) -> dict[str, Peak]:
    """Run a job; return the peak of the Python processes below a JVM, by phase of the job.

    Parameters
    ----------
    java_pid
        The JVM.
    job
        The job to run.
    phase
        Returns the current phase of the job; another thread calls it repeatedly.
    """
    peaks = {phase(): Peak(0, 0)}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_INTERVAL_SECONDS):
            now = phase()
            for pid in descendants(java_pid):
                peak = peaks.get(now, Peak(0, 0))
                peaks[now] = Peak(*map(max, peak, resident_bytes(pid)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        job()
    finally:
        done.set()
        thread.join()
    return peaks


def descendants(root_pid: int) -> list[int]:
    """Return all descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = _status(int(entry.name)).get("PPid")
            if parent is not None:
                children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    todo = [root_pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def resident_bytes(pid: int) -> tuple[int, int]:
    """Return anonymous and total resident bytes of a process; zeros if it has ended."""
    status = _status(pid)
    kilobytes = [status.get(name, "0").split()[0] for name in ("RssAnon", "VmRSS")]
    return int(kilobytes[0]) * 1024, int(kilobytes[1]) * 1024


def private_bytes(pid: int) -> int:
    """Return the resident bytes of a process that no other process shares."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    return sum(int(kilobytes) for kilobytes in _PRIVATE.findall(text)) * 1024


def command_line(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.replace("\0", " ").strip()


def _status(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:  # the process ended
        return {}
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}
