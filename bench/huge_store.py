# SPDX-License-Identifier: Apache-2.0
"""Time and memory for queries of a store of 1 TiB, each in a process of its own.

``python -m bench.huge_store DIRECTORY`` creates the store if it does not exist.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.make_huge_store import HugeSpec, key_of, make_huge_store, topic_of

_SINCE, _UNTIL = "2023-11-14T22:20:00Z", "2023-11-14T22:21:00Z"
_WITHOUT_COMMAND = {
    "open for reading": "",
    "open, and the ranges of all 10,000 queues": "[s.queue_range(*q) for q in s.queue_paths]",
}
_OPEN = """
from store_core.snapshot.store_snapshot import StoreSnapshot
s = StoreSnapshot({root!r})
"""
_SCAN = """
from rmqsource.options.source_options import options_for
from rmqsource.scan.predicate import from_options
from rmqsource.scan.read_columns import plan_read
from rmqsource.scan.message_reader import read_split
from rmqsource.scan.message_batches import ReadRequest
options = options_for({root!r})
[plan] = plan_read(options, from_options(options))
request = ReadRequest.from_options(options, from_options(options), ("topic", "queue_offset"))
rows = sum(len(b["topic"]) for split in plan.splits for b in read_split(split, request))
assert rows == {messages}, rows
"""


class _Taken(NamedTuple):
    wall_s: float
    cpu_s: float
    memory_mb: float


def main(root: Path) -> None:
    """Measure each query once, after a run that fills the system's cache."""
    spec = HugeSpec()
    if not root.exists():
        make_huge_store(root, spec)
    print(f"{'what':<52}{'wall s':>8}{'CPU s':>8}{'MB':>7}")
    for what, arguments in _questions(str(root), spec):
        _run(arguments)
        taken = _run(arguments)
        print(f"{what:<52}{taken.wall_s:8.2f}{taken.cpu_s:8.2f}{taken.memory_mb:7.0f}", flush=True)


def _questions(root: str, spec: HugeSpec) -> list[tuple[str, list[str]]]:
    topic, number = topic_of(0), spec.topics * 4 * 100
    opened = _OPEN.format(root=root)
    found = [(what, ["-c", opened + text]) for what, text in _WITHOUT_COMMAND.items()]
    scan = _SCAN.format(root=root, messages=spec.messages)
    found.append(("scan of all messages, two columns, one task at a time", ["-c", scan]))
    commands = {
        "info": ["info"],
        "topics": ["topics"],
        "lag": ["lag"],
        "queues": ["queues"],
        "segments": ["segments"],
        "plan by topic": ["plan", "--topic", topic],
        "plan by key": ["plan", "--topic", topic, "--key", key_of(number)],
        "plan by time": ["plan", "--since", _SINCE, "--until", _UNTIL],
        "plan by topic and time": ["plan", "--topic", topic, "--since", _SINCE, "--until", _UNTIL],
        "check": ["check"],
    }
    for what, (command, *options) in commands.items():
        found.append((what, ["-m", "rmqsource.cli", command, root, *options]))
    return found


def _run(arguments: list[str]) -> _Taken:
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    taken = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{arguments}: exit code {process.returncode}")
    return _Taken(taken, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m bench.huge_store", description=__doc__)
    _parser.add_argument("directory", type=Path)
    main(_parser.parse_args().directory)
