# SPDX-License-Identifier: Apache-2.0
"""Client work while a broker is killed: delays, transactions, new topics, and Java's clients.

Each chore goes on by itself until it is stopped. Then it reports whether messages that the broker
acknowledged are lost, or came twice without need.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rmqnet import (
    Admin,
    BrokerError,
    ClientConfig,
    ClientError,
    LocalTransactionState,
    Message,
    Producer,
    RemotingError,
    TransactionProducer,
)
from tests.interop.client_node import ClientNode, wait_until
from tests.interop.live_cluster import LiveCluster, unique
from tests.interop.live_failures import SETTINGS, FailureRun, Outage
from tests.interop.python_server import OURS

_FAILURES = (RemotingError, BrokerError, ClientError)
_PAUSE_S = 0.02
_DEADLINE_S = 60
_SEND_TIMEOUT_S = 10
_MOST_OF_JAVA = 20_000
_JAVA_RATE = 100
# Messages in transit when the broker died are sent again for a while after it is back.
_GRACE_MS = 5_000
# A check counts even if there is no producer to ask.
_SETTINGS = {**SETTINGS, "transactionCheckMax": 1000}


class Chore:
    """Work that is repeated in a thread of its own.

    Parameters
    ----------
    cluster
        The cluster to send to.
    java
        RocketMQ's clients of the cluster, which report what is stored.
    """

    def __init__(self, cluster: LiveCluster, java: ClientNode) -> None:
        self.cluster, self.java = cluster, java
        self.topic = unique(type(self).__name__.lower())
        self.acknowledged: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.topic)

    def start(self) -> None:
        """Begin; the topic exists before."""
        self.java.create_topic(self.topic, 2)
        self._thread.start()

    def stop(self) -> None:
        """Stop, once the last send is answered."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            key = f"{self.topic}-{number}"
            try:
                self.act(key, number)
                self.acknowledged.append(key)
            except _FAILURES:
                pass
            self._stop.wait(_PAUSE_S)
            number += 1

    def act(self, key: str, number: int) -> None:
        """Do the work once; return whether the broker acknowledged it."""
        raise NotImplementedError

    def check(self, outages: Iterable[tuple[int, int]]) -> None:
        """Check that everything acknowledged is there.

        Parameters
        ----------
        outages
            Times in which the broker was away, in ms since the epoch.

        Raises
        ------
        AssertionError
            Something is lost, or was stored twice without need.
        """
        wanted = set(self.wanted())
        wait_until(lambda: not wanted - {row["keys"] for row in self._stored()}, _DEADLINE_S)
        rows = self._stored()
        lost = wanted - {row["keys"] for row in rows}
        assert not lost, f"{self.topic}: {len(lost)} of {len(wanted)} are lost: {sorted(lost)[:5]}"
        assert_copies(rows, outages)

    def wanted(self) -> list[str]:
        """Return the keys of the messages that must be in the topic."""
        return self.acknowledged

    def _stored(self) -> list[dict[str, Any]]:
        return self.java.pull_all(self.topic)


class Delays(Chore):
    """Messages that are delivered a second later: by level, and by time."""

    def start(self) -> None:
        self._producer = Producer(unique("delays"), self.cluster.namesrv_addr).start()
        super().start()

    def stop(self) -> None:
        super().stop()
        self._producer.shutdown()

    def act(self, key: str, number: int) -> None:
        when = {"delay_level": 1} if number % 2 else {"delay_ms": 700}
        self._producer.send(
            Message(self.topic, key.encode(), keys=[key]), timeout_s=_SEND_TIMEOUT_S, **when
        )


class Transactions(Chore):
    """Transactions that are committed, rolled back, or answered only when the broker asks."""

    def start(self) -> None:
        self._ended: dict[str, LocalTransactionState] = {}
        # A new broker asks no producers until it knows of some.
        config = ClientConfig(self.cluster.namesrv_addr, heartbeat_broker_interval_ms=500)
        self._producer = TransactionProducer(unique("payers"), config, self).start()
        super().start()

    def act(self, key: str, number: int) -> None:
        committed = LocalTransactionState.COMMIT_MESSAGE
        rolled_back = LocalTransactionState.ROLLBACK_MESSAGE
        self._ended[key] = rolled_back if number % 3 == 1 else committed
        message = Message(self.topic, key.encode(), keys=[key])
        self._producer.send_in_transaction(message, number, timeout_s=_SEND_TIMEOUT_S)

    def execute_local_transaction(self, message: Message, argument: Any) -> LocalTransactionState:
        if argument % 4 == 0:
            return LocalTransactionState.UNKNOWN
        return self.check_local_transaction(message)

    def check_local_transaction(self, message: Message) -> LocalTransactionState:
        return self._ended[message.properties["KEYS"]]

    def wanted(self) -> list[str]:
        committed = LocalTransactionState.COMMIT_MESSAGE
        return [key for key in self.acknowledged if self._ended[key] is committed]

    def check(self, outages: Iterable[tuple[int, int]]) -> None:
        super().check(outages)
        self._producer.shutdown()
        committed = LocalTransactionState.COMMIT_MESSAGE
        wrong = [row for row in self._stored() if self._ended[row["keys"]] is not committed]
        assert not wrong, f"{self.topic}: rolled back and there: {wrong[:3]}"


class NewTopics(Chore):
    """Topics that are created with one to seven queues."""

    def start(self) -> None:
        self._admin = Admin(self.cluster.namesrv_addr).start()
        super().start()

    def act(self, key: str, number: int) -> None:
        self._admin.create_topic(key, 1 + number % 7)

    def check(self, outages: Iterable[tuple[int, int]]) -> None:
        del outages
        (broker,) = self.cluster.brokers
        found = self._admin.topic_configs(broker)
        self._admin.shutdown()
        lost = [key for key in self.acknowledged if key not in found]
        assert not lost, f"{len(lost)} of {len(self.acknowledged)} topics are lost: {lost[:5]}"
        for key in self.acknowledged:
            queues = 1 + int(key.rpartition("-")[2]) % 7
            assert found[key].write_queue_nums == found[key].read_queue_nums == queues


