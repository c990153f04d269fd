# SPDX-License-Identifier: Apache-2.0
"""Our consumers on RocketMQ's brokers, beside its own consumers and checked by its admin."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from rmqnet import (
    Admin,
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByMachineRoom,
    BrokerError,
    ClientConfig,
    ClientInstance,
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    MessageModel,
    MessageQueue,
    PullConsumer,
    PullConsumerOptions,
    PushConsumer,
    PushConsumerOptions,
)
from rmqnet.client.consumer.allocation import AllocationStrategy, allocate
from tests.interop.client_node import ClientNode, body_of, numbered_body, read_sent, wait_until
from tests.interop.live_cluster import LiveCluster, unique

pytestmark = pytest.mark.interop

TIMEOUT_S = 90
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Delivery:
    """Messages that one listener got, in order."""

    def __init__(self, fails: Callable[[Message], bool] = lambda message: False) -> None:
        self.messages: list[Message] = []
        self._fails = fails
        self._guard = threading.Lock()

    def __call__(self, messages: list[Message], context: ConsumeContext) -> bool:
        with self._guard:
            # Copies: an orderly consumer counts failures on the message itself.
            self.messages += map(copy.copy, messages)
        return not any(map(self._fails, messages))

    @property
    def bodies(self) -> Counter[bytes]:
        return Counter(each.body for each in self.messages)

    def wait(self, count: int) -> None:
        assert wait_until(lambda: len(self.messages) >= count, TIMEOUT_S), len(self.messages)


def consumer_of(
    cluster: LiveCluster,
    group: str,
    listener: Callable[[list[Message], ConsumeContext], Any],
    topic: str,
    tags: str = "*",
    *,
    sql: str | None = None,
    orderly: bool = False,
    client: dict[str, Any] | None = None,
    **options: Any,
) -> PushConsumer:
    options.setdefault("consume_from_where", FIRST)
    options.setdefault("rebalance_interval_ms", 1000)
    options.setdefault("pull_retry_delay_ms", 300)
    settings = {"persist_consumer_offset_interval_ms": 300, **(client or {})}
    consumer = PushConsumer(
        group,
        ClientConfig(cluster.namesrv_addr, **settings),
        listener,
        orderly=orderly,
        options=PushConsumerOptions(**options),
    )
    consumer.subscribe(topic, tags, sql=sql)
    return consumer


@pytest.fixture(scope="module")
def java(
    live_cluster: LiveCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientNode]:
    directory = tmp_path_factory.mktemp("judge") / "jvm"
    with ClientNode(directory, live_cluster.release, live_cluster.namesrv_addr) as java:
        java.start_producer("p", "pg")
        yield java


@pytest.fixture
def topic(java: ClientNode) -> str:
    topic = unique("topic")
    java.create_topic(topic)
    return topic


def offsets_of(java: ClientNode, group: str, topic: str) -> dict[int, int]:
    """Return a group's offsets as the admin reports them, by queue id."""
    return {queue.queue_id: at for queue, at in java.consumer_offsets(group, topic).items()}


def ends_of(rows: list[dict[str, Any]]) -> dict[int, int]:
    """Return the end of each queue to which messages were sent."""
    ends: defaultdict[int, int] = defaultdict(int)
    for row in rows:
        ends[row["queue_id"]] = max(ends[row["queue_id"]], row["queue_offset"] + 1)
    return dict(ends)


