# SPDX-License-Identifier: Apache-2.0
"""Catching up and synchronous replication, compared with RocketMQ's own, and its cost."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import rate_figure
from bench.side_process import python_side
from store_core import MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.layout import COMMIT_LOG_DIR, RECORD_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.context import Context
    from bench.figures import Figure
    from bench.side_process import SideProcess

_OURS = "bench.replica_side"
_PLAIN = "bench.byte_stream"
_THREADS = 8
_BODY_BYTES = 1024


@dataclass(frozen=True)
class ReplicatedLog:
    """Stores of a replication: a master's store, and one with only its first record.

    A slave without records would receive only the master's last segment.
    """

    root: Path
    end: int
    messages: int

    @classmethod
    def make(cls, root: Path, messages: int) -> ReplicatedLog:
        """Return the replication of the stores ``master`` and ``begun`` in a directory."""
        with StoreSnapshot(str(root / "master")) as found:
            return cls(root, found.max_phy_offset, messages)

    @property
    def master(self) -> str:
        """Where the master's store is."""
        return str(self.root / "master")

    @property
    def slave(self) -> str:
        """Where the slave's store will be."""
        return str(self.root / "slave")

    def fresh_slave(self) -> str:
        """Return a store that has the first record."""
        shutil.rmtree(self.slave, ignore_errors=True)
        _copy(self.root / "begun", self.slave)
        os.sync()  # otherwise the disk is still busy with earlier writes
        return self.slave

    def check_slave(self) -> None:
        """Raise unless the queues of the slave have every message."""
        with StoreSnapshot(self.slave) as found:
            ranges = [found.queue_range(*queue) for queue in found.queue_paths]
        units = sum(queue.max_offset - queue.min_offset for queue in ranges)
        if units != self.messages:
            raise ValueError(f"the slave's queues have {units} of {self.messages} messages")


def catch_up_of_java(context: Context) -> list[Figure]:
    """Follow a Java master from its first record until queues and index have everything."""
    java: list[float] = []
    ours: dict[str, list[float]] = {"appended": [], "flushed": []}
    with _replicated(context) as log, context.java.start("ha-master", log.master) as master:
        address = _address(master)
        for _ in range(context.store_runs):
            with context.java.start("ha-slave", log.fresh_slave(), address, log.end) as slave:
                java.append(slave.figure("dispatched")["seconds"])
            log.check_slave()
            for ack, seconds in ours.items():
                with _our_slave(log.fresh_slave(), address, log.end, ack) as slave:
                    seconds.append(slave.figure("dispatched")["seconds"])
                log.check_slave()
    label = f"{context.sizes.replicated.label}"
    return [
        rate_figure(
            "ze",
            f"catch-up with a Java master until dispatched, {label}{which}",
            "Java slave",
            rows=log.messages,
            ours_seconds=ours[ack],
            other_seconds=java,
            must=must,
            aim=aim,
        )
        for ack, which, must, aim in (
            ("appended", "", 0.7, 1.2),
            ("flushed", ", what is acknowledged is on the disk", None, None),
        )
    ]


def catch_up_of_ours(context: Context) -> list[Figure]:
    """Follow our master until the log has everything; compare a copy and a socket of its bytes."""
    ours, other = [], []
    with _replicated(context) as log:
        plain = _plain_files(log)
        with python_side(_OURS, "master", log.master) as master:
            address = _address(master)
            for _ in range(context.store_runs):
                other.append(_copy_seconds(plain) + _socket_seconds(plain, log.end))
                with _our_slave(log.fresh_slave(), address, log.end, "appended") as slave:
                    ours.append(slave.figure("log")["seconds"])
                    slave.figure("dispatched")
                log.check_slave()
    return [
        rate_figure(
            "zf",
            f"catch-up, our master and slave, log only, {context.sizes.replicated.label}",
            "shutil.copyfile + a loopback socket, the same bytes",
            rows=log.messages,
            ours_seconds=ours,
            other_seconds=other,
            must=0.5,
            aim=0.8,
        )
    ]


def synchronous(context: Context) -> list[Figure]:
    """Put in eight threads, acknowledged when the slave has the message; second rounds."""
    count = context.sync_puts
    arguments = (count, _BODY_BYTES, _THREADS)
    ours, java = [], []
    for _ in range(context.store_runs):
        roots = [_fresh(context.work / name) for name in ("sync-master", "sync-slave")]
        try:
            master = context.java.start("ha-put", roots[0], *arguments)
            with master, context.java.start("ha-slave", roots[1], _address(master), 0):
                java.append(_warm_round(master))
            roots = [_fresh(Path(root)) for root in roots]
            options = ("--sync", "--slaves", 1, "--rounds", 2)
            master = python_side(_OURS, "put", roots[0], *arguments, *options)
            with master, _our_slave(roots[1], _address(master), 0, "appended"):
                ours.append(_warm_round(master))
        finally:
            for root in roots:
                shutil.rmtree(root, ignore_errors=True)
    return [
        rate_figure(
            "zg",
            f"synchronous replication, {_THREADS} threads, {count:,} x {_BODY_BYTES} B",
            "Java master and slave",
            rows=count,
            ours_seconds=ours,
            other_seconds=java,
            must=0.6,
            aim=0.9,
        )
    ]


