# SPDX-License-Identifier: Apache-2.0
"""Reports this process's work on files to a simulated disk: calls of module ``os``, maps."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from store_core.files import mapped_file

if TYPE_CHECKING:
    from tests.store_core.simulated_disk import SimulatedDisk


@contextmanager
def recorded_calls(disk: SimulatedDisk) -> Iterator[None]:
    """Record until the end of the block.

    It sees the calls through which stores are written: not those of open files in text or binary
    mode, nor maps other than those of segments.
    """
    calls = {name: _recorded(disk, name, getattr(os, name)) for name in _CALLS if hasattr(os, name)}
    constants = {name: getattr(mmap, name) for name in ("ALLOCATIONGRANULARITY", "ACCESS_READ")}
    names = SimpleNamespace(mmap=_window_class(disk), **constants)
    with mock.patch.multiple(os, **calls), mock.patch.object(mapped_file, "mmap", names):
        yield


def _window_class(disk: SimulatedDisk) -> type[mmap.mmap]:
    class Window(mmap.mmap):
        def __new__(
            cls, descriptor: int, size: int, *, offset: int = 0, access: int = mmap.ACCESS_DEFAULT
        ) -> Window:
            window = super().__new__(cls, descriptor, size, offset=offset, access=access)
            window.file, window.offset = disk.file_of(descriptor), offset
            return window

        def __setitem__(self, part: Any, data: Any) -> None:
            super().__setitem__(part, data)
            disk.wrote(self.file, self.offset + part.start, bytes(data))

    return Window


def _path(path: Any) -> str:
    return str(Path(os.fsdecode(path)).absolute())


def _open(disk: SimulatedDisk, call: Any, path: Any, flags: int, *rest: Any, **named: Any) -> int:
    descriptor: int = call(path, flags, *rest, **named)
    disk.opened(_path(path), flags, descriptor)
    return descriptor


def _close(disk: SimulatedDisk, call: Any, descriptor: int) -> None:
    disk.closed(descriptor)
    call(descriptor)


def _pwrite(disk: SimulatedDisk, call: Any, descriptor: int, data: Any, position: int) -> int:
    done: int = call(descriptor, data, position)
    disk.wrote(disk.file_of(descriptor), position, bytes(memoryview(data)[:done]))
    return done


def _write(disk: SimulatedDisk, call: Any, descriptor: int, data: Any) -> int:
    number = disk.file_of(descriptor)
    position = os.lseek(descriptor, 0, os.SEEK_CUR) if number is not None else 0
    done: int = call(descriptor, data)
    disk.wrote(number, position, bytes(memoryview(data)[:done]))
    return done


def _ftruncate(disk: SimulatedDisk, call: Any, descriptor: int, size: int) -> None:
    call(descriptor, size)
    disk.resized(disk.file_of(descriptor), size)


def _sync(disk: SimulatedDisk, call: Any, descriptor: int) -> None:
    begin = disk.time  # bytes that other threads write meanwhile are not flushed
    disk.syncing(disk.file_of(descriptor))
    call(descriptor)
    disk.synced(disk.file_of(descriptor), begin)


def _advise(disk: SimulatedDisk, call: Any, descriptor: int, *given: int) -> None:
    call(descriptor, *given)
    if given == (0, 0, os.POSIX_FADV_DONTNEED):  # all of it
        disk.forgotten(disk.file_of(descriptor))


def _mkdir(disk: SimulatedDisk, call: Any, path: Any, *rest: Any, **named: Any) -> None:
    call(path, *rest, **named)
    disk.made_directory(_path(path))


def _remove(disk: SimulatedDisk, call: Any, path: Any, **named: Any) -> None:
    call(path, **named)
    disk.removed(_path(path))


def _link(disk: SimulatedDisk, call: Any, source: Any, target: Any, **named: Any) -> None:
    call(source, target, **named)
    disk.linked(int(Path(source).name), _path(target))


def _rename(disk: SimulatedDisk, call: Any, source: Any, target: Any, **named: Any) -> None:
    call(source, target, **named)
    disk.renamed(_path(source), _path(target))


_CALLS: dict[str, Any] = {
    "open": _open,
    "close": _close,
    "pwrite": _pwrite,
    "write": _write,
    "ftruncate": _ftruncate,
    "fdatasync": _sync,
    "fsync": _sync,
    "posix_fadvise": _advise,
    "link": _link,
    "mkdir": _mkdir,
    "unlink": _remove,
    "remove": _remove,
    "rmdir": _remove,
    "rename": _rename,
    "replace": _rename,
}


def _recorded(disk: SimulatedDisk, name: str, call: Any) -> Any:
    recorded = _CALLS[name]
    return lambda *given, **named: recorded(disk, call, *given, **named)
