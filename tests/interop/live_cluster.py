# SPDX-License-Identifier: Apache-2.0
"""A running cluster on loopback: name servers and brokers, each in a process of its own.

They are RocketMQ's, each in a JVM, or this project's. Commands ``name_server``, ``broker`` and
``stop`` of ``server-node`` in oracle/cluster control them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.interop.java_cluster import free_port
from tests.interop.java_node import JavaNode
from tests.interop.obedient_process import JsonNode
from tests.interop.python_server import OURS, PythonServer

BROKER = "broker-a"
# Levels 1 and 2 are half as long as in RocketMQ; retries begin at level 3 and end within seconds.
DELAY_LEVELS = "1s 2s 1s 1s 1s 1s " + " ".join(["2s"] * 12)
SMALL_FILES = {
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 30_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
    "messageDelayLevel": DELAY_LEVELS,
    # Most of an idle 5.x broker's work, which it would otherwise do every second.
    "timerFlushIntervalMs": 10_000,
}
_names = itertools.count(1)


def unique(prefix: str) -> str:
    """Return a name for a topic or group that no other test of this process uses."""
    return f"{prefix}_{next(_names)}"


class LiveCluster:
    """Name servers and brokers that run until the block ends.

    Delay levels and transaction checks take seconds, topics and groups are created at first use,
    and SQL filters are allowed; ``quickSettings`` in the program has all settings.

    Parameters
    ----------
    directory
        For stores (``stores/NAME``) and all other files of the processes.
    release
        Release of all processes: one of `java_cluster.RELEASES`, or `OURS`: this project.
    releases
        Releases of single brokers by their names, and of name servers (``name-server-0``, …).
    brokers
        Names of brokers; ``NAME:1`` is the slave of broker ``NAME``.
    name_servers
        Number of name servers.
    namesrv_addr
        Addresses of other name servers, which already run, to be used instead.
    settings
        Settings of all brokers, by RocketMQ's keys.
    settings_of
        More settings for single brokers, by their names.
    properties
        System properties of each JVM, such as ``tls.server.mode=enforcing``.
    """

    def __init__(
        self,
        directory: Path,
        release: str = "5.3.3",
        *,
        releases: Mapping[str, str] | None = None,
        brokers: Sequence[str] = (BROKER,),
        name_servers: int = 1,
        namesrv_addr: str | None = None,
        settings: Mapping[str, object] | None = None,
        settings_of: Mapping[str, Mapping[str, object]] | None = None,
        properties: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.release = release
        self._releases = dict(releases or {})
        self._settings = {**SMALL_FILES, **(settings or {})}
        self._settings_of = settings_of or {}
        self._properties = properties
        self._started = itertools.count(1)
        self._foreign_namesrv_addr = namesrv_addr
        count = name_servers if namesrv_addr is None else 0
        self._name_server_ports = [free_port() for _ in range(count)]
        self._name_servers: dict[int, JsonNode] = {}
        self._ports = {name: free_port() for name in brokers}
        self._brokers: dict[str, JsonNode] = {}

    def __enter__(self) -> LiveCluster:
        return self.start()

    def start(self) -> LiveCluster:
        """Start everything and return the cluster: the name servers know every broker."""
        with ExitStack() as undo:
            undo.callback(self.close)
            nodes = {name: self._node(name) for name in self._ports}
            for index in range(len(self._name_server_ports)):
                self.start_name_server(index)
            self._brokers.update(nodes)
            commands = {name: self._begin(name) for name in nodes}
            for name, command in commands.items():
                nodes[name].finish(command)
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill all running processes; for a clean stop use `stop_broker`."""
        for node in [*self._brokers.values(), *self._name_servers.values()]:
            node.kill()
        self._brokers.clear()
        self._name_servers.clear()

    @property
    def namesrv_addr(self) -> str:
        """All name servers, as clients are given them: ``127.0.0.1:PORT;…``."""
        own = ";".join(f"127.0.0.1:{port}" for port in self._name_server_ports)
        return self._foreign_namesrv_addr or own

    @property
    def brokers(self) -> list[str]:
        """Names of brokers, running or not."""
        return list(self._ports)

    def address(self, name: str = BROKER) -> str:
        """Return a broker's ``HOST:PORT``, the same after each start."""
        return f"127.0.0.1:{self._ports[name]}"

    def store(self, name: str = BROKER) -> Path:
        """Return the root of a broker's store."""
        return self.directory / "stores" / name.replace(":", "-")

    def kill_broker(self, name: str = BROKER) -> None:
        """Kill a broker with SIGKILL, as in a crash."""
        self._brokers.pop(name).kill()

    def freeze_broker(self, name: str = BROKER) -> None:
        """Freeze a broker (SIGSTOP); its connections stay open."""
        self._brokers[name].freeze()

    def thaw_broker(self, name: str = BROKER) -> None:
        """Continue a frozen broker."""
        self._brokers[name].thaw()

    @contextmanager
    def frozen(self, name: str = BROKER) -> Iterator[None]:
        """Freeze a broker within the block, so that only others change its store."""
        self.freeze_broker(name)
        try:
            yield
        finally:
            self.thaw_broker(name)

    def process_id(self, name: str = BROKER) -> int:
        """Return the id of the process that a broker runs in."""
        return self._brokers[name].process_id

    def stop_broker(self, name: str = BROKER) -> None:
        """Stop a broker cleanly, which takes one to three seconds with the store's final flush."""
        node = self._brokers.pop(name)
        try:
            node.ask("stop")
        finally:
            node.kill()

    def start_broker(self, name: str = BROKER, release: str | None = None) -> None:
        """Start a broker again with the same store, port and settings; it is registered on return.

        Unless the release is None, the broker uses it from now on.
        """
        if release is not None:
            self._releases[name] = release
        node = self._brokers[name] = self._node(name)
        node.finish(self._begin(name))

    def kill_name_server(self, index: int = 0) -> None:
        """Kill a name server (SIGKILL)."""
        self._name_servers.pop(index).kill()

    def start_name_server(self, index: int = 0) -> None:
        """Start a name server on its port; brokers find it again within ten seconds or so."""
        node = self._name_servers[index] = self._node(f"name-server-{index}")
        port = self._name_server_ports[index]
        node.ask("name_server", port=port, directory=str(self.directory / f"name-server-{index}"))

    def _node(self, name: str) -> JsonNode:
        folder = f"{name.replace(':', '-')}.{next(self._started)}"
        directory = self.directory / "nodes" / folder
        release = self._releases.get(name, self.release)
        if release == OURS:
            return PythonServer(directory)
        return JavaNode(directory, release, "server-node", self._properties)

    def _begin(self, name: str) -> str:
        return self._brokers[name].begin(
            "broker",
            store=str(self.store(name)),
            port=self._ports[name],
            namesrv_addr=self.namesrv_addr,
            settings=self._broker_settings(name),
        )

    def _broker_settings(self, name: str) -> dict[str, Any]:
        broker_name, _, broker_id = name.partition(":")
        own: dict[str, Any] = {"brokerName": broker_name}
        if broker_id:
            own.update(brokerId=int(broker_id), brokerRole="SLAVE")
        return {**own, **self._settings, **self._settings_of.get(name, {})}
