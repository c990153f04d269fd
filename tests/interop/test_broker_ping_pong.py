# SPDX-License-Identifier: Apache-2.0
"""Whole brokers take over a directory from each other: RocketMQ's, ours, and RocketMQ's again.

Clients of both kinds go on, or come back, while messages wait for their time, transactions are
open, and retries are pending. Both releases run at the same time: a broker mostly waits.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rmqnet import (
    Admin,
    ClientConfig,
    ClientError,
    LocalTransactionState,
    Message,
    MessageQueue,
    Producer,
    SendFailedError,
    TransactionProducer,
)
from store_core import MessageStoreConfig, StoreSnapshot
from store_core.transaction.open_halves import find_open_halves
from tests.interop.client_node import ClientNode, numbered_key, wait_until
from tests.interop.java_cluster import ALL_RELEASES, RELEASES, build
from tests.interop.live_cluster import BROKER, SMALL_FILES, LiveCluster
from tests.interop.python_server import OURS
from tests.interop.served_store import assert_sound
from tests.interop.test_live_consumer import Delivery, consumer_of

pytestmark = pytest.mark.interop

_TURNS, _SWITCHES = 3, 2
_ORDERS, _FEW = 40, 6
_ENDS_S = 60
# Delayed messages wait for the next broker: one of RocketMQ takes seconds to stop.
_LATER_MS, _LATER_LEVEL = 10_000, 2
_SETTINGS = {
    "messageDelayLevel": "1s 10s 3s 3s 3s " + "3s " * 13,
    "transactionCheckMax": 1000,  # a check counts even without a producer to ask
}
_CONFIGURED = "configured"


class Answers:
    """Leaves transactions open, and answers when the broker asks."""

    def execute_local_transaction(self, message: Message, argument: Any) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN

    def check_local_transaction(self, message: Message) -> LocalTransactionState:
        return LocalTransactionState[message.properties["answer"]]


class Game:
    """One directory, its brokers in turn, and their clients."""

    def __init__(self, release: str, directory: Path) -> None:
        self.release = release
        self.has_timers = release.startswith("5")
        self.stopped_ms: list[int] = []
        self.states: list[tuple[Any, Any]] = []
        self.python = Delivery()
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.stored: dict[str, list[dict[str, Any]]] = {}
        self.sent: defaultdict[str, list[str]] = defaultdict(list)
        self._open = ExitStack()
        self.cluster = LiveCluster(
            directory / "cluster",
            release,
            releases={"name-server-0": OURS},
            # A broker of the release must be able to read our records of ended transactions.
            settings={**_SETTINGS, "transactionOpFormat": release[0]},
        )
        self._directory = directory

    def play(self) -> None:
        """Let each broker have its turn, and record the results."""
        with self._open, self.cluster as cluster:
            address = cluster.namesrv_addr
            enter = self._open.enter_context
            # A client of 4.9.7 notices after half a minute that its pull will not be answered.
            self.java = enter(ClientNode(self._directory / "java", RELEASES[0], address))
            self._producer = enter(Producer("producers", address, send_msg_timeout_ms=30_000))
            config = ClientConfig(address, heartbeat_broker_interval_ms=1000)
            self._payer = enter(TransactionProducer("payers", config, Answers()))
            self._admin = enter(Admin(address))
            self._prepare()
            for turn in range(_TURNS):
                if turn:
                    self._change(OURS if turn % 2 else self.release)
                self._take_turn(turn)
            self._await_all()
            for name in ("all", "sql", "again", "never"):
                self.rows[name] = self.java.close_consumer(name)
            for topic in ("orders", "later", "paid", "%DLQ%never"):
                self.stored[topic] = self.java.pull_all(topic)
            self.states.append(self._state())
            cluster.stop_broker()

    def _prepare(self) -> None:
        java = self.java
        for topic in ("orders", "later", "paid", "again", "never", "probes"):
            java.create_topic(topic, 3)
        java.start_producer("p", "java-producers")
        java.start_producer("payer", "java-payers", transactional=True, topic="paid")
        java.start_consumer("all", "all", {"orders": "*"})
        java.start_consumer("again", "again", {"again": "*"}, fail_first=1)
        java.start_consumer("never", "never", {"never": "*"}, fail_first=99, max_reconsume_times=2)
        self._start_sql()

    def _start_sql(self) -> None:
        self.java.start_consumer("sql", "sql", {"orders": "size > 10"}, sql=True)

    def _change(self, release: str) -> None:
        self.states.append(self._state())
        self.cluster.stop_broker()
        self.stopped_ms.append(int(time.time() * 1000))
        self.cluster.start_broker(BROKER, release)
        self._await(self._is_reached)
        self.states.append(self._state())

    def _is_reached(self) -> bool:
        """Return whether our producers can send again; after an outage they retry in seconds."""
        try:
            for producer in (self._producer, self._payer):
                producer.send(Message("probes", b"are you there"))
        except (SendFailedError, ClientError):
            return False
        return True

    def _take_turn(self, turn: int) -> None:
        self._configure(turn)
        is_late = turn % 2 == 1
        if is_late:
            self._send_orders(turn)
        with consumer_of(self.cluster, "python", self.python, "orders"):
            if not is_late:
                self._send_orders(turn)
            self.python.wait(_ORDERS * (turn + 1))
            self._await(lambda: self._is_consumed("python", "all", "sql"))
        if turn < _SWITCHES:
            self._send_what_waits(turn)

    def _send_orders(self, turn: int) -> None:
        half = _ORDERS // 2
        for size, seed in ((5, 10 + turn), (15, 20 + turn)):
            self._send("orders", half, seed, properties={"size": str(size)})

    def _send(self, topic: str, count: int, seed: int, **options: Any) -> None:
        rows = self.java.send("p", topic, count, seed=seed, **options)
        self.sent[topic] += [row["keys"] for row in rows]

    def _send_what_waits(self, turn: int) -> None:
        """Send messages for the next broker to deliver, check or retry."""
        self._send("again", _FEW, 30 + turn)
        self._send("never", _FEW, 40 + turn)
        self._await(lambda: self._is_consumed("again", "again", topic="again"))
        self._await(lambda: self._is_consumed("never", topic="never"))
        self._send_transactions(turn)
        self._send("later", _FEW, 50 + turn, delay_level=_LATER_LEVEL)
        for number in range(_FEW):
            self._send_later(f"python-level-{turn}-{number}", delay_level=_LATER_LEVEL)
            if self.has_timers:
                self._send_later(f"python-timer-{turn}-{number}", delay_ms=_LATER_MS)
        if self.has_timers:
            at = int(time.time() * 1000) + _LATER_MS
            written = [
                {"body": key, "keys": key, "deliver_time_ms": at}
                for key in (f"java-timer-{turn}-{number}" for number in range(_FEW))
            ]
            rows = self.java.send("p", "later", messages=written)
            self.sent["later"] += [row["keys"] for row in rows]

    def _send_later(self, key: str, **when: int) -> None:
        self._producer.send(Message("later", key.encode(), keys=[key]), **when)
        self.sent["later"].append(key)

    def _send_transactions(self, turn: int) -> None:
        for number in range(_FEW):
            answer = "COMMIT_MESSAGE" if number % 3 else "ROLLBACK_MESSAGE"
            key = f"python-{turn}-{number}"
            message = Message("paid", key.encode(), keys=[key], properties={"answer": answer})
            self._payer.send_in_transaction(message)
            java = f"java-{turn}-{number}"
            said = {"local": "open", "answer": answer.partition("_")[0].lower()}
            written = [{"body": java, "keys": java, "properties": said}]
            self.java.send("payer", "paid", messages=written, mode="transaction")
            if number % 3:
                self.sent["paid"] += [key, java]

    def _configure(self, turn: int) -> None:
        """Let each broker make a topic and a group, and change those of earlier brokers."""
        for before in range(turn + 1):
            perm = 6 if before == turn else 4
            self.java.create_topic(f"{_CONFIGURED}-{before}", 3 + turn, perm=perm)
        settings = {"retryQueueNums": 2 + turn, "retryMaxTimes": 5 + turn}
        self.java.ask("create_group", group=_CONFIGURED, settings=settings)

    def _is_consumed(self, *groups: str, topic: str = "orders") -> bool:
        ends = {queue: stats.max_offset for queue, stats in self._admin.topic_stats(topic).items()}
        return all(self._offsets(group, topic) == ends for group in groups)

    def _offsets(self, group: str, topic: str) -> dict[MessageQueue, int]:
        stats = self._admin.consume_stats(group, topic)
        return {queue: each.consumer_offset for queue, each in stats.queues.items()}

    def _state(self) -> tuple[Any, Any]:
        """Return a broker's topics, groups and offsets, which the next one must report too."""
        topics = self.java.ask("topic_configs", broker=BROKER)
        groups = self.java.ask("groups", broker=BROKER)
        offsets = {
            (group, topic): self._offsets(group, topic)
            for group, topic in (("python", "orders"), ("all", "orders"), ("sql", "orders"))
        }
        return {"topics": topics, "groups": groups}, offsets

    def _await_all(self) -> None:
        self._await(lambda: len(self.java.received("again")) >= 2 * _FEW * _SWITCHES)
        self._await(lambda: len(self.java.received("never")) >= 3 * _FEW * _SWITCHES)
        self._await(lambda: self._count("later") >= len(self.sent["later"]))
        self._await(lambda: self._count("paid") >= len(self.sent["paid"]))
        self._await(lambda: self._count("%DLQ%never") >= _FEW * _SWITCHES)

    def _await(self, condition: Callable[[], bool]) -> None:
        if not wait_until(condition, _ENDS_S):
            counts = {topic: (self._count(topic), len(keys)) for topic, keys in self.sent.items()}
            raise AssertionError(
                f"{self.release}, after {len(self.stopped_ms)} switches: {counts} stored and sent"
            )

    def _count(self, topic: str) -> int:
        if topic not in self._admin.topics():
            return 0
        return sum(each.max_offset for each in self._admin.topic_stats(topic).values())

    def open_halves(self) -> list[int]:
        """Return the queue offsets of transactions without an end, according to the files."""
        texts = {key: str(value) for key, value in SMALL_FILES.items()}
        config = MessageStoreConfig.from_properties(texts)
        with StoreSnapshot(str(self.cluster.store()), config) as snapshot:
            assert_sound(snapshot)
            found: list[int] = find_open_halves(snapshot, 0, 0).open_queue_offset.tolist()
            return found


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Game]:
    for release in ALL_RELEASES:
        build(release)
    games = {
        release: Game(release, tmp_path_factory.mktemp(f"r{release}")) for release in ALL_RELEASES
    }
    with ThreadPoolExecutor(len(games)) as pool:
        for playing in [pool.submit(game.play) for game in games.values()]:
            playing.result()
    return games


