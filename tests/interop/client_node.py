# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own clients in a JVM: producers, consumers and admin, driven by commands.

Uses command ``client-node`` of oracle/cluster; its README.md lists the commands. Those without a
method here go through `ClientNode.ask`.
"""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.java_node import JavaNode

_TIMEOUT_S = 30
_REBALANCE_MS = 1000


class Queue(NamedTuple):
    """A queue in the form of the Java program."""

    topic: str
    broker: str
    queue_id: int


class ClientNode(JavaNode):
    """Named clients of one release in one JVM; rows are dicts as README.md describes them.

    Parameters
    ----------
    directory
        For the files of the JVM; created here.
    release
        One of `java_cluster.RELEASES`.
    namesrv_addr
        The name servers that all its clients use.
    credentials
        Access key, secret key, and the security token if there is one.
    tls
        Whether the clients use TLS.
    properties
        System properties of the JVM.
    """

    def __init__(
        self,
        directory: Path,
        release: str,
        namesrv_addr: str,
        *,
        credentials: Sequence[str] = (),
        tls: bool = False,
        properties: Sequence[str] = (),
    ) -> None:
        # Offsets that broadcasting consumers have consumed.
        self.offset_directory = directory / "offsets"
        quick = [
            f"rocketmq.client.rebalance.waitInterval={_REBALANCE_MS}",
            f"rocketmq.client.localOffsetStoreDir={self.offset_directory}",
        ]
        super().__init__(directory, release, "client-node", [*quick, *properties])
        names = ("access_key", "secret_key", "security_token")
        given = dict(zip(names, credentials))
        self.ask("connect", namesrv_addr=namesrv_addr, tls=tls, **given)

    def __enter__(self) -> ClientNode:
        return self

    def create_topic(self, topic: str, queues: int = 4, **options: Any) -> None:
        """Create a topic on ``broker`` or on all masters."""
        self.ask("create_topic", topic=topic, queues=queues, **options)

    def start_producer(self, name: str, group: str, **options: Any) -> str:
        """Start a producer; return its client id."""
        client_id: str = self.ask("producer", name=name, group=group, **options)["client_id"]
        return client_id

    def send(self, name: str, topic: str, count: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Send messages; return a row for each, in the order of their answers.

        Raises
        ------
        AssertionError
            One was not acknowledged.
        """
        done = self.ask("send", name=name, topic=topic, count=count, **options)
        assert not done["failed"], done["failed"][:3]
        rows: list[dict[str, Any]] = done["acknowledged"]
        return rows

    def start_consumer(self, name: str, group: str, topics: dict[str, str], **options: Any) -> str:
        """Start a push consumer with an expression for each topic; return its client id."""
        answer = self.ask("consumer", name=name, group=group, topics=topics, **options)
        client_id: str = answer["client_id"]
        return client_id

    def received(self, name: str, begin: int = 0) -> list[dict[str, Any]]:
        """Return a consumer's deliveries from one number on, in order."""
        rows: list[dict[str, Any]] = self.ask("received", name=name, begin=begin)
        return rows

    def wait_received(
        self, name: str, count: int, timeout_s: float = _TIMEOUT_S
    ) -> list[dict[str, Any]]:
        """Wait until a consumer has so many deliveries; return all."""
        wait_until(lambda: self.ask("received_count", name=name) >= count, timeout_s)
        rows = self.received(name)
        assert len(rows) >= count, f"{len(rows)} of {count} came in {timeout_s} s"
        return rows

    def allocation(self, name: str) -> list[Queue]:
        """Return the queues that a consumer has now, sorted."""
        return sorted(queue_of(row) for row in self.ask("allocation", name=name))

    def close_when_consumed(
        self, name: str, topic: str, end: int, timeout_s: float = _TIMEOUT_S
    ) -> list[dict[str, Any]]:
        """Close a consumer once it has noted so many offsets of a topic; return its deliveries.

        It notes a message after its listener has returned. So a consumer that is closed as soon as
        the listener has all messages may leave with an offset that is too low. Also, a broker that
        gets a group's first offsets in several concurrent requests may forget some of them. A
        consumer that leaves must not be the first to send them.
        """

        def noted() -> int:
            rows = self.ask("own_offsets", name=name)
            return sum(row["offset"] for row in rows if row["topic"] == topic)

        assert wait_until(lambda: noted() == end, timeout_s), (name, noted())
        return self.close_consumer(name)

    def close_consumer(self, name: str) -> list[dict[str, Any]]:
        """Shut a consumer down; return all its deliveries."""
        rows: list[dict[str, Any]] = self.ask("close_consumer", name=name)
        return rows

    def pull_all(self, topic: str, group: str = "judge", **options: Any) -> list[dict[str, Any]]:
        """Return every message of a topic, queue by queue."""
        rows: list[dict[str, Any]] = self.ask("pull_all", topic=topic, group=group, **options)
        return rows

    def consumer_offsets(self, group: str, topic: str) -> dict[Queue, int]:
        """Return a group's offsets as the brokers have them."""
        rows = self.ask("consume_stats", group=group, topic=topic)
        return {queue_of(row): row["consumer_offset"] for row in rows}


def queue_of(row: dict[str, Any]) -> Queue:
    """Return the queue named in a row."""
    return Queue(row["topic"], row["broker"], row["queue_id"])


def body_of(row: dict[str, Any]) -> bytes:
    """Return the body of a received row."""
    return b64decode(row["body_b64"] or "")


def numbered_key(seed: int, number: int) -> str:
    """Return the key of a message that Java made from a seed."""
    return f"K{seed}-{number}"


def numbered_body(seed: int, number: int, size: int = 0) -> bytes:
    """Return the body of a message that Java made from a seed."""
    return numbered_key(seed, number).ljust(size, "x").encode()


def read_sent(journal: Path) -> list[str]:
    """Return the keys in a journal of acknowledged messages, in order, without a half line."""
    if not journal.exists():
        return []
    whole = journal.read_text("utf-8").rpartition("\n")[0]
    return [line.split(" ")[0] for line in whole.splitlines()]


def wait_until(condition: Callable[[], object], timeout_s: float = _TIMEOUT_S) -> bool:
    """Wait until a condition holds; return whether it does."""
    deadline = time.monotonic() + timeout_s
    while not (done := bool(condition())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return done
