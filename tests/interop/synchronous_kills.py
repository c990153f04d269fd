"""A synchronous master is killed while threads put: its slave has what was acknowledged."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.interop.java_cluster import RELEASES
from tests.interop.replica import read_journal
from tests.interop.replication_rounds import (
    OURS,
    SETTINGS,
    Processes,
    Side,
    opened,
    remove_empty_files,
)

DIRECTIONS = (
    *((release, OURS) for release in RELEASES),
    *((OURS, release) for release in RELEASES),
    (OURS, OURS),
)
_SYNCHRONOUS = {**SETTINGS, "inSyncReplicas": 2}
_THREADS = 8
_ENDLESS = 1_000_000
# A master of 4.9.7 does not wait for a slave that is on its way: nothing is left to put, else.
_MOST_A_SECOND = 10_000
_MOST_BEFORE_A_KILL = 400
_WAIT_SECONDS = 60


class KilledMaster:
    """A pair of stores whose master dies again and again; leaving the block ends both."""

    def __init__(
        self, directory: Path, processes: Processes, direction: tuple[str, str], seed: int
    ) -> None:
        self._directory, self._processes = directory, processes
        self._name = f"{direction[0]} to {direction[1]}, seed {seed}"
        self._chance = random.Random(f"kills {seed}")
        self._seed = seed
        self._kills = 0
        self.master = Side(direction[0], directory / "master")
        self.slave = Side(direction[1], directory / "slave")

    def __enter__(self) -> KilledMaster:
        self._directory.mkdir(parents=True)
        self.slave.process = self._processes.take(self.slave.kind)
        address = f"127.0.0.1:{self.master.port}"
        self.slave.live.open_slave(self.slave.root, address, self.slave.port, **SETTINGS)
        return self

    def __exit__(self, *_: object) -> None:
        for side in (self.master, self.slave):
            if side.process is not None:
                side.process.kill()

    def kill(self) -> int:
        """Let the master put and die; return how many messages were acknowledged before.

        Raises
        ------
        AssertionError
            The slave lacks one of them, or none is acknowledged in time.
        """
        self._kills += 1
        journal = self._directory / f"journal-{self._kills}"
        self.master.process = self._processes.take(self.master.kind)
        self.master.live.open_master(
            self.master.root, self.master.port, "SYNC_MASTER", **_SYNCHRONOUS
        )
        if self._kills == 1:  # an empty slave begins at the last segment that there is by then
            self.master.live.put_until_acknowledged(_WAIT_SECONDS)
        seed = 1_000 * self._seed + self._kills
        self.master.live.start_putting(
            _ENDLESS, seed, threads=_THREADS, rate=_MOST_A_SECOND, journal=journal
        )
        wanted = self._chance.randint(1, _MOST_BEFORE_A_KILL)
        deadline = time.monotonic() + _WAIT_SECONDS
        while len(read_journal(journal)) < wanted:
            assert time.monotonic() < deadline, f"{self._name}: {self.master.live.state()}"
            time.sleep(self._chance.random() / 100)
        self.master.live.kill()
        self.master.process = None
        remove_empty_files(self.master)
        acknowledged = read_journal(journal)
        with opened(self.slave.root) as snapshot:
            for key, offset, size in acknowledged:
                message = snapshot.look_message_by_offset(offset)
                found = message and (message.keys[0], message.store_size)
                assert found == (key, size), f"{self._name}: kill {self._kills}: {key} at {offset}"
        return len(acknowledged)
