# SPDX-License-Identifier: Apache-2.0
"""Make the n-th call on files below a directory fail as a failing disk would."""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

_BY_PATH = (
    "open", "stat", "lstat", "listdir", "scandir", "mkdir", "rmdir", "unlink", "remove", "rename",
    "replace", "link", "symlink", "truncate", "utime", "readlink", "access",
)  # fmt: skip
_BY_DESCRIPTOR = (
    "fstat", "read", "pread", "preadv", "write", "pwrite", "pwritev", "writev", "fsync",
    "fdatasync", "ftruncate", "posix_fallocate",
)  # fmt: skip
_READING = {"stat", "lstat", "listdir", "scandir", "readlink", "access", "fstat", "read", "pread"}
_READING |= {"preadv", "mmap"}
_NAMING = {"open", "stat", "lstat", "listdir", "scandir", "mkdir", "rename", "replace", "unlink"}
_NAMING |= {"remove", "rmdir", "link", "symlink", "truncate"}
_FULL = {"open", "mkdir", "write", "pwrite", "writev", "pwritev", "ftruncate", "posix_fallocate"}
_FULL |= {"rename", "replace", "link", "fsync", "fdatasync"}


class Call(NamedTuple):
    """A call on a file: its function, the path, and whether it could write."""

    name: str
    path: str
    writes: bool


def codes_of(call: Call) -> list[int]:
    """Return the errors with which a call can fail."""
    codes = [errno.EIO]
    if call.name in _NAMING:
        codes += [errno.EACCES, errno.ESTALE]
    if call.name in _FULL and call.writes:
        codes.append(errno.ENOSPC)
    return codes


class FaultyDisk:
    """Counts the calls below a directory and lets one of them fail.

    Parameters
    ----------
    root
        The directory.
    fail_at
        Number of the call that fails, from 0; none if -1.
    code
        The error number.
    lasting
        From then on all calls of the same function on the same path fail, as on a broken disk.
    """

    def __init__(self, root: str, fail_at: int = -1, code: int = 0, *, lasting: bool = False):
        self.calls: list[Call] = []
        self.failed: Call | None = None
        self._root, self._fail_at, self._code, self._lasting = root, fail_at, code, lasting
        self._lock = threading.RLock()
        self._readlink = os.readlink

    def touched(self, name: str, path: Any, *, writes: bool, tells: bool = True) -> None:
        """Note a call; raise if it should fail, naming the path if the system does (`tells`)."""
        text = os.fsdecode(path)
        if not text.startswith(self._root):
            return
        with self._lock:
            call = Call(name, text, writes)
            self.calls.append(call)
            fails = len(self.calls) - 1 == self._fail_at and self._code in codes_of(call)
            if not fails and self._lasting and self.failed is not None:
                fails = call == self.failed
            if not fails:
                return
            self.failed = self.failed or call
        named = (text,) if tells else ()
        raise OSError(self._code, os.strerror(self._code), *named)

    def path_of(self, descriptor: int) -> str:
        """Return the path of an open file."""
        try:
            return self._readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            return ""

    @contextmanager
    def working(self) -> Iterator[FaultyDisk]:
        """Intercept the file calls of this process until the end of the block."""
        with ExitStack() as stack:
            for name in _BY_PATH:
                stack.enter_context(mock.patch.object(os, name, self._by_path(name)))
            for name in filter(lambda n: hasattr(os, n), _BY_DESCRIPTOR):
                stack.enter_context(mock.patch.object(os, name, self._by_descriptor(name)))
            for module in (io, builtins):
                stack.enter_context(mock.patch.object(module, "open", self._opening()))
            stack.enter_context(mock.patch.object(mmap, "mmap", self._map_class()))
            yield self

    def _by_path(self, name: str) -> Callable[..., Any]:
        call = getattr(os, name)

        def faulty(path: Any = ".", *rest: Any, **named: Any) -> Any:
            try:
                return looked_at(path, *rest, **named)
            except OSError:
                if name != "access":  # which returns False instead
                    raise
                return False

        def looked_at(path: Any, *rest: Any, **named: Any) -> Any:
            flags = rest[0] if name == "open" and rest else 0
            may_write = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            writes = may_write if name == "open" else name not in _READING
            if isinstance(path, (str, bytes, os.PathLike)):
                full = os.path.abspath(os.fsdecode(os.fspath(path)))
                in_directory = named.get("dir_fd")
                if in_directory is not None:
                    full = os.path.join(self.path_of(in_directory), os.fsdecode(path))
                self.touched(name, full, writes=writes)
            elif isinstance(path, int):
                self.touched(name, self.path_of(path), writes=writes)
            return call(path, *rest, **named)

        return faulty

    def _by_descriptor(self, name: str) -> Callable[..., Any]:
        call = getattr(os, name)

        def faulty(descriptor: Any, *rest: Any, **named: Any) -> Any:
            if isinstance(descriptor, int):
                path = self.path_of(descriptor)
                self.touched(name, path, writes=name not in _READING, tells=False)
            return call(descriptor, *rest, **named)

        return faulty

    def _opening(self) -> Callable[..., Any]:
        true_open = io.open

        def faulty(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
            if isinstance(file, (str, bytes, os.PathLike)):
                path = os.path.abspath(os.fsdecode(os.fspath(file)))
                self.touched("open", path, writes=mode[0] != "r" or "+" in mode)
            return true_open(file, mode, *rest, **named)

        return faulty

    def _map_class(self) -> type[mmap.mmap]:
        disk = self

        class Map(mmap.mmap):
            def __new__(cls, descriptor: int, *rest: Any, **named: Any) -> Map:
                if descriptor >= 0:
                    disk.touched("mmap", disk.path_of(descriptor), writes=False, tells=False)
                return super().__new__(cls, descriptor, *rest, **named)

        return Map
