# SPDX-License-Identifier: Apache-2.0
"""A filesystem that behaves like S3, records each request, and can delay or fail requests."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from pyarrow.fs import FileInfo, FileSelector, LocalFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES_A_LISTING = 1000


class Request(NamedTuple):
    """One request (``list``, ``stat``, ``open`` or ``read``) with its start and end in seconds."""

    kind: str
    path: str
    start: int
    length: int
    begun: float
    ended: float


class ObjectStore:
    """A filesystem that lists and opens files like S3; it records, delays and fails requests.

    Parameters
    ----------
    delay_seconds
        Duration of each request.

    Attributes
    ----------
    requests
        All requests, in the order in which they ended.
    before
        Called with kind, path, start and length before each request; the request raises its error.
    shorten
        Called with path, start and data of each read; returns the data that the read gets.
    """

    type_name = "s3"

    def __init__(self, delay_seconds: float = 0.0) -> None:
        self._local = LocalFileSystem()
        self._delay_seconds = delay_seconds
        self._lock = threading.Lock()
        self.requests: list[Request] = []
        self.before: Callable[[str, str, int, int], None] = lambda *_: None
        self.shorten: Callable[[str, int, bytes], bytes] = lambda _path, _start, data: data

    def ask(self, kind: str, path: str, start: int = 0, length: int = 0) -> None:
        """Record a request; wait, and fail if ``before`` raises an error."""
        begun = time.monotonic()
        time.sleep(self._delay_seconds)
        try:
            self.before(kind, path, start, length)
        finally:
            with self._lock:
                noted = Request(kind, path, start, length, begun, time.monotonic())
                self.requests.append(noted)

    def get_file_info(self, what: str | FileSelector) -> Any:
        """Return information about a path, or about the files that a selector matches."""
        if isinstance(what, str):
            found: FileInfo = self._local.get_file_info(what)
            self.ask("stat", what)
            if not found.is_file:
                self.ask("list", what)  # no object has this name; check whether it is a prefix
            return found
        infos = self._local.get_file_info(what)
        for _ in range(0, max(len(infos), 1), _NAMES_A_LISTING):
            self.ask("list", what.base_dir)
        return infos

    def open_input_file(self, path: str) -> _OpenedObject:
        """Open a file."""
        self.ask("open", path)
        return _OpenedObject(self, path, self._local.open_input_file(path))

    def bytes_read(self, below: str = "") -> int:
        """Return the number of bytes fetched from files whose path contains a text."""
        return sum(r.length for r in self.requests if r.kind == "read" and below in r.path)

    def longest_chain(self) -> int:
        """Return the length of the longest chain of requests that waited for one another."""
        count, ended = 0, 0.0
        for request in sorted(self.requests, key=lambda r: r.ended):
            if request.begun >= ended:
                count, ended = count + 1, request.ended
        return count


class _OpenedObject:
    def __init__(self, store: ObjectStore, path: str, handle: Any) -> None:
        self._store, self._path, self._handle = store, path, handle

    def size(self) -> int:
        size: int = self._handle.size()
        return size

    def read_at(self, length: int, start: int) -> bytes:
        self._store.ask("read", self._path, start, length)
        return self._store.shorten(self._path, start, self._handle.read_at(length, start))

    def close(self) -> None:
        self._handle.close()
