"""A filesystem that answers as S3 does: it notes each request, which may take time and fail."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from pyarrow.fs import FileInfo, FileSelector, LocalFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES_A_LISTING = 1000


class Request(NamedTuple):
    """One request: ``list``, ``stat``, ``open`` or ``read``; when it was under way (seconds)."""

    kind: str
    path: str
    start: int
    length: int
    begun: float
    ended: float


class ObjectStore:
    """A filesystem that lists and opens as S3 does; each request is noted, may take time and fail.

    Parameters
    ----------
    delay_seconds
        Of each request.

    Attributes
    ----------
    requests
        All, in the order in which they ended.
    before
        Called with kind, path, start and length before each; what it raises is the answer.
    shorten
        Called with path, start and data of each read: what comes of it.
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
        """Note a request; wait, and fail where it shall."""
        begun = time.monotonic()
        time.sleep(self._delay_seconds)
        try:
            self.before(kind, path, start, length)
        finally:
            with self._lock:
                noted = Request(kind, path, start, length, begun, time.monotonic())
                self.requests.append(noted)

    def get_file_info(self, what: str | FileSelector) -> Any:
        """Return what is known of a path, or of what a selector picks."""
        if isinstance(what, str):
            found: FileInfo = self._local.get_file_info(what)
            self.ask("stat", what)
            if not found.is_file:
                self.ask("list", what)  # no object has that name: does one begin with it?
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
        """Return how many bytes were fetched of files whose path holds a text."""
        return sum(r.length for r in self.requests if r.kind == "read" and below in r.path)

    def longest_chain(self) -> int:
        """Return how many requests at most came one after the other, each after one had ended."""
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
