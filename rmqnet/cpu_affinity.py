"""A process whose threads take turns stays on one core."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this thread, and those that it starts meanwhile, on one core.

    Of the threads of a broker one runs at a time (Python's global lock), and each message passes
    through several. To wake the next one on another core takes much longer than to go on with it on
    the same: spread over two cores a broker takes in messages at two thirds of the rate, and they
    arrive after twice the time. For a process of its own: in an application, other libraries may
    start threads, too. Elsewhere than on Linux, or where the system does not allow it, nothing
    happens.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    _keep_to({cores[os.getpid() % len(cores)]})  # not all brokers on the first
    try:
        yield
    finally:
        _keep_to(before)


def _keep_to(cores: set[int]) -> None:
    with suppress(OSError):  # a service's list of system calls, cores that were taken away
        os.sched_setaffinity(0, cores)
