# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's brokers store messages of our producers, and its clients read them."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rmqnet import (
    BrokerError,
    ClientError,
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    SendStatus,
    TransactionProducer,
    reply_to,
)
from tests.interop.client_node import ClientNode, body_of, wait_until
from tests.interop.live_cluster import LiveCluster, unique

pytestmark = pytest.mark.interop

KEYS = ["order-1", "order-42", "polygenelubricants", "user:äö", "中文", "\U0001f600", "", "a"]
SET_BY_CLIENT_OR_BROKER = {"WAIT", "UNIQ_KEY", "CLUSTER", "MSG_REGION", "TRACE_ON"}
SET_BY_JUDGE = {"MIN_OFFSET", "MAX_OFFSET"}


@pytest.fixture(scope="module")
def java(
    live_cluster: LiveCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientNode]:
    directory = tmp_path_factory.mktemp("judge") / "jvm"
    with ClientNode(directory, live_cluster.release, live_cluster.namesrv_addr) as java:
        yield java


@pytest.fixture(scope="module")
def producer(live_cluster: LiveCluster) -> Iterator[Producer]:
    with Producer(unique("pg"), live_cluster.namesrv_addr) as producer:
        yield producer


@pytest.fixture
def topic(java: ClientNode) -> str:
    topic = unique("topic")
    java.create_topic(topic)
    return topic


def by_body(rows: list[dict[str, Any]]) -> dict[bytes, dict[str, Any]]:
    found = {body_of(row): row for row in rows}
    assert len(found) == len(rows), "a body came twice"
    return found


def own_properties(row: dict[str, Any]) -> dict[str, str]:
    given = row["properties"].items()
    return {k: v for k, v in given if k not in SET_BY_CLIENT_OR_BROKER | SET_BY_JUDGE}


def test_every_kind_of_send_arrives(java: ClientNode, producer: Producer, topic: str) -> None:
    properties = {"ä": "\U0001f600", "n": "1"}

    def message(body: bytes, **more: Any) -> Message:
        return Message(topic, body, tags="t", keys=["k1", "k2"], properties=properties, **more)

    results = {b"sync": producer.send(message(b"sync", flag=7))}
    futures = {b"async-%d" % n: message(b"async-%d" % n) for n in range(100)}
    results.update(
        (body, future.result())
        for body, future in [(body, producer.send_async(m)) for body, m in futures.items()]
    )
    batch = [message(b"batch-%d" % number, flag=number) for number in range(10)]
    batched = producer.send_batch(batch)
    long = bytes(range(256)) * 40
    results[long] = producer.send(message(long))
    producer.send_oneway(message(b"oneway"))
    expected = {*results, b"oneway", *(each.body for each in batch)}
    assert wait_until(lambda: len(java.pull_all(topic)) == len(expected))
    rows = by_body(java.pull_all(topic))
    assert rows.keys() == expected
    for body, result in results.items():
        row = rows[body]
        assert result.status is SendStatus.SEND_OK
        assert result.queue == (row["topic"], row["broker"], row["queue_id"])
        assert (result.message_id, result.queue_offset) == (row["msg_id"], row["queue_offset"])
        assert result.offset_message_id == row["offset_msg_id"]
    for row in rows.values():
        assert (row["tags"], row["keys"]) == ("t", "k1 k2")
        assert own_properties(row) == {**properties, "TAGS": "t", "KEYS": "k1 k2"}
        assert row["properties"].get("WAIT", "true") == "true"  # release 4 does not store it
    assert rows[b"sync"]["flag"] == 7
    assert [rows[each.body]["flag"] for each in batch] == list(range(10))
    assert batched.message_id.split(",") == [rows[each.body]["msg_id"] for each in batch]
    assert batched.offset_message_id.split(",") == [
        rows[each.body]["offset_msg_id"] for each in batch
    ]
    places = [(rows[each.body]["queue_id"], rows[each.body]["queue_offset"]) for each in batch]
    first = batched.queue_offset
    assert places == [(batched.queue.queue_id, first + number) for number in range(10)]


def test_java_finds_messages_by_our_ids(java: ClientNode, producer: Producer, topic: str) -> None:
    result = producer.send(Message(topic, b"find me"))
    for message_id in (result.message_id, result.offset_message_id):
        assert wait_until(lambda found=message_id: _is_found(java, topic, found), 10)


def _is_found(java: ClientNode, topic: str, message_id: str) -> bool:
    try:
        row = java.ask("view", topic=topic, msg_id=message_id)
    except Exception:  # the index lags behind
        return False
    return body_of(row) == b"find me"


