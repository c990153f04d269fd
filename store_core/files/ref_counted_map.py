"""The map of a file that is unmapped and closed when nobody holds it any more.

Source: RocketMQ ``ReferenceResource`` (release 5.3.3).
"""

from __future__ import annotations

import mmap
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import StoreReadError, StoreWriteError

if TYPE_CHECKING:
    import numpy.typing as npt


class RefCountedMap:
    """Counts who uses a file, from any thread.

    Parameters
    ----------
    fd
        Its open descriptor; closed with the map, which is made at the first use.
    """

    def __init__(self, path: str, file_size: int, fd: int) -> None:
        self.path, self.file_size = path, file_size
        self._fd = fd
        self._map: mmap.mmap | None = None
        self._bytes: npt.NDArray[np.uint8] | None = None
        self._holds, self._available = 0, True
        self._lock = threading.Lock()

    @property
    def is_available(self) -> bool:
        """Not closed."""
        return self._available

    @property
    def is_held(self) -> bool:
        """Whether a reader holds the map."""
        return self._holds > 0

    def hold(self) -> bool:
        """Keep the map until `release`; False when the file was closed."""
        with self._lock:
            if self._available:
                self._holds += 1
            return self._available

    def release(self) -> None:
        """Give a hold back; the last one of a closed file unmaps it."""
        with self._lock:
            self._holds -= 1
            if not self._available and self._holds == 0:
                self._unmap()

    def close(self) -> None:
        """Close for new holds; unmapped at once or with the last release. Flushes nothing."""
        with self._lock:
            if self._available:
                self._available = False
                if self._holds == 0:
                    self._unmap()

    def descriptor(self) -> int:
        """Return the open descriptor; writers do not race with `close`, others hold."""
        if self._fd < 0:
            raise StoreWriteError("was closed", self.path)
        return self._fd

    def mapped(self) -> npt.NDArray[np.uint8]:
        """Return the whole file as a read-only array; only while held."""
        with self._lock:
            if self._bytes is None:
                try:
                    self._map = mmap.mmap(self._fd, self.file_size, access=mmap.ACCESS_READ)
                except (OSError, ValueError) as err:  # ValueError: the file became shorter
                    raise StoreReadError(f"cannot be mapped: {err}", self.path) from err
                self._bytes = np.frombuffer(self._map, np.uint8)
            return self._bytes

    def _unmap(self) -> None:
        self._bytes = None
        if self._map is not None:
            # BufferError: a view outlived its hold; the map lives as long, then it is collected.
            with suppress(BufferError):
                self._map.close()
            self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
