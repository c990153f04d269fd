# SPDX-License-Identifier: Apache-2.0
"""One object of a remote filesystem, read in exact ranges by any number of threads."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from store_core.errors import FileVanishedError, StoreReadError
from store_core.files.remote_requests import ShortReadError, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK_BYTES = 1 << 16
"""Small reads fetch a whole block: over a network the request costs most."""


_numbers = itertools.count()


class ObjectVersion(NamedTuple):
    """Size and time of an object, which show whether it is still the one that was listed.

    ``modified_ms`` is 0 if the filesystem reports no time; for an object S3 reports whole seconds.
    """

    size: int
    modified_ms: int

    def check(self, found: ObjectVersion | None, path: str) -> None:
        """Raise `StoreReadError` if the object is not this one, or is gone (None)."""
        if found is None:
            raise FileVanishedError("the object was deleted while it was read", path)
        if found.size != self.size or not _is_same_time(self.modified_ms, found.modified_ms):
            raise StoreReadError(
                f"the object was changed while it was read: it had {self.size} bytes "
                f"({_time(self.modified_ms)}), now it has {found.size} "
                f"({_time(found.modified_ms)}). Read a copy that no one writes to, or read again",
                path,
            )


def _is_same_time(one_ms: int, other_ms: int) -> bool:
    """Return whether two times may be equal; a server may report one of them in seconds."""
    if not one_ms or not other_ms:
        return True
    in_seconds = one_ms % 1000 == 0 or other_ms % 1000 == 0
    return abs(one_ms - other_ms) < (1000 if in_seconds else 1)


def _time(modified_ms: int) -> str:
    return f"modified at {modified_ms} ms" if modified_ms else "unknown time"


class RemoteObject:
    """An opened object.

    Parameters
    ----------
    is_shared
        Threads may read from one handle at the same time; else each uses its own.

    Raises
    ------
    StoreReadError
        It cannot be opened.
    """

    def __init__(
        self,
        path: str,
        open_handle: Callable[[], Any],
        hide: Callable[[str], str] = str,
        *,
        is_shared: bool = True,
    ) -> None:
        self.path, self._open_handle, self._hide = path, open_handle, hide
        self._is_shared = is_shared
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self.number = next(_numbers)  # unlike an id, never reused
        self.size = request(self._first_handle, path, hide)

    def _first_handle(self) -> int:
        handle = self._open_handle()
        size = int(handle.size())
        self._idle = [handle]
        return size

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)``, which are inside the object.

        Raises
        ------
        StoreReadError
            They cannot be read; the object has become shorter, or is gone.
        """
        return request(lambda: self._read(start, stop), self.path, self._hide)

    def _read(self, start: int, stop: int) -> bytes:
        with self._handle() as handle:
            data: bytes = handle.read_at(stop - start, start)
        if len(data) < stop - start:
            text = f"requested bytes {start} to {stop}, received {len(data)}"
            raise ShortReadError(f"{text}: the object has become shorter, or the connection broke")
        return data

    @contextmanager
    def _handle(self) -> Iterator[Any]:
        """Lend a handle; one that failed is not used again."""
        with self._lock:
            shared = self._idle[-1] if self._idle else None
            handle = shared if self._is_shared or shared is None else self._idle.pop()
        if handle is None:
            handle = self._open_again()
        try:
            yield handle
        except BaseException:
            with self._lock:
                if handle in self._idle:
                    self._idle.remove(handle)
            raise
        with self._lock:
            if handle not in self._idle:
                self._idle.append(handle)

    def _open_again(self) -> Any:
        handle = self._open_handle()
        size = int(handle.size())
        if size != self.size:
            ObjectVersion(self.size, 0).check(ObjectVersion(size, 0), self.path)
        return handle

    def close(self) -> None:
        """Close the handles that no thread reads from."""
        with self._lock:
            handles, self._idle = self._idle, []
        for handle in handles:
            with suppress(OSError):
                handle.close()


class Blocks:
    """A cache of the blocks that were read last; for any number of threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def get(self, remote: RemoteObject, number: int) -> bytes | None:
        """Return a block of an object, or None if it is not cached."""
        with self._lock:
            block = self._blocks.get((remote.number, number))
            if block is not None:
                self._blocks.move_to_end((remote.number, number))
            return block

    def put(self, remote: RemoteObject, number: int, block: bytes) -> None:
        """Cache a block."""
        with self._lock:
            self._blocks[remote.number, number] = block
            while len(self._blocks) > self._limit:
                self._blocks.popitem(last=False)