def cost_of_a_slave(context: Context) -> list[Figure]:
    """Put in one thread while a slave follows, and without one."""
    alone, followed = [], []
    for _ in range(context.store_runs):
        alone.append(_put_seconds(context, slaves=0))
        followed.append(_put_seconds(context, slaves=1))
    return [
        rate_figure(
            "zh",
            f"put_message with a slave, {context.puts:,} x {_BODY_BYTES} B",
            "without one",
            rows=context.puts,
            ours_seconds=followed,
            other_seconds=alone,
            must=0.8,
            aim=0.95,
        )
    ]


def _put_seconds(context: Context, slaves: int) -> float:
    roots = [_fresh(context.work / name) for name in ("async-master", "async-slave")]
    arguments = (context.puts, _BODY_BYTES, 1, "--slaves", slaves)
    try:
        with python_side(_OURS, "put", roots[0], *arguments) as master:
            address = _address(master)
            if not slaves:
                return float(master.figure("put")["seconds"])
            with _our_slave(roots[1], address, 0, "appended"):
                seconds = float(master.figure("put")["seconds"])
                master.figure("followed")
                return seconds
    finally:
        for root in roots:
            shutil.rmtree(root, ignore_errors=True)


def _our_slave(root: str, master: str, end: int, ack: str) -> SideProcess:
    return python_side(_OURS, "slave", root, master, end, ack)


def _address(master: SideProcess) -> str:
    return f"127.0.0.1:{master.figure('listening')['port']}"


def _warm_round(master: SideProcess) -> float:
    master.figure("put")
    figure = master.figure("put")
    if figure.get("failed"):
        raise ValueError(f"{figure['failed']} messages did not reach the slave in time")
    return float(figure["seconds"])


@contextmanager
def _replicated(context: Context) -> Iterator[ReplicatedLog]:
    """Yield a master's store and a begun slave; delete them at the end."""
    spec = context.sizes.replicated
    root = Path(_fresh(context.work / "replication"))
    root.mkdir(parents=True)
    try:
        _copy(context.root(spec), root / "master")
        begin_copy(root / "master", root / "begun")
        yield ReplicatedLog.make(root, spec.messages)
    finally:
        shutil.rmtree(root)


def _copy(source: str | Path, target: str | Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)  # keeps holes


def begin_copy(master: Path, begun: Path) -> None:
    """Create a store with the first record of another."""
    first = min((master / COMMIT_LOG_DIR).iterdir())
    with first.open("rb") as file:
        size = RECORD_PREFIX.unpack(file.read(RECORD_PREFIX.size)).total_size
        file.seek(0)
        record = file.read(size)
    (begun / COMMIT_LOG_DIR).mkdir(parents=True)
    with (begun / COMMIT_LOG_DIR / first.name).open("xb") as file:
        file.write(record)
        file.truncate(first.stat().st_size)
    with MessageStore(MessageStoreConfig(store_path_root_dir=str(begun.resolve()))) as store:
        store.wait_for_dispatch()


def _plain_files(log: ReplicatedLog) -> list[Path]:
    """Return files with exactly the bytes that a slave receives."""
    directory = log.root / "plain"
    directory.mkdir()
    files = []
    for segment in sorted(Path(log.master, COMMIT_LOG_DIR).iterdir()):
        target = directory / segment.name
        shutil.copyfile(segment, target)
        os.truncate(target, min(target.stat().st_size, log.end - int(segment.name)))
        files.append(target)
    return files


def _copy_seconds(files: list[Path]) -> float:
    target = files[0].with_name("copies")
    target.mkdir()
    os.sync()
    begin = time.perf_counter()
    for file in files:
        shutil.copyfile(file, target / file.name)
    seconds = time.perf_counter() - begin
    shutil.rmtree(target)
    return seconds


def _socket_seconds(files: list[Path], count: int) -> float:
    with python_side(_PLAIN, "send", *map(str, files)) as sender:
        port = sender.figure("listening")["port"]
        with python_side(_PLAIN, "receive", port, count) as receiver:
            return float(receiver.figure("received")["seconds"])


def _fresh(root: Path) -> str:
    shutil.rmtree(root, ignore_errors=True)
    return str(root.resolve())