def test_a_key_leads_to_the_queue_that_java_chooses(java: ClientNode, producer: Producer) -> None:
    topic = unique("topic")
    java.create_topic(topic, queues=7)
    name = unique("java")
    java.start_producer(name, name)
    rows = java.send(name, topic, len(KEYS), seed=1, mode="ordered", sharding_keys=KEYS)
    theirs = [(row["broker"], row["queue_id"]) for row in rows]
    ours = [producer.send(Message(topic, b"x"), sharding_key=key).queue[1:] for key in KEYS]
    assert ours == theirs


@pytest.mark.parametrize("kind", ["LZ4", "ZSTD", "ZLIB"])
def test_compressed_bodies_are_read(
    java: ClientNode, live_cluster: LiveCluster, topic: str, kind: str
) -> None:
    if kind != "ZLIB" and live_cluster.release.startswith("4"):
        pytest.skip("clients of release 4 read ZLIB only")
    body = kind.encode() * 5000
    with Producer(unique("pg"), live_cluster.namesrv_addr, compress_type=kind) as producer:
        producer.send(Message(topic, body))
    (row,) = java.pull_all(topic)
    assert body_of(row) == body
    assert row["store_size"] < 1000


def test_delayed_messages_come_later(
    java: ClientNode, producer: Producer, live_cluster: LiveCluster, topic: str
) -> None:
    began_ms = time.time_ns() // 1_000_000
    due_ms = began_ms + 2500
    producer.send(Message(topic, b"level"), delay_level=2)  # 2 s in this cluster
    expected = {b"level": began_ms + 2000}
    if live_cluster.release.startswith("5"):
        producer.send(Message(topic, b"at"), deliver_at_ms=due_ms)
        producer.send(Message(topic, b"after"), delay_ms=2500)
        # The timer's precision is one second, rounded down.
        expected.update({b"at": due_ms - 1000, b"after": due_ms - 1000})
    assert java.pull_all(topic) == []
    assert wait_until(lambda: len(java.pull_all(topic)) == len(expected), 15)
    for body, row in by_body(java.pull_all(topic)).items():
        assert row["store_timestamp"] >= expected[body], body


def test_what_a_broker_refuses(live_cluster: LiveCluster, java: ClientNode, topic: str) -> None:
    with Producer(unique("pg"), live_cluster.namesrv_addr, max_message_size=8 << 20) as producer:
        body = random.Random(1).randbytes(5 << 20)  # does not shrink
        with pytest.raises(BrokerError, match=f"to topic {topic} with code 13"):
            producer.send(Message(topic, body, properties={"a": "b"}), timeout_s=10)
        with pytest.raises(ClientError, match="more than max_message_size"):
            producer.send(Message(topic, bytes(9 << 20)))
    assert java.pull_all(topic) == []


def test_a_topic_is_made_by_its_first_message(java: ClientNode, producer: Producer) -> None:
    topic = unique("made")
    result = producer.send(Message(topic, b"first"))
    assert result.status is SendStatus.SEND_OK
    assert wait_until(lambda: _knows(java, topic))
    assert [body_of(row) for row in java.pull_all(topic)] == [b"first"]
    assert len(producer.publish_queues(topic)) == 4


def _knows(java: ClientNode, topic: str) -> bool:
    try:
        java.ask("route", topic=topic)
    except Exception:
        return False
    return True


class _Ledger:
    """Answers as the messages say, and records the checks."""

    def __init__(self) -> None:
        self.checked: list[bytes] = []

    def execute_local_transaction(self, message: Message, argument: Any) -> LocalTransactionState:
        return _state(argument)

    def check_local_transaction(self, message: Message) -> LocalTransactionState:
        self.checked.append(message.body)
        return _state(message.properties["later"])


def _state(name: str) -> LocalTransactionState:
    if name == "fail":
        raise RuntimeError("the database is down")
    return LocalTransactionState[name]


