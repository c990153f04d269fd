# SPDX-License-Identifier: Apache-2.0
"""A disk that records writes and flushes, and builds the states that a power loss could leave.

What counts as flushed is what POSIX promises and no more: bytes and length of a file after
``fdatasync`` of that file, a name after ``fsync`` of its directory. Each sector that is not flushed
has its content of some moment since the last flush, independently of its neighbours. The same
holds for the length of each file and the names of each directory.

A flush can be made to fail (`SimulatedDisk.fail_sync`). Then the bytes that it should have forced
never reach the disk, though they can be read, and though a second flush succeeds: Linux takes the
pages for clean. They can be read until the system drops those pages (``POSIX_FADV_DONTNEED``).
"""

from __future__ import annotations

import errno
import os
import random
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.store_core.recorded_calls import recorded_calls

_TMPFILE = getattr(os, "O_TMPFILE", -1)
_SECTOR = 512
_PAGE = 4096


class _Write(NamedTuple):
    time: int
    position: int
    data: bytes


class _Resize(NamedTuple):
    time: int
    size: int


class _Sync(NamedTuple):
    """Changes made before ``begin`` are on the disk from ``end`` on."""

    begin: int
    end: int


class _Names(NamedTuple):
    """Names that get a file (or a directory), or none, in one atomic change."""

    time: int
    changes: tuple[tuple[str, int | None], ...]


@dataclass
class _File:
    is_directory: bool = False
    base: bytes = b""
    operations: list[_Write | _Resize] = field(default_factory=list)
    syncs: list[_Sync] = field(default_factory=list)
    lost: list[_Write] = field(default_factory=list)

    def synced_to(self, at: int) -> int:
        """Return up to which operation everything is on the disk at a moment."""
        return max((sync.begin for sync in self.syncs if sync.end < at), default=0)


class Fate(NamedTuple):
    """How bytes that are not flushed survive.

    Attributes
    ----------
    moment
        Given two moments, returns the one between them from which on everything is lost.
    unit
        Bytes that survive or are lost together.
    """

    moment: Callable[[int, int], int]
    unit: int


def fates(generator: random.Random) -> Iterator[Fate]:
    """Yield: everything is lost, nothing is, and three mixtures."""
    yield Fate(lambda first, _: first, _PAGE)
    yield Fate(lambda _, last: last, _PAGE)
    for share, unit in ((0.5, _SECTOR), (0.2, _PAGE), (0.8, _SECTOR)):

        def moment(first: int, last: int, share: float = share) -> int:
            if generator.random() < share:
                return last
            return first if generator.random() < 0.5 else generator.randint(first, last)

        yield Fate(moment, unit)


