"""A disk that remembers what was written and flushed, and every state that a power loss could leave.

Only calls of module ``os`` are seen: whoever writes files of a store goes through them. What counts
as flushed is what POSIX promises and no more: the bytes and the length of a file by ``fdatasync`` of
that file, a name by ``fsync`` of its directory.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

_SECTOR = 512
_PAGE = 4096


class _Write(NamedTuple):
    position: int
    data: bytes


class _Resize(NamedTuple):
    size: int


class _Name(NamedTuple):
    """A name of a directory gets a file (or a directory), or none."""

    changes: tuple[tuple[str, int | None], ...]


@dataclass
class _File:
    is_directory: bool = False
    operations: list[tuple[int, _Write | _Resize]] = field(default_factory=list)
    synced: list[int] = field(default_factory=list)


Chooser = Callable[[], bool]


class SimulatedDisk:
    """Records what happens below a directory while `recording`.

    Parameters
    ----------
    root
        Nothing in it is older than the recording: it starts empty.
    """

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._files: list[_File] = [_File(is_directory=True)]
        self._names: dict[str, int] = {self.root: 0}
        self._entries: list[tuple[int, _Name]] = []
        self._directory_syncs: dict[str, list[int]] = {}
        self._descriptors: dict[int, int] = {}
        self._paths: dict[int, str] = {}
        self._lock = threading.RLock()
        self.time = 0
        """Number of operations so far."""

    @contextmanager
    def recording(self) -> Iterator[SimulatedDisk]:
        """Record what any thread of this process does, until the end of the block."""
        originals = {name: getattr(os, name) for name in _WRAPPERS if hasattr(os, name)}
        with mock.patch.multiple(
            os, **{name: _wrapper(self, name, call) for name, call in originals.items()}
        ):
            yield self

    def states(self, at: int, generator: random.Random) -> Iterator[_Chooser]:
        """Yield the ways in which a power loss after ``at`` operations can end."""
        yield _Chooser(lambda: False, whole=True)
        yield _Chooser(lambda: True, whole=True)
        for share in (0.5, 0.2, 0.8):
            yield _Chooser(lambda share=share: generator.random() < share)  # type: ignore[misc]

    def build(self, at: int, choose: _Chooser, target: Path) -> None:
        """Make below `target` what the disk holds when the power went after ``at`` operations."""
        names = self._names_at(at, choose)
        for path in sorted(names):
            file = self._files[names[path]]
            place = target / os.path.relpath(path, self.root)
            if os.path.dirname(path) not in names and path != self.root:
                continue  # its directory did not survive
            if file.is_directory:
                place.mkdir(parents=True, exist_ok=True)
            else:
                self._build_file(file, at, choose, place)

    def _names_at(self, at: int, choose: _Chooser) -> dict[str, int]:
        names: dict[str, int] = {self.root: 0}
        lost: set[str] = set()
        for time, entry in self._entries:
            if time >= at:
                break
            involved = [path for path, _ in entry.changes]
            durable = all(self._is_synced(os.path.dirname(path), time, at) for path in involved)
            if not durable and (lost.intersection(involved) or not choose.kept()):
                lost.update(involved)
                continue
            for path, number in entry.changes:
                if number is None:
                    names.pop(path, None)
                else:
                    names[path] = number
        return names

    def _is_synced(self, directory: str, time: int, at: int) -> bool:
        return any(time < sync < at for sync in self._directory_syncs.get(directory, ()))

    def _build_file(self, file: _File, at: int, choose: _Chooser, place: Path) -> None:
        last_sync = max((sync for sync in file.synced if sync < at), default=-1)
        data = bytearray()
        for time, operation in file.operations:
            if time >= at:
                break
            if isinstance(operation, _Resize):
                if time < last_sync or choose.kept() or not data:
                    _resize(data, operation.size)
                continue
            for piece in _pieces(operation, choose.unit()):
                if time < last_sync or choose.kept():
                    _resize(data, max(len(data), piece.position + len(piece.data)))
                    data[piece.position : piece.position + len(piece.data)] = piece.data
        place.write_bytes(data)

    # What the wrappers tell.

    def opened(self, path: str, flags: int, descriptor: int) -> None:
        if not self._is_inside(path):
            return
        with self._lock:
            self._paths[descriptor] = path
            if path not in self._names:
                self._name(path, _File())
            number = self._names[path]
            if flags & os.O_TRUNC:
                self._operation(number, _Resize(0))
            self._descriptors[descriptor] = number

    def closed(self, descriptor: int) -> None:
        with self._lock:
            self._descriptors.pop(descriptor, None)
            self._paths.pop(descriptor, None)

    def wrote(self, descriptor: int, position: int, data: bytes) -> None:
        with self._lock:
            if descriptor in self._descriptors:
                self._operation(self._descriptors[descriptor], _Write(position, data))

    def resized(self, descriptor: int, size: int) -> None:
        with self._lock:
            if descriptor in self._descriptors:
                self._operation(self._descriptors[descriptor], _Resize(size))

    def synced(self, descriptor: int) -> None:
        with self._lock:
            number = self._descriptors.get(descriptor)
            if number is None:
                return
            if self._files[number].is_directory:
                path = self._paths[descriptor]
                self._directory_syncs.setdefault(path, []).append(self._tick())
            else:
                self._files[number].synced.append(self._tick())

    def made_directory(self, path: str) -> None:
        if self._is_inside(path):
            with self._lock:
                self._name(path, _File(is_directory=True))

    def removed(self, path: str) -> None:
        if self._is_inside(path):
            with self._lock:
                self._names.pop(path, None)
                self._entries.append((self._tick(), _Name(((path, None),))))

    def renamed(self, source: str, target: str) -> None:
        if not self._is_inside(source):
            return
        with self._lock:
            moved = [p for p in self._names if p == source or p.startswith(source + os.sep)]
            changes: list[tuple[str, int | None]] = []
            for path in moved:
                number = self._names.pop(path)
                self._names[target + path[len(source) :]] = number
                changes += [(path, None), (target + path[len(source) :], number)]
            self._entries.append((self._tick(), _Name(tuple(changes))))

    def _is_inside(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + os.sep)

    def _name(self, path: str, file: _File) -> None:
        self._files.append(file)
        self._names[path] = len(self._files) - 1
        self._entries.append((self._tick(), _Name(((path, len(self._files) - 1),))))

    def _operation(self, number: int, operation: _Write | _Resize) -> None:
        self._files[number].operations.append((self._tick(), operation))

    def _tick(self) -> int:
        self.time += 1
        return self.time - 1


class _Chooser:
    """Decides what of the unflushed survives; ``whole``: writes are not torn."""

    def __init__(self, keep: Chooser, *, whole: bool = False) -> None:
        self.kept = keep
        self._whole = whole

    def unit(self) -> int:
        """Return the bytes that survive or vanish together."""
        return 1 << 40 if self._whole else (_SECTOR if self.kept() else _PAGE)


def _pieces(write: _Write, unit: int) -> Iterator[_Write]:
    at = 0
    while at < len(write.data):
        stop = min(len(write.data), at + unit - (write.position + at) % unit)
        yield _Write(write.position + at, write.data[at:stop])
        at = stop


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _path(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))


def _open(disk: SimulatedDisk, call: Any, path: Any, flags: int, *rest: Any, **named: Any) -> int:
    existed = os.path.exists(path)
    descriptor: int = call(path, flags, *rest, **named)
    if existed or flags & os.O_CREAT:
        disk.opened(_path(path), flags, descriptor)
    return descriptor


def _close(disk: SimulatedDisk, call: Any, descriptor: int) -> None:
    disk.closed(descriptor)
    call(descriptor)


def _pwrite(disk: SimulatedDisk, call: Any, descriptor: int, data: Any, position: int) -> int:
    done: int = call(descriptor, data, position)
    disk.wrote(descriptor, position, bytes(memoryview(data)[:done]))
    return done


def _write(disk: SimulatedDisk, call: Any, descriptor: int, data: Any) -> int:
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    done: int = call(descriptor, data)
    disk.wrote(descriptor, position, bytes(memoryview(data)[:done]))
    return done


def _ftruncate(disk: SimulatedDisk, call: Any, descriptor: int, size: int) -> None:
    call(descriptor, size)
    disk.resized(descriptor, size)


def _sync(disk: SimulatedDisk, call: Any, descriptor: int) -> None:
    call(descriptor)
    disk.synced(descriptor)


def _mkdir(disk: SimulatedDisk, call: Any, path: Any, *rest: Any, **named: Any) -> None:
    call(path, *rest, **named)
    disk.made_directory(_path(path))


def _remove(disk: SimulatedDisk, call: Any, path: Any, **named: Any) -> None:
    call(path, **named)
    disk.removed(_path(path))


def _rename(disk: SimulatedDisk, call: Any, source: Any, target: Any, **named: Any) -> None:
    call(source, target, **named)
    disk.renamed(_path(source), _path(target))


_WRAPPERS: dict[str, Any] = {
    "open": _open,
    "close": _close,
    "pwrite": _pwrite,
    "write": _write,
    "ftruncate": _ftruncate,
    "fdatasync": _sync,
    "fsync": _sync,
    "mkdir": _mkdir,
    "unlink": _remove,
    "remove": _remove,
    "rmdir": _remove,
    "rename": _rename,
    "replace": _rename,
}


def _wrapper(disk: SimulatedDisk, name: str, call: Any) -> Any:
    wrapped = _WRAPPERS[name]
    return lambda *given, **named: wrapped(disk, call, *given, **named)
