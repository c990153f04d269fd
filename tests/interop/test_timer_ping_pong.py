# SPDX-License-Identifier: Apache-2.0
"""RocketMQ and this project deliver each other's timer messages, on one store in turn."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqnet import Message as SentMessage
from rmqnet import Producer
from rmqsource.scan.store_versions import open_snapshots
from store_core import Message, MessageStore, MessageStoreConfig, TimerMessageStore
from store_core.codec.java_hash_map import hash_map_string
from store_core.codec.java_string import string_hash
from store_core.codec.message_codec import string_to_properties
from store_core.layout import TIMER_MAGIC_DELETE, TIMER_SLOT
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check.store_check import check_store
from tests.golden_store import tree_state
from tests.interop import java_cluster
from tests.interop.client_node import ClientNode, wait_until
from tests.interop.java_cluster import Broker, Served
from tests.interop.live_cluster import LiveCluster
from tests.interop.served_store import all_messages, assert_sound
from tests.interop.timed_topic import EACH as KINDS_EACH
from tests.interop.timed_topic import SETTINGS, Sender
from tests.interop.timed_topic import TOPIC as TIMED_TOPIC
from tests.rmqsource.metadata.support import rows_of
from tests.rmqsource.reading import parsed, read_rows
from tests.store_core.timer.timed_store import checkpoint_of, slot_of, units_of

pytestmark = pytest.mark.interop

RELEASE = "5.3.3"
TOPIC, TIMER = "alarms", "rmq_sys_wheel_timer"
EACH = 12
"""Messages of each kind."""
_HOUR_MS = 3_600_000
_NEVER_ENQUEUED = str(2**63 - 1)
_DELETED = "deleted"
_SETTINGS: dict[str, Any] = {
    "timerWheelEnable": "true",
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 800,
    "mappedFileSizeTimerLog": 16 + 52 * 20,
    "maxHashSlotNum": 125,
    "maxIndexNum": 500,
    "brokerIP1": "127.0.0.1",
}
_COUNT = 40


class PlayedStore:
    """A store that this project makes and a broker then serves, twice."""

    def __init__(self, directory: Path) -> None:
        self.root, self._directory = directory / "store", directory
        self.settings = {**_SETTINGS, "listenPort": java_cluster.free_port()}
        texts = {key: str(value) for key, value in self.settings.items()}
        self.config = MessageStoreConfig.from_properties(
            {**texts, "storePathRootDir": str(self.root)}
        )
        self.turns = 0
        self.served: list[Served] = []
        self.after_first: list[Message] = []
        self.delivered_here: list[Message] = []
        self.units_of_java: list[Any] = []
        self.pending_slot: Any = None
        self.far_ms = 0

    def open(self) -> MessageStore:
        return MessageStore(self.config, handle_timer_message=True)

    def put(self) -> None:
        """Put messages that are soon due and others; enqueue half of them, leave half to Java."""
        with self.open() as store:
            self.far_ms = store.clock() + _HOUR_MS
            for kind in ("enqueued", "queued"):
                for number in range(EACH):
                    _put(store, f"{kind}/near/{number}", TIMER_DELAY_MS="2500")
                    _put(store, f"{kind}/far/{number}", TIMER_DELIVER_MS=str(self.far_ms))
                _put(store, f"{kind}/{_DELETED}", TIMER_DELIVER_MS=str(self.far_ms))
                if kind == "enqueued":
                    assert store.wait_for_dispatch()
                    service = TimerMessageStore(store)
                    service.run_once()
                    assert service.queue_offset == 2 * EACH + 1
                    service.finish()
        assert len(units_of(self.root)) == 2 * EACH + 1

    def serve(self, wanted: int, **options: str) -> Broker:
        """Start a broker that waits until the topic has so many messages."""
        self.turns += 1
        given = {"wait": "90", "expect": f"{TOPIC}={wanted}", **options}
        directory = self._directory / f"java-{self.turns}"
        return Broker(self.root, directory, RELEASE, self.settings, given)

    def send_through_java(self, broker: Broker) -> None:
        """Send timer messages of either kind to the broker, and one that deletes two others."""
        ready = broker.ready()
        with Producer("timer-senders", ready["namesrv"]) as producer:
            for number in range(EACH):
                producer.send(_sent(f"java/near/{number}", TIMER_DELAY_MS="1500"))
                far = f"java/far/{number}"
                producer.send(_sent(far, TIMER_DELIVER_MS=str(self.far_ms)))
            for kind in ("enqueued", "queued"):
                key = f"{TOPIC}+{kind}/{_DELETED}"
                producer.send(
                    _sent("delete", TIMER_DEL_UNIQKEY=key, TIMER_DELIVER_MS=str(self.far_ms))
                )

    def deliver_rest(self) -> None:
        """Deliver, two hours later, the messages that the broker left waiting."""
        with self.open() as store:
            service = TimerMessageStore(store)
            now = store.clock() + 2 * _HOUR_MS
            while service.run_once(self.far_ms - 1):
                pass
            assert service.delivered == 0  # not a step too early
            while service.run_once(now):
                pass
            assert service.delivered == 3 * EACH
            assert service.passed_over == 4
            service.finish()

    def messages(self, topic: str = TOPIC) -> list[Message]:
        with StoreSnapshot(self.root, self.config) as snapshot:
            assert_sound(snapshot)
            return [message for message in all_messages(snapshot) if message.topic == topic]


def _put(store: MessageStore, name: str, **properties: str) -> None:
    message = Message(
        TOPIC, name.encode(), queue_id=1, unique_key=name, tags="TagA", properties=properties
    )
    assert store.put_message(message).is_appended


def _sent(name: str, **properties: str) -> SentMessage:
    return SentMessage(TOPIC, name.encode(), properties={"A": "b", **properties})


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> PlayedStore:
    java_cluster.build(RELEASE)
    store = PlayedStore(tmp_path_factory.mktemp("timers"))
    store.put()
    # Twelve seconds are enough to send, for messages due soon to come, and for Java to save.
    with store.serve(2 * EACH, keep="12") as broker:
        store.send_through_java(broker)
        store.served.append(broker.wait())
    assert store.served[0].ok, store.served[0].said
    store.after_first = store.messages()
    store.units_of_java = units_of(store.root)
    store.pending_slot = slot_of(store.root, (store.far_ms - 1) // 1000 * 1000)
    store.deliver_rest()
    store.delivered_here = store.messages()[len(store.after_first) :]
    with store.serve(6 * EACH, keep="4") as broker:
        store.served.append(broker.wait())
    assert store.served[1].ok, store.served[1].said
    return store


def names(messages: list[Message]) -> Counter[str]:
    return Counter(message.body.decode() for message in messages)


def wanted(*kinds: str) -> Counter[str]:
    return Counter(f"{kind}/{number}" for kind in kinds for number in range(EACH))


def test_a_broker_delivers_what_is_due_of_ours_and_its_own(played):
    assert names(played.after_first) == wanted("enqueued/near", "queued/near", "java/near")


def test_we_deliver_what_a_broker_left(played):
    assert names(played.delivered_here) == wanted("enqueued/far", "queued/far", "java/far")


def test_each_message_is_there_once_in_the_end(played):
    found = names(played.messages())
    assert set(found.values()) == {1}
    assert len(found) == 6 * EACH


def test_delivered_records_have_the_bytes_of_rocketmqs_property_map(played):
    """Both sides put ``TIMER_ENQUEUE_MS`` and ``TIMER_DEQUEUE_MS`` last into the map."""
    waiting = {
        (string_to_properties(m.properties_raw)["UNIQ_KEY"]): m for m in played.messages(TIMER)
    }
    for message in [*played.after_first, *played.delivered_here]:
        properties = string_to_properties(message.properties_raw)
        expected = string_to_properties(waiting[properties["UNIQ_KEY"]].properties_raw)
        enqueued, dequeued = properties["TIMER_ENQUEUE_MS"], properties["TIMER_DEQUEUE_MS"]
        expected |= {"TIMER_ENQUEUE_MS": enqueued, "TIMER_DEQUEUE_MS": dequeued}
        assert message.properties_raw == hash_map_string(expected)
        assert message.queue_id == int(properties["REAL_QID"])
        assert int(dequeued) >= int(properties["TIMER_OUT_MS"]) + 1_000
        if enqueued != _NEVER_ENQUEUED:
            assert int(enqueued) % 1_000 == 0


def test_the_put_hook_writes_what_the_broker_writes(played):
    sent = [m for m in played.messages(TIMER) if m.body.startswith((b"java/", b"delete"))]
    assert len(sent) == 2 * EACH + 2
    for message in sent:
        properties = string_to_properties(message.properties_raw)
        own = ("TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID")
        given = {name: value for name, value in properties.items() if name not in own}
        given.update({name: properties[name] for name in own})
        assert message.properties_raw == hash_map_string(given)
        deliver_ms = int(properties.get("TIMER_DELIVER_MS", 0))
        if deliver_ms:
            assert int(properties["TIMER_OUT_MS"]) == (deliver_ms - 1) // 1_000 * 1_000


def test_units_and_slots_of_the_broker_are_as_ours(played):
    """Units of both sides form one chain for the far messages; deletes count twice against it."""
    waiting = {m.commit_log_offset: m for m in played.messages(TIMER)}
    assert {unit.topic_hash for unit in played.units_of_java} == {string_hash(TOPIC)}
    far_ms = (played.far_ms - 1) // 1_000 * 1_000
    chain = [u for u in played.units_of_java if u.write_time + u.delay == far_ms]
    bodies = [waiting[unit.commit_log_offset].body for unit in chain]
    assert [b for b in bodies if b.startswith((b"enqueued", b"queued", b"java"))] == [
        body for body in bodies if body != b"delete"
    ]
    assert Counter(unit.magic for unit in chain) == {1: 3 * EACH + 2, 5: 2}
    assert chain[0].prev_pos == -1
    assert len({unit.prev_pos for unit in chain}) == len(chain)
    assert played.pending_slot.time == far_ms // 1_000
    assert played.pending_slot.first_pos == 52  # after the first near one
    assert TIMER_SLOT.size == 32


def test_the_checkpoint_goes_on(played):
    saved = checkpoint_of(played.root)
    assert saved.last_timer_queue_offset == saved.master_timer_queue_offset
    assert saved.last_timer_queue_offset == len(played.messages(TIMER))
    assert saved.counter > 2


def test_a_consumer_gets_each_message_once(played):
    pulled = [row["msg_id"] for row in played.served[1].received if row["mode"] == "PULL"]
    assert len(pulled) == len(set(pulled)) == 6 * EACH


def test_a_killed_brokers_messages_come_all(tmp_path):
    """Its wheel was flushed some time before; its log is as the system has it."""
    java_cluster.build(RELEASE)
    store = PlayedStore(tmp_path)
    store.put()
    with store.serve(2 * EACH, keep="100") as broker:
        store.send_through_java(broker)
        deadline = time.monotonic() + 60
        while not (_deletes_are_enqueued(store) and _far_slot_is_flushed(store)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with store.open() as opened:
        service = TimerMessageStore(opened)
        now = opened.clock() + 2 * _HOUR_MS
        while service.run_once(now):
            pass
        service.finish()
    found = names(store.messages())
    near = wanted("enqueued/near", "queued/near", "java/near")
    far = wanted("enqueued/far", "queued/far", "java/far")
    assert found.keys() == near.keys() | far.keys()
    assert {found[name] for name in far} == {1}
    assert {found[name] for name in near} <= {1, 2}  # those delivered since its checkpoint


def _deletes_are_enqueued(store: PlayedStore) -> bool:
    """Return whether all have units: the broker enqueues in order, and the deletes came last.

    A delete that is enqueued after its time deletes nothing any more, in either store.
    """
    return sum(bool(unit.magic & TIMER_MAGIC_DELETE) for unit in units_of(store.root)) == 2


def _far_slot_is_flushed(store: PlayedStore) -> bool:
    """Return whether the broker has flushed its wheel at least once."""
    return bool(slot_of(store.root, (store.far_ms - 1) // 1_000 * 1_000).count > EACH)


# Table ``timers`` of a running broker of RocketMQ, against the messages its clients get.


def states(root: Path) -> dict[str, str]:
    (snapshot,) = open_snapshots(parsed(root))
    with snapshot:
        rows = rows_of(snapshot, "timers")
    return {row["keys"][0]: row["state"] for row in rows}


def in_topic(root: Path) -> set[str]:
    return {row["keys"][0] for row in read_rows(root, topic=TIMED_TOPIC)}


def test_states_of_a_running_broker_and_after_its_restart(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, settings=SETTINGS) as cluster:
        store = cluster.store()
        with ClientNode(tmp_path / "client", "5.3.3", cluster.namesrv_addr) as client:
            client.create_topic(TIMED_TOPIC, 1)
            with Producer("senders", cluster.namesrv_addr) as producer:
                sender = Sender(producer)
                now = int(time.time() * 1000)
                for number in range(_COUNT):
                    sender.send(f"m-{number}", now + 2000 + 150 * number)
                for number in range(KINDS_EACH):
                    sender.send(f"gone-{number}", now + 7500)
                    sender.cancel(f"gone-{number}", now + 7500)
            _follow(store)
            received = client.pull_all(TIMED_TOPIC)
            assert {row["keys"] for row in received} == {f"m-{n}" for n in range(_COUNT)}
            with Producer("later", cluster.namesrv_addr) as producer:
                sender = Sender(producer)
                due = int(time.time() * 1000) + 5500
                for number in range(KINDS_EACH):
                    sender.send(f"later-{number}", due)
            assert wait_until(lambda: states(store).get("later-3") == "pending")
        cluster.kill_broker()
        before = tree_state(store)
        found = states(store)
        assert {name for name, state in found.items() if state == "pending"} == {
            f"later-{number}" for number in range(KINDS_EACH)
        }
        _check(store)
        assert tree_state(store) == before
        cluster.start_broker()
        assert wait_until(lambda: states(store)["later-3"] == "delivered")
        assert in_topic(store) >= {f"later-{number}" for number in range(KINDS_EACH)}
        cluster.stop_broker()
        _check(store)


def _follow(store: Path) -> None:
    """Read the table until all messages are delivered: each delivered one must be in its topic."""

    def look() -> bool:
        found = states(store)
        delivered = {name for name, state in found.items() if state == "delivered"}
        assert delivered <= in_topic(store)
        assert not any(found[name] == "delivered" for name in found if name.startswith("gone"))
        assert "unknown" not in found.values()
        return len(delivered) == _COUNT

    assert wait_until(look)
    assert wait_until(lambda: states(store)["gone-0"] == "cancelled")


def _check(store: Path) -> None:
    with StoreSnapshot(store) as snapshot:
        report = check_store(snapshot)
    assert [f for f in report.findings if f.kind.name.startswith("TIMER")] == []
