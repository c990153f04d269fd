# SPDX-License-Identifier: Apache-2.0
"""Undamaged stores in memory, so that ten thousand copies of them cost little."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.golden_store import GOLDEN_NAMES, RECOVERED_NAMES, golden
from tests.rmqsource.reading import Row, name_queues, read_rows
from tests.store_core.crash.messages import config_of, make_batch, make_message
from tests.store_factory import StoreFactory, small_store

_HOLE = 1 << 12
FACTORY_SIZES = {"maxHashSlotNum": "8", "maxIndexNum": "64"}
PUT_SIZES = {
    "mappedFileSizeCommitLog": "16384",
    "mappedFileSizeConsumeQueue": "1000",
    "maxHashSlotNum": "64",
    "maxIndexNum": "256",
}


@dataclass(frozen=True)
class StoredFile:
    """A file: length, time, and its content without holes."""

    size: int
    mtime_ns: int
    extents: tuple[tuple[int, bytes], ...]


@dataclass
class BaseStore:
    """An undamaged store that mutations start from.

    Attributes
    ----------
    files
        By path below the store root; a value of None is a directory.
    options
        Options that a read of the store requires.
    properties
        RocketMQ's keys, for a broker configuration file.
    """

    name: str
    files: dict[str, StoredFile | None]
    options: dict[str, str]
    properties: dict[str, str]
    _rows: list[Row] = field(default_factory=list)

    def write(self, root: Path) -> None:
        """Write the store to a directory that does not exist yet."""
        root.mkdir()
        for name, file in self.files.items():
            path = root / name
            if file is None:
                path.mkdir()
                continue
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            for at, data in file.extents:
                os.pwrite(fd, data, at)
            os.ftruncate(fd, file.size)
            os.utime(fd, ns=(file.mtime_ns, file.mtime_ns))
            os.close(fd)

    def rows(self) -> list[Row]:
        """Return the rows of the undamaged store, read once."""
        if not self._rows:
            with tempfile.TemporaryDirectory(dir=scratch_parent()) as place:
                root = Path(place, "store")
                self.write(root)
                self._rows = read_rows(root, mode="DROPMALFORMED", **self.options)
        return self._rows


def scratch_parent() -> str | None:
    """Return a directory in memory if there is one with room, else None."""
    shm = "/dev/shm"
    return shm if os.path.isdir(shm) and shutil.disk_usage(shm).free > 4 << 30 else None


@functools.cache
def base_store(name: str) -> BaseStore:
    """Return a store by its name in ``BASE_NAMES``."""
    kind, _, rest = name.partition(":")
    if kind in {"golden", "recovered"}:
        store = golden(rest, recovered=kind == "recovered")
        return _captured(name, store.root, store.options, store.config_properties)
    make, options = _MADE[name]
    with tempfile.TemporaryDirectory(dir=scratch_parent()) as place:
        root = Path(place, "store")
        make(root)
        return _captured(name, root, options, options)


def _captured(
    name: str, root: Path, options: Mapping[str, str], properties: Mapping[str, str]
) -> BaseStore:
    files: dict[str, StoredFile | None] = {}
    for path in sorted(root.rglob("*")):
        stat = path.stat()
        files[str(path.relative_to(root))] = (
            None
            if path.is_dir()
            else StoredFile(stat.st_size, stat.st_mtime_ns, tuple(_extents(path)))
        )
    return BaseStore(name, files, dict(options), dict(properties))


def _extents(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the parts of a file that are not zeros, page by page."""
    data, begin = path.read_bytes(), -1
    for at in range(0, len(data), _HOLE):
        is_hole = not data[at : at + _HOLE].strip(b"\0")
        if is_hole and begin >= 0:
            yield begin, data[begin:at]
            begin = -1
        elif not is_hole and begin < 0:
            begin = at
    if begin >= 0:
        yield begin, data[begin:]


def _factory_store(root: Path, **how: Any) -> None:
    small_store(root, 60).write(**how)
    name_queues(root)


def _torn_store(root: Path) -> None:
    """A crash left half a record after the last one, which is not dispatched."""
    factory: StoreFactory = small_store(root, 40)
    at = len(factory.queues["TopicA", 0])
    factory.add("TopicA", b"not dispatched", dispatched=False, queue_offset=at)
    factory.add_bytes(b"\0\0\1\0half a record")
    factory.write(abort=b"1")
    name_queues(root)


def _put_store(root: Path) -> None:
    from store_core import MessageStore

    with MessageStore(config_of(root)) as store:
        for number in range(120):
            store.put_message(make_message(number))
        store.append_batch(make_batch(range(120, 200)))
        store.wait_for_dispatch()


def _sink_store(root: Path) -> None:
    from rmqsource.sink.committing import commit_parts
    from rmqsource.sink.task import stage_part
    from tests.rmqsource.sink.killed_sink import batches_of, plan_of_job

    for version in (3, 5, 8):
        plan = plan_of_job(str(root))
        batches = batches_of(version)
        parts = [stage_part([batch], plan, number) for number, batch in enumerate(batches)]
        commit_parts(plan, parts, application="app", version=version)


_SINK_SIZES = {
    "mappedFileSizeCommitLog": "8192",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "50",
    "maxIndexNum": "200",
}
_MADE: dict[str, tuple[Callable[[Path], None], dict[str, str]]] = {
    "made:clean": (_factory_store, FACTORY_SIZES),
    "made:torn": (_torn_store, FACTORY_SIZES),
    "made:put": (_put_store, PUT_SIZES),
    "made:sink": (_sink_store, _SINK_SIZES),
}

SMALL_NAMES = tuple(_MADE)
"""Stores with a few hundred messages at most."""

BASE_NAMES = (
    *SMALL_NAMES,
    *(f"golden:{name}" for name in GOLDEN_NAMES),
    *(f"recovered:{name}" for name in RECOVERED_NAMES),
)
"""All stores that are mutated."""