def test_once_again_and_aside(live_cluster: LiveCluster, java: ClientNode, topic: str) -> None:
    """Every message comes once, a failed one again; a stubborn one ends as Java's dead letter."""
    ours, theirs = unique("group"), unique("group")
    java.start_consumer(
        "stubborn", theirs, {topic: "*"}, max_reconsume_times=2, fail_always=["K5-7"]
    )
    listener = Delivery(
        lambda message: (
            message.keys == ["K5-7"] or (message.keys == ["K5-3"] and message.reconsume_times < 1)
        )
    )
    with consumer_of(live_cluster, ours, listener, topic, max_reconsume_times=2):
        sent = java.send("p", topic, 60, seed=5, size=200, mode="async")
        sent += java.send("p", topic, 5, seed=6, size=20_000)  # compressed
        listener.wait(68)
        rows = [dead_letter(java, group) for group in (ours, theirs)]
        assert wait_until(lambda: offsets_of(java, ours, topic) == ends_of(sent), TIMEOUT_S)
        assert wait_until(lambda: offsets_of(java, ours, f"%RETRY%{ours}") == {0: 3}, TIMEOUT_S)
    java.close_consumer("stubborn")
    bodies = [numbered_body(5, i, 200) for i in range(60)]
    bodies += [numbered_body(6, i, 20_000) for i in range(5)]
    assert listener.bodies == Counter([*bodies, bodies[3], bodies[7], bodies[7]])
    assert {each.topic for each in listener.messages} == {topic}
    times = [each.reconsume_times for each in listener.messages if each.keys == ["K5-7"]]
    assert times == [0, 1, 2]
    mine, its = (row["properties"] for row in rows)
    assert {name: value.replace(ours, "GROUP") for name, value in mine.items()} == {
        name: value.replace(theirs, "GROUP") for name, value in its.items()
    }
    assert [row["reconsume_times"] for row in rows] == [3, 3]


def dead_letter(java: ClientNode, group: str) -> dict[str, Any]:
    """Wait for the one message among the dead letters of a group."""
    topic = f"%DLQ%{group}"
    assert wait_until(lambda: topic in java.ask("topics") and java.pull_all(topic), TIMEOUT_S)
    (row,) = java.pull_all(topic)
    return row


@pytest.mark.parametrize("members", ["ours", "mixed"])
def test_in_order(live_cluster: LiveCluster, java: ClientNode, topic: str, members: str) -> None:
    """Each queue stays in order, even if it moves to a Java member; a failed message comes next."""
    group = unique("group")
    listener = Delivery(lambda message: message.queue_offset == 5 and message.reconsume_times < 2)
    with consumer_of(
        live_cluster, group, listener, topic, orderly=True, suspend_current_queue_time_ms=20
    ) as consumer:
        sent = java.send("p", topic, 80, seed=1, mode="async")
        listener.wait(88)
        rows: list[dict[str, Any]] = []
        if members == "mixed":
            java.start_consumer("orderly", group, {topic: "*"}, orderly=True)
            ours = 2
            assert wait_until(
                lambda: (
                    sum(each.topic == topic for each in consumer.queues) == ours
                    and sum(each.topic == topic for each in java.allocation("orderly")) == ours
                ),
                TIMEOUT_S,
            )
            sent += java.send("p", topic, 80, seed=2)
            assert wait_until(
                lambda: len(listener.messages) - 88 + len(java.received("orderly")) >= 80,
                TIMEOUT_S,
            )
            rows = java.close_consumer("orderly")
            assert len(rows) == 40
    order: defaultdict[int, list[int]] = defaultdict(list)
    for each in listener.messages:
        if each.queue_offset != 5 or each.reconsume_times == 2:
            order[each.queue_id].append(each.queue_offset)
    for row in rows:
        order[row["queue_id"]].append(row["queue_offset"])
    assert {queue: len(offsets) for queue, offsets in order.items()} == ends_of(sent)
    assert all(offsets == list(range(len(offsets))) for offsets in order.values())
    assert offsets_of(java, group, topic) == ends_of(sent)


