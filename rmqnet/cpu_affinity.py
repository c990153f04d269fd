# SPDX-License-Identifier: Apache-2.0
"""Keeps a process whose threads take turns on one core."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this thread, and threads that it starts in the block, on one core.

    A broker's threads run one at a time (Python's global lock), and each message passes through
    several. Waking the next thread on another core takes much longer than on the same one: spread
    over two cores, a broker accepts messages at two thirds of the rate, and they take twice as long
    to arrive. Use it only in a process of its own, as other libraries of an application may start
    threads, too. It does nothing outside Linux, or if the system does not allow it.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    _keep_to({cores[os.getpid() % len(cores)]})  # spread several brokers over the cores
    try:
        yield
    finally:
        _keep_to(before)


def _keep_to(cores: set[int]) -> None:
    with suppress(OSError):  # forbidden to a service, or cores were removed
        os.sched_setaffinity(0, cores)