class SimulatedDisk:
    """Records changes below a directory while `recording`; files from before count as flushed."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.time = 0
        """Number of operations so far."""
        self.syncs = 0
        """Number of flushes so far."""
        self.fail_sync = -1
        """Number of the flush that fails, from 0."""
        self._files = [_File(is_directory=True)]
        self._names = {self.root: 0}
        self._entries: list[_Names] = []
        self._descriptors: dict[int, int] = {}
        self._lock = threading.RLock()
        for path in sorted(root.rglob("*")):
            is_directory = path.is_dir()
            self._files.append(_File(is_directory, b"" if is_directory else path.read_bytes()))
            self._names[str(path)] = len(self._files) - 1
        self._first_names = dict(self._names)

    @contextmanager
    def recording(self) -> Iterator[SimulatedDisk]:
        """Record the changes of all threads of this process until the end of the block."""
        with recorded_calls(self):
            yield self

    def build(self, at: int, fate: Fate, target: Path) -> None:
        """Build below `target` the disk's content if the power goes after ``at`` operations."""
        names = self._names_at(at, fate)
        reached: set[str] = set()
        for path in sorted(names):
            if path != self.root and _parent(path) not in reached:
                continue  # its directory did not survive, or one above that
            reached.add(path)
            file = self._files[names[path]]
            place = target / os.path.relpath(path, self.root)
            if file.is_directory:
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.write_bytes(_content(file, at, fate))

    def _names_at(self, at: int, fate: Fate) -> dict[str, int]:
        names = dict(self._first_names)
        synced: dict[str, int] = {}
        lost: set[str] = set()
        for entry in self._entries[: bisect_left(self._entries, (at,))]:
            directories = {_parent(path) for path, _ in entry.changes}
            for directory in directories - synced.keys():
                synced[directory] = self._directory(directory).synced_to(at)
            is_synced = all(entry.time < synced[directory] for directory in directories)
            involved = {path for path, _ in entry.changes}
            if not is_synced and (lost & involved or fate.moment(entry.time, at) <= entry.time):
                lost |= involved  # later changes of the name are lost, too
                continue
            for path, number in entry.changes:
                if number is None:
                    names.pop(path, None)
                else:
                    names[path] = number
        return names

    def _directory(self, path: str) -> _File:
        numbers = [n for e in self._entries for p, n in e.changes if p == path and n is not None]
        return self._files[self._names.get(path, numbers[-1] if numbers else 0)]

    # Notes of the recorded calls.

    def opened(self, path: str, flags: int, descriptor: int) -> None:
        """Note a descriptor, and a new file."""
        if not self._is_inside(path):
            return
        with self._lock:
            if flags & _TMPFILE == _TMPFILE:
                self._files.append(_File())
                self._descriptors[descriptor] = len(self._files) - 1
                return
            if path not in self._names:
                self._name(path, _File())
            number = self._names[path]
            if flags & os.O_TRUNC:
                self._files[number].operations.append(_Resize(self._tick(), 0))
            self._descriptors[descriptor] = number

    def linked(self, descriptor: int, path: str) -> None:
        """Note that a file without a name has one now."""
        with self._lock:
            number = self._descriptors.get(descriptor)
            if number is not None:
                self._names[path] = number
                self._entries.append(_Names(self._tick(), ((path, number),)))

    def closed(self, descriptor: int) -> None:
        """Forget a descriptor."""
        with self._lock:
            self._descriptors.pop(descriptor, None)

    def file_of(self, descriptor: int) -> int | None:
        """Return the number of an open file; None if it is not below the root."""
        return self._descriptors.get(descriptor)

    def wrote(self, number: int | None, position: int, data: bytes) -> None:
        """Note written bytes."""
        if number is not None:
            with self._lock:
                self._files[number].operations.append(_Write(self._tick(), position, data))

    def resized(self, number: int | None, size: int) -> None:
        """Note a new length."""
        if number is not None:
            with self._lock:
                self._files[number].operations.append(_Resize(self._tick(), size))

    def syncing(self, number: int | None) -> None:
        """Note that a flush begins; OSError if it is the one that fails."""
        if number is None:
            return
        with self._lock:
            self.syncs += 1
            if self.syncs - 1 != self.fail_sync:
                return
            file = self._files[number]
            since = file.synced_to(self.time)
            file.lost += [
                operation
                for operation in file.operations
                if operation.time >= since and isinstance(operation, _Write)
            ]
            file.operations = [each for each in file.operations if each not in file.lost]
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def synced(self, number: int | None, begin: int) -> None:
        """Note the end of a flush that began at a time."""
        if number is not None:
            with self._lock:
                self._files[number].syncs.append(_Sync(begin, self._tick()))

    def forgotten(self, number: int | None) -> None:
        """Let a file be read as on the disk, after a failed flush lost some of it."""
        if number is None or not self._files[number].lost:
            return
        with self._lock:
            file = self._files[number]
            path = next(path for path, known in self._names.items() if known == number)
            held = _content(file, self.time, Fate(lambda _, last: last, _PAGE))
            with Path(path).open("r+b") as real:
                for write in file.lost:
                    real.seek(write.position)
                    real.write(held[write.position : write.position + len(write.data)])
            file.lost.clear()

    def made_directory(self, path: str) -> None:
        """Note a new directory."""
        if self._is_inside(path):
            with self._lock:
                self._name(path, _File(is_directory=True))

    def removed(self, path: str) -> None:
        """Note a removed name."""
        if self._is_inside(path):
            with self._lock:
                self._names.pop(path, None)
                self._entries.append(_Names(self._tick(), ((path, None),)))

    def renamed(self, source: str, target: str) -> None:
        """Note a new name, and those below it."""
        if not self._is_inside(source):
            return
        with self._lock:
            changes: list[tuple[str, int | None]] = []
            for path in [p for p in self._names if p == source or p.startswith(source + os.sep)]:
                number = self._names.pop(path)
                self._names[target + path[len(source) :]] = number
                changes += [(path, None), (target + path[len(source) :], number)]
            self._entries.append(_Names(self._tick(), tuple(changes)))

    def _is_inside(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + os.sep)

    def _name(self, path: str, file: _File) -> None:
        self._files.append(file)
        self._names[path] = len(self._files) - 1
        self._entries.append(_Names(self._tick(), ((path, len(self._files) - 1),)))

    def _tick(self) -> int:
        self.time += 1
        return self.time - 1


def _content(file: _File, at: int, fate: Fate) -> bytes:
    """Return the bytes of a file after ``at`` operations: each sector as of some moment."""
    synced = file.synced_to(at)
    until = fate.moment(synced, at)
    size = _size(file, until)
    data = bytearray(file.base.ljust(size, b"\0")[:size])
    moments: dict[int, int] = {}
    for operation in file.operations:
        if operation.time >= at:
            break
        if isinstance(operation, _Resize):
            if operation.time < until and operation.size < len(data):
                data[operation.size :] = bytes(len(data) - operation.size)
            continue
        for sector, begin, stop in _sectors(operation, fate.unit):
            if operation.time >= synced and operation.time >= moments.setdefault(
                sector, fate.moment(synced, at)
            ):
                continue
            end, first = min(stop, size), operation.position
            if begin < end:
                data[begin:end] = operation.data[begin - first : end - first]
    return bytes(data)


def _size(file: _File, until: int) -> int:
    size = len(file.base)
    for operation in file.operations:
        if operation.time >= until:
            break
        if isinstance(operation, _Resize):
            size = operation.size
        else:
            size = max(size, operation.position + len(operation.data))
    return size


def _sectors(write: _Write, unit: int) -> Iterator[tuple[int, int, int]]:
    at, end = write.position, write.position + len(write.data)
    while at < end:
        stop = min(end, at - at % unit + unit)
        yield at // unit, at, stop
        at = stop


def _parent(path: str) -> str:
    return path.rpartition(os.sep)[0]
