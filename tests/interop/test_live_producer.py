"""What our producers send, RocketMQ's brokers store and its own clients read."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqnet import (
    BrokerError,
    ClientConfig,
    ClientError,
    ClientInstance,
    LocalTransactionState,
    Message,
    Producer,
    SendStatus,
    TransactionProducer,
    reply_to,
)
from rmqnet.client.pull_result import PullStatus
from rmqnet.client.received_messages import messages_from_body
from rmqnet.remoting.headers import PullMessageRequestHeader
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
    except Exception:  # the index is behind
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
    """Answers as the messages say, and notes what it was asked."""

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
    queue = producer.publish_queues(topic)[0]
    replies: list[Message] = []
    with ClientInstance(live_cluster.namesrv_addr) as client, Producer("replier", client) as other:
        asking = threading.Thread(
            target=lambda: replies.append(producer.request(Message(topic, b"1 + 1"), timeout_s=10))
        )
        asking.start()
        request = _first_message(client, topic, len(producer.publish_queues(topic)))
        assert request.body == b"1 + 1"
        other.send(reply_to(request, b"2"))
        asking.join(15)
    assert queue.topic == topic
    assert [reply.body for reply in replies] == [b"2"]


def _first_message(client: ClientInstance, topic: str, queues: int) -> Message:
    found: list[Message] = []

    def look() -> bool:
        for queue_id in range(queues):
            found.extend(_pull(client, topic, queue_id))
        return bool(found)

    client.call(client.route(topic))
    assert wait_until(look, 10)
    return found[0]


def _pull(client: ClientInstance, topic: str, queue_id: int) -> list[Message]:
    (broker_name,) = client.cached_route(topic).brokers  # type: ignore[union-attr]
    header = PullMessageRequestHeader(
        consumer_group="judge",
        topic=topic,
        queue_id=queue_id,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
        expression_type="TAG",
        bname=broker_name,
    )
    pulled = client.call(client.broker.pull(client.broker_address(broker_name), header, 5.0))
    if pulled.status is not PullStatus.FOUND:
        return []
    return messages_from_body(pulled.body, broker_name)


class _Senders:
    """Threads that send, in each way, until they are told to stop."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged: dict[str, bytes] = {}
        self.failed = 0
        self.tries_of: dict[str, int] = defaultdict(int)
        kinds = (self._sync, self._async, self._batch)
        self._threads = [threading.Thread(target=self._run, args=(kind,)) for kind in kinds]

    def __enter__(self) -> _Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, kind: Any) -> None:
        number = 0
        while not self._stop.is_set():
            body = f"{kind.__name__}-{number}".encode()
            try:
                kind(body)
            except (ClientError, BrokerError):  # also: no broker is left that has the topic
                self.failed += 1
            number += 1
            time.sleep(0.1)  # else the judge has a hundred thousand messages to read

    def _note(self, message_id: str, body: bytes) -> None:
        with self._lock:
            self.acknowledged[message_id] = body

    def _sync(self, body: bytes) -> None:
        result = self._producer.send(Message(self._topic, body), timeout_s=2)
        self._note(result.message_id, body)

    def _async(self, body: bytes) -> None:
        messages = [Message(self._topic, body + b"-%d" % number) for number in range(20)]
        futures = [self._producer.send_async(each, timeout_s=2) for each in messages]
        for message, future in zip(messages, futures):
            try:
                self._note(future.result().message_id, message.body)
            except ClientError:
                self.failed += 1

    def _batch(self, body: bytes) -> None:
        messages = [Message(self._topic, body + b"-%d" % number) for number in range(5)]
        result = self._producer.send_batch(messages, timeout_s=2)
        for message_id, message in zip(result.message_id.split(","), messages):
            self._note(message_id, message.body)


@pytest.mark.parametrize(
    ("release", "brokers"), [("5.3.3", ("broker-a", "broker-b")), ("4.9.7", ("broker-a",))]
)
def test_nothing_acknowledged_is_lost_when_brokers_die(
    tmp_path: Path, release: str, brokers: tuple[str, ...]
) -> None:
    with LiveCluster(tmp_path / "cluster", release, brokers=brokers) as cluster:
        topic = unique("topic")
        config = ClientConfig(cluster.namesrv_addr, poll_name_server_interval_ms=1000)
        with ClientNode(tmp_path / "jvm", release, cluster.namesrv_addr) as java:
            java.create_topic(topic)
            with (
                Producer("pg", config) as producer,
                _Senders(producer, topic) as senders,
            ):
                assert wait_until(_more(senders, 200))
                cluster.kill_broker("broker-a")
                if len(brokers) > 1:  # the other one goes on
                    assert wait_until(_more(senders, 200))
                cluster.start_broker("broker-a")
                assert wait_until(lambda: _sends_to(producer, topic, "broker-a"), 40)
                assert wait_until(_more(senders, 200))
            rows = java.pull_all(topic)
    stored: dict[str, set[bytes]] = defaultdict(set)
    for row in rows:
        stored[row["msg_id"]].add(body_of(row))
    assert len(senders.acknowledged) >= 400
    for message_id, body in senders.acknowledged.items():
        assert stored[message_id] == {body}


def _more(senders: _Senders, count: int) -> Any:
    target = len(senders.acknowledged) + count
    return lambda: len(senders.acknowledged) >= target


def _sends_to(producer: Producer, topic: str, broker_name: str) -> bool:
    try:
        return producer.send(Message(topic, b"probe")).queue.broker_name == broker_name
    except ClientError:
        return False