@pytest.mark.parametrize("strategy", [AllocateAveragely(), AllocateAveragelyByCircle()])
def test_java_and_python_share_the_queues(
    live_cluster: LiveCluster, java: ClientNode, strategy: AllocationStrategy
) -> None:
    group, topic = unique("group"), unique("topic")
    java.create_topic(topic, 10)
    java_ids = {
        name: java.start_consumer(
            name, group, {topic: "*"}, strategy=strategy.name, client_ip="10.9.0.1", instance=name
        )
        for name in ("b", "d")
    }
    listener = Delivery()
    consumers = [
        consumer_of(
            live_cluster,
            group,
            listener,
            topic,
            client={"client_ip": "10.9.0.1", "instance_name": name},
            allocation=strategy,
        )
        for name in ("a", "c")
    ]
    try:
        for each in consumers:
            each.start()
        members = [*java_ids.values(), *(each.client_id for each in consumers)]
        assert sorted(members) == ["10.9.0.1@a", "10.9.0.1@b", "10.9.0.1@c", "10.9.0.1@d"]
        queues = [MessageQueue(topic, "broker-a", queue_id) for queue_id in range(10)]
        wanted = {each: allocate(strategy, each, queues, members) for each in members}

        def shares() -> dict[str, list[Any]]:
            found = {each.client_id: each.queues for each in consumers}
            found.update({java_ids[name]: java.allocation(name) for name in java_ids})
            return {
                client_id: [each for each in share if each[0] == topic]
                for client_id, share in found.items()
            }

        assert wait_until(lambda: shares() == wanted, TIMEOUT_S), (shares(), wanted)
        java.send("p", topic, 100, seed=3, mode="async")

        def bodies() -> Counter[bytes]:
            rows = [row for name in java_ids for row in java.received(name)]
            return listener.bodies + Counter(map(body_of, rows))

        # Before members leave: messages whose offsets are not stored then are consumed again.
        assert wait_until(lambda: sum(bodies().values()) >= 100, TIMEOUT_S)
        assert bodies() == Counter(numbered_body(3, number) for number in range(100))
    finally:
        for each in consumers:
            each.shutdown()
    for name in java_ids:
        java.close_consumer(name)


