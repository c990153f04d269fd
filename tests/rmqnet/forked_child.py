# SPDX-License-Identifier: Apache-2.0
"""A child process that has the open files of this one and does nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def idle_child() -> Iterator[None]:
    """Fork a child that lives until the block ends."""
    read_end, write_end = os.pipe()
    process = os.fork()
    if process == 0:  # pragma: no cover
        os.close(write_end)
        os.read(read_end, 1)  # until the parent is done
        os._exit(0)
    try:
        yield
    finally:
        os.close(read_end)
        os.close(write_end)
        os.waitpid(process, 0)