@pytest.fixture(params=ALL_RELEASES)
def game(request: pytest.FixtureRequest, games: dict[str, Game]) -> Game:
    return games[request.param]


def keys_of(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["keys"] for row in rows)


def test_every_group_gets_each_message_once(game: Game) -> None:
    wanted = Counter(game.sent["orders"])
    assert len(wanted) == _TURNS * _ORDERS
    assert keys_of(game.stored["orders"]) == wanted
    assert keys_of(game.rows["all"]) == wanted
    assert Counter(message.properties["KEYS"] for message in game.python.messages) == wanted
    big = [numbered_key(20 + turn, n) for turn in range(_TURNS) for n in range(_ORDERS // 2)]
    assert keys_of(game.rows["sql"]) == Counter(big)


def test_what_waits_is_delivered_once_by_the_next_broker(game: Game) -> None:
    rows = game.stored["later"]
    assert keys_of(rows) == Counter(game.sent["later"])
    of_first = [row for row in rows if row["born_timestamp"] < game.stopped_ms[0]]
    assert any(row["store_timestamp"] > game.stopped_ms[0] for row in of_first)
    of_ours = [
        row for row in rows if game.stopped_ms[0] < row["born_timestamp"] < game.stopped_ms[1]
    ]
    assert any(row["store_timestamp"] > game.stopped_ms[1] for row in of_ours)
    for row in rows:
        assert row["store_timestamp"] >= row["born_timestamp"] + _LATER_MS - 1_000


def test_open_transactions_are_asked_for_and_end_once(game: Game) -> None:
    assert keys_of(game.stored["paid"]) == Counter(game.sent["paid"])
    assert game.open_halves() == []


def test_retries_and_dead_letters(game: Game) -> None:
    for name, times in (("again", 2), ("never", 3)):
        found: defaultdict[str, list[int]] = defaultdict(list)
        for row in game.rows[name]:
            found[row["keys"]].append(row["reconsume_times"])
        assert found == {key: list(range(times)) for key in game.sent[name]}
    assert keys_of(game.stored["%DLQ%never"]) == Counter(game.sent["never"])


def test_topics_groups_and_offsets_are_taken_over(game: Game) -> None:
    switches = list(zip(game.states[:-1:2], game.states[1:-1:2]))
    assert len(switches) == _SWITCHES
    for before, after in switches:
        for kind, rows in before[0].items():
            kept = {name: after[0][kind].get(name) for name in rows}
            assert kept == rows, kind
        assert before[1] == after[1]
    config, _ = game.states[-1]
    for turn in range(_TURNS):
        topic = config["topics"][f"{_CONFIGURED}-{turn}"]
        perm = 6 if turn == _SWITCHES else 4
        assert (topic["writeQueueNums"], topic["perm"]) == (2 + _TURNS, perm)
    group = config["groups"][_CONFIGURED]
    assert (group["retryQueueNums"], group["retryMaxTimes"]) == (1 + _TURNS, 4 + _TURNS)