def test_transactions_are_committed_rolled_back_and_asked_for(
    java: ClientNode, live_cluster: LiveCluster, topic: str
) -> None:
    ledger = _Ledger()
    commit, rollback, unknown = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOWN"
    with TransactionProducer(unique("tx"), live_cluster.namesrv_addr, ledger) as producer:
        for now, later in [
            (commit, rollback),
            (rollback, commit),
            (unknown, commit),
            (unknown, rollback),
            ("fail", commit),
        ]:
            message = Message(topic, f"{now}-{later}".encode(), properties={"later": later})
            result = producer.send_in_transaction(message, now)
            assert result.status is SendStatus.SEND_OK
        assert wait_until(lambda: len(java.pull_all(topic)) == 3, 20)
        assert wait_until(lambda: len(set(ledger.checked)) == 3, 20)
    committed = by_body(java.pull_all(topic))
    assert committed.keys() == {
        b"COMMIT_MESSAGE-ROLLBACK_MESSAGE",
        b"UNKNOWN-COMMIT_MESSAGE",
        b"fail-COMMIT_MESSAGE",
    }
    assert set(ledger.checked) == {
        b"UNKNOWN-COMMIT_MESSAGE",
        b"UNKNOWN-ROLLBACK_MESSAGE",
        b"fail-COMMIT_MESSAGE",
    }
    assert all(row["sys_flag"] & 0xC == 8 for row in committed.values())


def test_a_request_gets_its_reply(
    producer: Producer, live_cluster: LiveCluster, topic: str
) -> None:
    with _replier(live_cluster, topic, unique("replier")):
        replies = [producer.request(Message(topic, b"%d" % n), timeout_s=10) for n in range(3)]
    assert [reply.body for reply in replies] == [b"re: 0", b"re: 1", b"re: 2"]


def test_java_replies_to_us_and_we_to_java(
    java: ClientNode, producer: Producer, live_cluster: LiveCluster, topic: str
) -> None:
    name = unique("java")
    java.start_producer(name, name)
    with _replier(live_cluster, topic, unique("replier")):
        reply = java.ask("request", name=name, topic=topic, body="1 + 1", timeout_ms=10_000)
    assert body_of(reply) == b"re: 1 + 1"
    assert reply["topic"] == "DefaultCluster_REPLY_TOPIC"
    theirs = unique("topic")
    java.create_topic(theirs, 1)
    java.ask("replier", name=unique("replier"), group=unique("g"), topic=theirs, producer=name)
    assert producer.request(Message(theirs, b"2 + 2"), timeout_s=10).body == b"re: 2 + 2"


@contextmanager
def _replier(cluster: LiveCluster, topic: str, group: str) -> Iterator[None]:
    """Reply with "re: " and the request."""
    with Producer(group, cluster.namesrv_addr) as producer:

        def reply(messages: list[Message], _: object) -> None:
            for message in messages:
                producer.send(reply_to(message, b"re: " + message.body))

        options = PushConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer = PushConsumer(group, cluster.namesrv_addr, reply, options=options)
        consumer.subscribe(topic)
        with consumer:
            yield


def test_an_asyncio_program_sends(java: ClientNode, live_cluster: LiveCluster, topic: str) -> None:
    async def main() -> dict[str, bytes]:
        with Producer(unique("pg"), live_cluster.namesrv_addr) as producer:

            async def send(body: bytes) -> tuple[str, bytes]:
                future = producer.send_async(Message(topic, body))
                return (await asyncio.wrap_future(future)).message_id, body

            return dict(await asyncio.gather(*(send(b"%d" % number) for number in range(100))))

    sent = asyncio.run(main())
    assert len(sent) == 100
    assert {row["msg_id"]: body_of(row) for row in java.pull_all(topic)} == sent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of Python 3.12; intended
def test_a_forked_child_has_a_client_of_its_own(
    java: ClientNode, live_cluster: LiveCluster, topic: str
) -> None:
    with Producer(unique("pg"), live_cluster.namesrv_addr) as producer:
        producer.send(Message(topic, b"before"))
        futures = [producer.send_async(Message(topic, b"under way")) for _ in range(100)]
        child = os.fork()
        if child == 0:  # pragma: no cover
            _end_child(producer, live_cluster.namesrv_addr, topic)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        ids = [future.result().message_id for future in futures]
        ids.append(producer.send(Message(topic, b"after")).message_id)
    rows = java.pull_all(topic)
    bodies = Counter(body_of(row) for row in rows)
    assert bodies == {b"before": 1, b"under way": 100, b"of the child": 1, b"after": 1}
    assert len({row["msg_id"] for row in rows}) == len(rows)
    assert set(ids) < {row["msg_id"] for row in rows}


def _end_child(producer: Producer, namesrv_addr: str, topic: str) -> None:
    """Check that the parent's producer refuses to work, use an own one, and end the process."""
    status = 1
    try:
        for send in (producer.send, producer.send_async):
            with pytest.raises(ClientError, match="does not run in this process"):
                send(Message(topic, b"of nobody"))
        producer.shutdown()
        with Producer("child", namesrv_addr) as own:
            own.send(Message(topic, b"of the child"))
        status = 0
    finally:
        os._exit(status)
