# SPDX-License-Identifier: Apache-2.0
"""Create segments before they are needed.

Source: RocketMQ ``AllocateMappedFileService`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections import deque
from typing import TYPE_CHECKING

from store_core.config.message_store_config import SYNC_FLUSH
from store_core.errors import StoreWriteError
from store_core.files.mapped_file import OS_PAGE_BYTES, MappedFile
from store_core.services.service_thread import ServiceThread

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig

logger = logging.getLogger(__name__)
_INTERVAL_MS = 1000
_WAIT_S = 5.0


class AllocateMappedFileService(ServiceThread):
    """Creates the commit log's next segment in advance, warmed up if ``warmMapedFileEnable``.

    `allocate` is the function for ``MappedFileQueue.allocate``. A running store has one segment of
    zeros after the one that is written to; `shutdown` deletes it. A crash leaves it on the disk,
    and recovery deletes it.

    Parameters
    ----------
    pool
        Lends segments their write buffers; if None, they have none.
    """

    repeats_while_busy = True

    def __init__(
        self, file_size: int, config: MessageStoreConfig, pool: TransientStorePool | None = None
    ) -> None:
        super().__init__(_INTERVAL_MS)
        self._file_size, self._pool = file_size, pool
        self._warms = config.warm_maped_file_enable
        pages = config.flush_least_pages_when_warm_maped_file
        is_sync = config.flush_disk_type == SYNC_FLUSH
        self._sync_bytes = pages * OS_PAGE_BYTES if is_sync else None
        self._changed = threading.Condition()
        self._wanted: str | None = None
        self._in_progress: str | None = None
        self._ready: MappedFile | None = None

    def allocate(self, path: str, next_path: str) -> MappedFile:
        """Return the new segment, and let the thread create the next one.

        If the segment is not ready, RocketMQ waits up to 5 s for its thread. Here only a segment
        that is being created is waited for; otherwise it is created immediately, without warm-up.

        Raises
        ------
        StoreWriteError
            The segment cannot be created, or not within 5 s.
        """
        with self._changed:
            self._wanted = None
            idle = self._changed.wait_for(lambda: self._in_progress is None, _WAIT_S)
            if not idle:
                raise StoreWriteError(f"was not created within {_WAIT_S:g} s; put again", path)
            file, self._ready = self._ready, None
        if file is not None and file.path != path:  # the log continues on another disk
            file.destroy()
            file = None
        file = file or self._make(path)
        if self.is_running:
            with self._changed:
                self._wanted = next_path
            self.wakeup()
        return file

    def run_once(self) -> bool:
        """Create the next segment if one was requested; return whether it was created."""
        with self._changed:
            path, self._wanted = self._wanted, None
            self._in_progress = path
        if path is None:
            return False
        file = None
        try:
            file = self._make(path)
            if self._warms:
                file.warm_up(self._sync_bytes)
        except StoreWriteError:
            if file is not None:
                file.destroy()
            raise
        else:
            with self._changed:
                self._ready = file
            return True
        finally:
            with self._changed:
                self._in_progress = None
                self._changed.notify_all()

    def finish(self) -> None:
        """Delete the unused segment."""
        with self._changed:
            file, self._ready, self._wanted = self._ready, None, None
        if file is not None:
            file.destroy()

    def _make(self, path: str) -> MappedFile:
        if self._pool is None:
            return MappedFile(path, self._file_size, create=True)
        buffer = self._pool.borrow()
        try:
            return MappedFile(
                path,
                self._file_size,
                create=True,
                write_buffer=buffer,
                give_back=self._pool.give_back,
            )
        except StoreWriteError:
            if buffer is not None:
                self._pool.give_back(buffer)
            raise


# Source: RocketMQ ``TransientStorePool`` (release 5.3.3).
class TransientStorePool:
    """A fixed number of segment-sized buffers; safe for any thread.

    A segment borrows one when it is created and gives it back once all of it is written to the
    file. RocketMQ locks them into memory (``mlock``), which requires a privilege; here the system
    may swap them. They take up memory only when they are first filled.
    """

    def __init__(self, size: int, file_size: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        maps = [mmap.mmap(-1, file_size, flags=flags) for _ in range(size)]
        self._free = deque(memoryview(memory) for memory in maps)
        self._is_closed = False

    @property
    def available(self) -> int:
        """Number of buffers that are not in use."""
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """Return a buffer; None if all are in use: the segment then writes directly to its file."""
        try:
            return self._free.popleft()
        except IndexError:
            logger.warning("all buffers of the transient store pool are in use: a segment has none")
            return None

    def give_back(self, buffer: memoryview) -> None:
        """Take a buffer back; its content does not matter."""
        if not self._is_closed:
            self._free.append(buffer)

    def close(self) -> None:
        """Free the memory; buffers in use stay valid until they are given back."""
        self._is_closed = True
        self._free.clear()
