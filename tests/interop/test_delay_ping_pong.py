# SPDX-License-Identifier: Apache-2.0
"""RocketMQ and this project deliver each other's delayed messages, on one store in turn.

Both releases run at the same time: a broker mostly waits.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from store_core import (
    Message,
    MessageStore,
    MessageStoreConfig,
    ScheduleMessageService,
    StoreSnapshot,
)
from store_core.codec.java_hash_map import hash_map_string
from store_core.codec.message_codec import string_to_properties
from store_core.layout import SCHEDULE_TOPIC
from tests.interop import java_cluster
from tests.interop.java_cluster import Broker, Served
from tests.interop.served_store import all_messages, assert_sound

pytestmark = pytest.mark.interop

TOPICS = ("reminders", "alarms")
QUEUES = 4
EACH = 24
"""Messages of each topic and level that this project puts."""
SENT = 20
"""Messages that a producer sends to each topic, without a delay and with level 3."""
_HOUR_MS = 3_600_000
_SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 800,
    "maxHashSlotNum": 125,
    "maxIndexNum": 500,
    "messageDelayLevel": "1s 2s 1h",
    "brokerIP1": "127.0.0.1",
}


class PlayedStore:
    """A store that this project makes and a broker of one release then serves, twice."""

    def __init__(self, release: str, directory: Path) -> None:
        self.release, self.root, self._directory = release, directory / "store", directory
        self.settings = {**_SETTINGS, "listenPort": java_cluster.free_port()}
        texts = {key: str(value) for key, value in self.settings.items()}
        self.config = MessageStoreConfig.from_properties(
            {**texts, "storePathRootDir": str(self.root)}
        )
        self.expected: Counter[bytes] = Counter()
        self.turns = 0
        self.served: Served
        self.after_first: Counter[bytes]
        self.scheduled: list[Message]

    def put(self) -> None:
        """Put messages of each level; deliver those of level 1 and keep the others waiting.

        All in one moment of the store's clock: on a busy machine the puts may take a second.
        """
        moment = time.time_ns() // 1_000_000
        with MessageStore(self.config, clock=lambda: moment) as store:
            for topic in TOPICS:
                for level in (0, 1, 2, 3):
                    self._put_level(store, topic, level)
            assert store.wait_for_dispatch()
            service = ScheduleMessageService(store)
            now = moment + 1_000
            while service.run_once(now):
                pass
            assert service.delivered == EACH * len(TOPICS)
            service.save()
        assert self.count() == Counter(
            {body: 1 for body in self.expected if not body.endswith((b"/2", b"/3"))}
        )

    def _put_level(self, store: MessageStore, topic: str, level: int) -> None:
        made = [
            Message(
                topic,
                f"{topic}/{number}/{level}".encode(),
                queue_id=number % QUEUES,
                keys=[f"k{number}"],
                tags="TagA",
                unique_key=f"{topic}-{number}-{level}",
                properties={"WAIT": "true", **({"DELAY": str(level)} if level else {})},
            )
            for number in range(EACH)
        ]
        half = EACH // 2
        for message in made[:half]:
            assert store.put_message(message).is_appended
        rest = made[half:]
        batch = pa.record_batch(
            {
                "topic": [message.topic for message in rest],
                "body": [message.body for message in rest],
                "queue_id": [message.queue_id for message in rest],
                "properties_raw": [
                    b"".join(f"{n}\1{v}\2".encode() for n, v in message.properties.items())
                    for message in rest
                ],
            }
        )
        assert store.append_batch(batch).rows == len(rest)
        self.expected.update(message.body for message in made)

    def serve(self, wanted: int, **options: str) -> Broker:
        """Start a broker that waits until each topic holds so many messages."""
        self.turns += 1
        given = {
            "wait": "60",
            "expect": ",".join(f"{topic}={wanted}" for topic in TOPICS),
            **options,
        }
        directory = self._directory / f"java-{self.turns}"
        return Broker(self.root, directory, self.release, self.settings, given)

    def deliver_rest(self) -> None:
        """Deliver, two hours later, the messages that both sides left waiting."""
        with MessageStore(self.config) as store:
            service = ScheduleMessageService(store)
            now = store.clock() + 2 * _HOUR_MS
            while service.run_once(now):
                pass
            assert service.delivered == (EACH + SENT) * len(TOPICS)
            service.save()

    def open(self) -> StoreSnapshot:
        return StoreSnapshot(self.root, self.config)

    def count(self) -> Counter[bytes]:
        """Return how often each body is in a queue of the topics."""
        with self.open() as snapshot:
            return Counter(m.body for m in all_messages(snapshot) if m.topic in TOPICS)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PlayedStore]:
    stores = {r: PlayedStore(r, tmp_path_factory.mktemp(r)) for r in java_cluster.RELEASES}
    for release, store in stores.items():
        java_cluster.build(release)
        store.put()
    sends = [f"{topic}={SENT}" for topic in TOPICS] + [f"{topic}@3={SENT}" for topic in TOPICS]
    _serve_all(stores, 3 * EACH, send=",".join(sends))
    for store in stores.values():
        assert len(store.served.sent) == 2 * SENT * len(TOPICS)
        store.after_first = store.count()
        with store.open() as snapshot:
            store.scheduled = [m for m in all_messages(snapshot) if m.topic == SCHEDULE_TOPIC]
            assert_sound(snapshot)
        store.deliver_rest()
    # Within two seconds a broker delivers again what it believes was not delivered.
    _serve_all(stores, 4 * EACH + 2 * SENT, keep="2")
    return stores


def _serve_all(stores: dict[str, PlayedStore], wanted: int, **options: str) -> None:
    with ExitStack() as stack:
        brokers = {
            release: stack.enter_context(store.serve(wanted, **options))
            for release, store in stores.items()
        }
        for release, broker in brokers.items():
            stores[release].served = broker.wait()
            assert stores[release].served.ok, stores[release].served.said


@pytest.fixture(params=java_cluster.RELEASES)
def store(request, played):
    return played[request.param]


def test_a_broker_delivers_what_waits_here_and_nothing_twice(store):
    ours = Counter({body: n for body, n in store.after_first.items() if body in store.expected})
    assert ours == Counter({body: 1 for body in store.expected if not body.endswith(b"/3")})


def test_each_message_is_there_once_in_the_end(store):
    found = store.count()
    assert set(found.values()) == {1}
    assert len(found) == (4 * EACH + 2 * SENT) * len(TOPICS)
    assert store.expected.keys() <= found.keys()


def test_a_consumer_gets_each_message_once(store):
    pulled = [row["msg_id"] for row in store.served.received if row["mode"] == "PULL"]
    assert len(pulled) == len(set(pulled)) == (4 * EACH + 2 * SENT) * len(TOPICS)


def test_the_put_hook_writes_what_the_broker_writes(store):
    """Check the broker's records of messages that a producer sent with a level."""
    sent = [m for m in store.scheduled if b" sent " in m.body]
    assert len(sent) == SENT * len(TOPICS)
    for message in sent:
        raw = message.properties_raw
        properties = string_to_properties(raw)
        assert properties["REAL_TOPIC"] in TOPICS
        if store.release.startswith("5"):
            given = {n: v for n, v in properties.items() if not n.startswith("REAL_")}
            given.update(REAL_TOPIC=properties["REAL_TOPIC"], REAL_QID=properties["REAL_QID"])
            assert hash_map_string(given) == raw


def test_the_store_is_sound_in_the_end(store):
    with store.open() as snapshot:
        assert_sound(snapshot)
