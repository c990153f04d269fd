"""RocketMQ's store as replication master or slave: command ``ha-node`` of oracle/cluster."""

from __future__ import annotations

from pathlib import Path

from tests.interop.java_cluster import java_options
from tests.interop.replica import Replica


class JavaReplica(Replica):
    """A JVM of one of `java_cluster.RELEASES` that holds one store at a time."""

    def __init__(self, directory: Path, release: str) -> None:
        super().__init__(directory, [*java_options(directory, release), "ha-node"])
        self.release = release
