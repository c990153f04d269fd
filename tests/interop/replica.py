# SPDX-License-Identifier: Apache-2.0
"""A process with a store as replication master or slave; it takes commands and may be killed.

RocketMQ's (`JavaReplica`) and this project's take the same commands, which oracle/cluster/README.md
lists under ``ha-node``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.interop.java_cluster import java_options
from tests.interop.obedient_process import ObedientProcess, ProcessError

_NUDGE_MS = 20
# A slave's reports are a heartbeat interval apart: the first one, and later ones without data.
_HEARTBEAT_MS = 200
_FIRST_SEED = 1_000_000  # of no one else


class ReplicaError(ProcessError):
    """The process failed at a command or is gone; the message has its output."""


class Replica(ObedientProcess):
    """A process that has one store open at a time; it starts immediately.

    Leaving the block kills the process in any case. Every method raises `ReplicaError` if the
    store fails or the process is gone.

    Parameters
    ----------
    directory
        For the process's files outside stores; created here.
    command
        Starts the process.
    """

    def __init__(self, directory: Path, command: Sequence[str]) -> None:
        super().__init__(directory, command, error=ReplicaError)

    def __enter__(self) -> Replica:
        return self

    def open_master(
        self, root: Path, port: int, role: str = "ASYNC_MASTER", **settings: object
    ) -> dict[str, Any]:
        """Open a store that slaves may follow at a port; return its state."""
        return self._open(root, port, role, settings)

    def open_slave(self, root: Path, master: str, port: int, **settings: object) -> dict[str, Any]:
        """Open a store that follows ``HOST:PORT``; return its state. RocketMQ's listens as well."""
        given = {"master": master, "nudge": _NUDGE_MS, **settings}
        return self._open(root, port, "SLAVE", given)

    def _open(
        self, root: Path, port: int, role: str, settings: Mapping[str, object]
    ) -> dict[str, Any]:
        given = {"haSendHeartbeatInterval": _HEARTBEAT_MS, **settings}
        words = [f"{key}={value}" for key, value in given.items()]
        return self.ask(" ".join(["open", str(root), str(port), role, *words]))

    def start_putting(
        self,
        count: int,
        seed: int,
        *,
        threads: int = 1,
        rate: int = 0,
        journal: Path | None = None,
    ) -> None:
        """Let threads put messages, at most `rate` a second; `read_journal` reads the journal."""
        words = [f"put {count} {seed} threads={threads} rate={rate}"]
        self.ask(" ".join([*words, *([f"journal={journal}"] if journal else [])]))

    def join(self) -> dict[str, Any]:
        """Wait until all is put; return the state, with the count of each status."""
        return self.ask("join")

    def put(self, count: int, seed: int, **options: Any) -> dict[str, Any]:
        """Put messages; return the state afterwards."""
        self.start_putting(count, seed, **options)
        return self.join()

    def put_until_acknowledged(self, timeout_s: int) -> int:
        """Put messages until a slave is connected; return how many were acknowledged.

        A synchronous master of 4.9.7 does not wait for one.
        """
        deadline, seed = time.monotonic() + timeout_s, _FIRST_SEED
        while not (done := self.put(1, seed)["statuses"].get("PUT_OK", 0)):
            assert time.monotonic() < deadline, "no slave has come"
            seed += 1
        return int(done)

    def state(self) -> dict[str, Any]:
        """Return offsets, connections and statuses so far."""
        return self.ask("state")

    def wait(self, offset: int, timeout_s: int) -> dict[str, Any]:
        """Wait until the log reaches an offset and is dispatched; ``event`` is reached or late."""
        return self.ask(f"wait {offset} {timeout_s}")

    def stop(self) -> None:
        """Close the store cleanly; the process can open another."""
        self.ask("stop")

    def ask(self, command: str) -> dict[str, Any]:
        """Send one command; return the answer."""
        answer = self.exchange(command)
        if answer["event"] == "error":
            raise ReplicaError(self.story(f"{command}: {answer}"))
        return answer


def read_journal(path: Path) -> list[tuple[str, int, int]]:
    """Return key, offset and size of each acknowledged message, in order of acknowledgement."""
    if not path.exists():
        return []
    whole = path.read_text("ascii").rpartition("\n")[0]
    rows = (line.split(" ") for line in whole.splitlines())
    return [(key, int(offset), int(size)) for key, offset, size in rows]


# RocketMQ's store as replication master or slave, by command ``ha-node`` of oracle/cluster.


class JavaReplica(Replica):
    """A JVM of one of `java_cluster.RELEASES` that has one store open at a time."""

    def __init__(self, directory: Path, release: str) -> None:
        super().__init__(directory, [*java_options(directory, release), "ha-node"])
        self.release = release
