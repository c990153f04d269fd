"""Force a file to the disk while it is still being written, so that little is left at its end."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from store_core.files.file_writing import sync_data

_EARLY_BYTES = 32 << 20


class EarlySync:
    """Forces what was written so far each time that it is much, in a thread of its own.

    A disk takes what it is given into memory of its own, and only when it is told to force that it
    begins to: without this it has nothing to do while a file is written, and whoever waits for the
    file at its end waits for all of it. What was written last is still the writer's to force.

    One file after the other; `wait` lies between two of them, and before a file is closed.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "early-sync")
        self._under_way: Future[None] | None = None
        self._written = 0

    def wrote(self, fd: int, length: int) -> None:
        """Take note of bytes that were written to a file.

        Raises
        ------
        OSError
            What was written before could not be forced.
        """
        self._written += length
        is_busy = self._under_way is not None and not self._under_way.done()
        if self._written < _EARLY_BYTES or is_busy:
            return
        self.wait()
        self._under_way = self._pool.submit(sync_data, fd)

    def wait(self) -> None:
        """Wait until nothing is under way.

        Raises
        ------
        OSError
            It failed. The system says so once: forcing the file again may succeed, and means
            nothing then.
        """
        self._written = 0
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def close(self) -> None:
        """End the thread; what failed meanwhile is nobody's any more."""
        with suppress(OSError):
            self.wait()
        self._pool.shutdown()
