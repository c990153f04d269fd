"""Memory in which appended bytes wait to be written to their files.

Source: RocketMQ ``TransientStorePool`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import mmap
from collections import deque

logger = logging.getLogger(__name__)


class TransientStorePool:
    """A fixed number of buffers of the size of a segment; safe for any thread.

    A segment borrows one when it is made and gives it back when all of it was written to the
    file. RocketMQ locks them into memory (``mlock``), which asks for a privilege; here the system
    may swap them. Memory is taken as the buffers are filled for the first time.

    Parameters
    ----------
    size
        Buffers (``transientStorePoolSize``).
    file_size
        Bytes of each.
    """

    def __init__(self, size: int, file_size: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        maps = [mmap.mmap(-1, file_size, flags=flags) for _ in range(size)]
        self._free = deque(memoryview(memory) for memory in maps)
        self._is_closed = False

    @property
    def available(self) -> int:
        """Buffers that nobody has."""
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """Return a buffer; None when all are in use: then bytes go to the file directly."""
        try:
            return self._free.popleft()
        except IndexError:
            logger.warning("all buffers of the transient store pool are in use")
            return None

    def give_back(self, buffer: memoryview) -> None:
        """Take a buffer back, with whatever is in it."""
        if not self._is_closed:
            self._free.append(buffer)

    def close(self) -> None:
        """Let the memory go; buffers that are in use live on until they are given back."""
        self._is_closed = True
        self._free.clear()