class JavaClients(Chore):
    """RocketMQ's own producer and two consumers: a concurrent one and an orderly one."""

    seed = 900

    def start(self) -> None:
        self.java.create_topic(self.topic, 4)
        self.java.start_producer(self.topic, unique("java"))
        self._rows: dict[str, list[dict[str, Any]]] = {}
        for orderly in (False, True):
            self.java.start_consumer(
                self._consumer(orderly), unique("java"), {self.topic: "*"}, orderly=orderly
            )
        self.java.ask(
            "start_sending",
            name=self.topic,
            topic=self.topic,
            count=_MOST_OF_JAVA,
            seed=self.seed,
            rate=_JAVA_RATE,
        )

    def _consumer(self, orderly: bool) -> str:
        return f"{self.topic}-{orderly}"

    def stop(self) -> None:
        sent = self.java.ask("join_sending", name=self.topic, stop=True)
        self.acknowledged = [row["keys"] for row in sent["acknowledged"]]
        assert len(self.acknowledged) < _MOST_OF_JAVA
        assert self.acknowledged, sent["failed"][:3]

    def check(self, outages: Iterable[tuple[int, int]]) -> None:
        super().check(outages)
        places = {_place(row) for row in self._stored()}
        for orderly in (False, True):
            name = self._consumer(orderly)
            wait_until(lambda name=name: places <= set(map(_place, self._seen(name))), _DEADLINE_S)
            rows = self.java.close_consumer(name)
            lost = places - set(map(_place, rows))
            assert not lost, (
                f"{name}: {len(lost)} of {len(places)} did not come: {sorted(lost)[:5]}"
            )
            if orderly:
                _assert_order(rows)
            assert_repeats(rows, outages)

    def _seen(self, name: str) -> list[dict[str, Any]]:
        rows = self._rows.setdefault(name, [])
        rows += self.java.received(name, len(rows))
        return rows


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row["queue_id"], row["queue_offset"]


def _assert_order(rows: list[dict[str, Any]]) -> None:
    """Check that no message came before an earlier one of its queue."""
    reached: defaultdict[int, int] = defaultdict(int)
    for row in rows:
        queue_id, offset = _place(row)
        assert offset <= reached[queue_id], f"{row['keys']} came before offset {reached[queue_id]}"
        reached[queue_id] = max(reached[queue_id], offset + 1)


def assert_copies(rows: list[dict[str, Any]], outages: Iterable[tuple[int, int]]) -> None:
    """Check that a message is stored twice only if the broker was away in between.

    Raises
    ------
    AssertionError
        Two copies were stored one after the other without an outage between them.
    """
    _assert_apart(rows, "keys", "store_timestamp", outages, 0)


def assert_repeats(rows: list[dict[str, Any]], outages: Iterable[tuple[int, int]]) -> None:
    """Check that a consumer gets a message twice only if the broker was away in between.

    Raises
    ------
    AssertionError
        It came twice without an outage.
    """
    named = [{**row, "place": _place(row)} for row in rows]
    _assert_apart(named, "place", "at_ms", outages, _GRACE_MS)


def _assert_apart(
    rows: list[dict[str, Any]],
    name: str,
    at: str,
    outages: Iterable[tuple[int, int]],
    grace_ms: int,
) -> None:
    times: defaultdict[Any, list[int]] = defaultdict(list)
    for row in rows:
        times[row[name]].append(row[at])
    away = list(outages)
    for key, found in times.items():
        found.sort()
        for first, second in zip(found, found[1:]):
            assert any(first <= end + grace_ms and second >= begin for begin, end in away), (
                f"{key} twice, at {first} and {second}: the broker was away {away}"
            )


def in_ms(outages: Iterable[Outage]) -> list[tuple[int, int]]:
    """Return when a broker was certainly away: the shortest known time, in ms since the epoch."""
    shift = time.time() - time.monotonic()
    return [(int(1000 * (o.begin + shift)), int(1000 * (o.gone + shift)) + 1) for o in outages]


CHORES = (Delays, Transactions, NewTopics, JavaClients)


# Our broker is killed while this project's clients and RocketMQ's use it in every way.


def kill_broker_often(
    directory: Path, release: str, seed: int, kills: int, *, deadline: float = float("inf")
) -> dict[str, int]:
    """Kill a broker of ours repeatedly; return counts.

    Parameters
    ----------
    directory
        For the store and all other files.
    release
        The release of RocketMQ's clients.
    seed
        Seed of the random choices.
    kills
        Number of kills, unless the deadline comes first.
    deadline
        By the monotonic clock.

    Raises
    ------
    AssertionError
        Something acknowledged is lost, or came more often than RocketMQ allows.
    """
    with ExitStack() as stack:
        cluster = stack.enter_context(LiveCluster(directory / "c", OURS, settings=_SETTINGS))
        java = stack.enter_context(ClientNode(directory / "java", release, cluster.namesrv_addr))
        run = stack.enter_context(FailureRun(cluster, java, seed))
        chores = [kind(cluster, java) for kind in CHORES]
        with ExitStack() as going_on:
            for chore in chores:
                chore.start()
                going_on.callback(chore.stop)
            for _ in range(kills):
                run.break_one()
                if time.monotonic() >= deadline:
                    break
        counts = run.finish()
        for chore in chores:
            chore.check(in_ms(run.outages))
            counts[type(chore).__name__] = len(chore.acknowledged)
        return counts