@pytest.mark.parametrize(
    ("strategy", "rooms"),
    [
        (AllocateAveragely(), []),
        (AllocateAveragelyByCircle(), []),
        (AllocateByMachineRoom(frozenset({"r1", "é"})), ["r1", "é"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_strategies_give_what_javas_give(
    java: ClientNode, strategy: AllocationStrategy, rooms: list[str]
) -> None:
    """The real classes on random names and numbers; texts sort as in Java."""
    chance = random.Random(20)
    names = [
        "r1@a",
        "r1@b",
        "r2@a",
        "é@b",
        "é@",
        "@a",
        "r1@a@b",
        "r1",
        "z-1",
        "\uff5e",
        "\U0001f600",
    ]
    parts = ["10.0.0.", "192.168.1.", "\uff5e", "\U0001f600", "Z", "a"]
    cases = []
    for _ in range(300):
        brokers = chance.sample(names, chance.randint(1, 5))
        queues = [[name, i] for name in brokers for i in range(chance.randint(1, 12))]
        count = chance.randint(1, 9)
        members = sorted(
            {f"{chance.choice(parts)}{chance.randint(1, 30)}@{i}" for i in range(count)}
        )
        chance.shuffle(queues)
        chance.shuffle(members)
        cases.append({"queues": queues, "members": members})
    wanted = java.ask("allocate", strategy=strategy.name, machine_rooms=rooms, cases=cases)
    assert len(wanted) == len(cases)
    for case, shares in zip(cases, wanted):
        queues = [MessageQueue("topic", *each) for each in case["queues"]]
        for member, share in zip(case["members"], shares):
            ours = allocate(strategy, member, queues, case["members"])
            assert [[each.broker_name, each.queue_id] for each in ours] == share, case


def test_dead_letters_of_a_group_in_order(
    live_cluster: LiveCluster, java: ClientNode, topic: str
) -> None:
    """A message is retried immediately, then put aside; the queue goes on, as with Java."""
    ours, theirs = unique("group"), unique("group")
    java.start_consumer(
        "order", theirs, {topic: "*"}, orderly=True, max_reconsume_times=2, fail_always=["K5-3"]
    )
    listener = Delivery(lambda message: message.keys == ["K5-3"])
    options = {"max_reconsume_times": 2, "suspend_current_queue_time_ms": 20}
    with consumer_of(live_cluster, ours, listener, topic, orderly=True, **options):
        sent = java.send("p", topic, 12, seed=5)
        listener.wait(14)
        rows = [dead_letter(java, group) for group in (ours, theirs)]
        assert wait_until(lambda: offsets_of(java, ours, topic) == ends_of(sent), TIMEOUT_S)
    java.close_consumer("order")
    tries = [each.reconsume_times for each in listener.messages if each.keys == ["K5-3"]]
    assert (len(listener.messages), tries) == (14, [0, 1, 2])
    mine, its = (row["properties"] for row in rows)
    counts = [each.pop("RECONSUME_TIME") for each in (mine, its)]
    assert counts == ["3", "3" if live_cluster.release == "5.3.3" else "2"], "as 5.3.3 counts"
    assert [str(row["reconsume_times"]) for row in rows] == counts
    assert {name: value.replace(ours, "GROUP") for name, value in mine.items()} == {
        name: value.replace(theirs, "GROUP") for name, value in its.items()
    }


def test_inner_batches(live_cluster: LiveCluster, java: ClientNode) -> None:
    """Start in the middle of a batch; only failed messages come again, not the whole batch."""
    if live_cluster.release != "5.3.3":
        pytest.skip("batches are stored as such since release 5")
    group, topic = unique("group"), unique("batches")
    with ClientInstance(live_cluster.namesrv_addr) as client:
        admin = Admin(client)
        admin.create_topic(topic, 1, attributes={"queue.type": "BatchCQ"})
        queue = MessageQueue(topic, "broker-a", 0)
        java.send("p", topic, 10, seed=1, mode="batch", batch_size=5)
        bodies = [numbered_body(1, number) for number in range(10)]
        with PullConsumer(group, client) as consumer:
            consumer.assign([queue])
            consumer.seek(queue, 2)
            consumer.commit()
            messages = polled(consumer, lambda found: len(found) >= 8)
        assert [(each.queue_offset, each.body) for each in messages] == [
            (number, bodies[number]) for number in range(2, 10)
        ]
        assert len({each.commit_log_offset for each in messages}) == 2, "two batches"
        listener = Delivery(lambda message: message.body in bodies[3:5])
        with consumer_of(live_cluster, group, listener, topic, max_reconsume_times=1):
            listener.wait(10)
            assert wait_until(lambda: offsets_of(java, group, topic) == {0: 10}, TIMEOUT_S)
            letters = f"%DLQ%{group}"
            assert wait_until(
                lambda: letters in java.ask("topics") and len(java.pull_all(letters)) == 2,
                TIMEOUT_S,
            )
        assert listener.bodies == Counter(bodies[2:] + bodies[3:5])
        assert sorted(body_of(row) for row in java.pull_all(letters)) == bodies[3:5]


def test_broadcasting_and_each_others_offsets(
    live_cluster: LiveCluster, java: ClientNode, topic: str
) -> None:
    """Each member gets all; a later member goes on from the file of offsets, whose ever it is."""
    group = unique("group")
    client = {"client_ip": "10.9.0.2", "instance_name": group}
    java.start_consumer("other", group, {topic: "*"}, broadcasting=True)
    options = {
        "message_model": MessageModel.BROADCASTING,
        "offset_directory": java.offset_directory,
        "client": client,
    }
    first, third = Delivery(), Delivery()
    with consumer_of(live_cluster, group, first, topic, **options):
        java.send("p", topic, 20, seed=1)
        first.wait(20)
    java_client = {"client_ip": client["client_ip"], "instance": group}
    java.start_consumer("same", group, {topic: "*"}, broadcasting=True, **java_client)
    java.send("p", topic, 20, seed=2)
    java.wait_received("same", 20, TIMEOUT_S)
    rows = java.close_consumer("same")
    assert {body_of(row) for row in rows} == {numbered_body(2, number) for number in range(20)}
    with consumer_of(live_cluster, group, third, topic, **options):
        java.send("p", topic, 20, seed=3)
        third.wait(20)
    for listener, seed in ((first, 1), (third, 3)):
        assert listener.bodies == Counter(numbered_body(seed, number) for number in range(20))
    java.wait_received("other", 60, TIMEOUT_S)
    assert len(java.close_consumer("other")) == 60


def test_filters(live_cluster: LiveCluster, java: ClientNode, topic: str) -> None:
    by_tags, by_sql = Delivery(), Delivery()
    groups = unique("group"), unique("group")
    sql = "number BETWEEN 10 AND 19"
    with (
        consumer_of(live_cluster, groups[0], by_tags, topic, "red || blue"),
        consumer_of(live_cluster, groups[1], by_sql, topic, sql=sql),
    ):
        sent = java.send("p", topic, 60, seed=1, tags=["red", "green", "blue"])
        by_tags.wait(40)
        by_sql.wait(10)
        assert wait_until(lambda: offsets_of(java, groups[1], topic) == ends_of(sent), TIMEOUT_S)
    assert Counter(each.tags for each in by_tags.messages) == {"red": 20, "blue": 20}
    numbers = {int(each.properties["number"]) for each in by_sql.messages}
    assert (len(by_sql.messages), numbers) == (10, set(range(10, 20)))
    refused = consumer_of(live_cluster, unique("group"), by_sql, topic, sql="number >")
    with pytest.raises(BrokerError, match="CHECK_CLIENT_CONFIG"):
        refused.start()


def test_what_admins_see_and_do(live_cluster: LiveCluster, java: ClientNode, topic: str) -> None:
    group = unique("group")
    listener = Delivery()
    with consumer_of(live_cluster, group, listener, topic, "red") as consumer:
        sent = java.send("p", topic, 20, seed=1, tags=["red"])
        listener.wait(20)
        connections = java.ask("consumer_connections", group=group)
        assert [each["clientId"] for each in connections["connectionSet"]] == [consumer.client_id]
        named = {"group": group, "client_id": consumer.client_id}
        info = java.ask("running_info", **named)
        assert info["properties"]["PROP_CONSUMEORDERLY"] == "false"
        rows = {row["queue_id"]: row["info"] for row in info["queues"] if row["topic"] == topic}
        assert {queue: row["commitOffset"] for queue, row in rows.items()} == ends_of(sent)
        status = java.ask("consume_status", topic=topic, group=group)
        assert {row["queue_id"]: row["offset"] for row in status[consumer.client_id]} == ends_of(
            sent
        )
        direct = java.ask("consume_directly", topic=topic, msg_id=sent[3]["offset_msg_id"], **named)
        assert direct["consumeResult"] == "CR_SUCCESS"
        assert listener.messages[-1].unique_key == sent[3]["msg_id"]
        java.ask("reset_offset", topic=topic, group=group, timestamp=0, force=True)
        bodies = Counter({numbered_body(1, number): 2 + (number == 3) for number in range(20)})
        if live_cluster.release == "5.3.3":  # says so when a pull is over, or messages come
            sent += java.send("p", topic, 20, seed=2, tags=["red"])
            bodies += Counter(numbered_body(2, number) for number in range(20))
        listener.wait(sum(bodies.values()))
        assert listener.bodies == bodies
        assert wait_until(lambda: offsets_of(java, group, topic) == ends_of(sent), TIMEOUT_S)


def test_asked_for_messages(live_cluster: LiveCluster, java: ClientNode, topic: str) -> None:
    group = unique("group")
    sent = java.send("p", topic, 100, seed=1, size=5_000)
    options = PullConsumerOptions(consume_from_where=FIRST)
    with PullConsumer(group, live_cluster.namesrv_addr, options=options) as consumer:
        consumer.assign(consumer.queues_of(topic))
        queues = consumer.assignment
        messages = polled(consumer, lambda found: len(found) >= 60)
        consumer.commit()
        positions = {queue.queue_id: consumer.position(queue) for queue in queues}
        assert offsets_of(java, group, topic) == positions
        assert sum(positions.values()) == len(messages)
        messages += polled(consumer, lambda found: len(found) + len(messages) >= 100)
        assert Counter(each.body for each in messages) == Counter(
            numbered_body(1, number, 5_000) for number in range(100)
        )
        assert {(each.unique_key, each.message_id) for each in messages} == {
            (row["msg_id"], row["offset_msg_id"]) for row in sent
        }
        last = max(each.store_timestamp for each in messages)
        consumer.seek_to_time(last)
        later = {each.unique_key for each in messages if each.store_timestamp >= last}
        polled(consumer, lambda found: later <= {each.unique_key for each in found})
        consumer.assign(queues, sql="number < 5")
        consumer.seek_to_begin()
        few = polled(consumer, lambda found: len(found) >= 5)
        assert {each.properties["number"] for each in few} == set("01234")


def polled(consumer: PullConsumer, is_enough: Callable[[list[Message]], bool]) -> list[Message]:
    """Poll until there are enough messages; return them all."""
    found: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not is_enough(found):
        assert time.monotonic() < deadline, len(found)
        found += consumer.poll(10, timeout_s=1)
    return found


_CONSUMER = """
import os, sys, time
from rmqnet import ClientConfig, ConsumeFromWhere, PushConsumer, PushConsumerOptions

def listener(messages, context):
    for message in messages:
        os.write(1, f"{message.keys[0]}\\n".encode())  # at once: not mixed with other threads'
    time.sleep(0.002)

options = PushConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                              pull_retry_delay_ms=300, consume_thread_count=4)
config = ClientConfig(sys.argv[1], persist_consumer_offset_interval_ms=100)
with PushConsumer("killed", config, listener, options=options) as consumer:
    consumer.subscribe("killed")
    sys.stdin.read()
"""


def test_killed_consumers_and_brokers(tmp_path: Path) -> None:
    """Consumers and the broker die and come back while messages come: none is missing."""
    journal, printed = tmp_path / "sent", tmp_path / "consumed"
    script = tmp_path / "consumer.py"
    script.write_text(_CONSUMER)
    with (
        LiveCluster(tmp_path / "cluster") as cluster,
        ClientNode(tmp_path / "judge", cluster.release, cluster.namesrv_addr) as java,
    ):
        java.create_topic("killed")
        java.start_producer("p", "pg", retries=5)
        java.ask(
            "start_sending", name="p", topic="killed", count=2000, rate=400, journal=str(journal)
        )

        def consumed() -> Counter[str]:
            return Counter(printed.read_text().split())

        for step in range(3):
            with (
                printed.open("a") as output,
                subprocess.Popen(
                    [sys.executable, str(script), cluster.namesrv_addr],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
                ) as process,
            ):
                before = len(consumed())
                assert wait_until(lambda before=before: len(consumed()) >= before + 100, TIMEOUT_S)
                if step == 1:
                    cluster.kill_broker()
                    cluster.start_broker()
                    before = len(consumed())
                    assert wait_until(
                        lambda before=before: len(consumed()) >= before + 100, TIMEOUT_S
                    )
                if step < 2:
                    process.kill()
                    continue
                java.ask("join_sending", name="p", timeout_s=TIMEOUT_S)
                sent = set(read_sent(journal))
                assert wait_until(lambda sent=sent: sent <= consumed().keys(), TIMEOUT_S)
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(30) == 0
        assert len(sent) > 500
        ends = {row["queue_id"]: row["max_offset"] for row in java.ask("offsets", topic="killed")}
        assert offsets_of(java, "killed", "killed") == ends
