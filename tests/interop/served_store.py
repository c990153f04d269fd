# SPDX-License-Identifier: Apache-2.0
"""Stores that the sink writes and a real broker then serves."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rmqsource
from store_core import MessageStoreConfig, StoreSnapshot
from store_core.layout import SCHEDULE_TOPIC
from store_core.tools.check.store_check import check_store
from tests.golden_store import golden
from tests.interop import broker_messages, java_cluster
from tests.interop.broker_messages import EVERYWHERE, TAGGED, TAGS, Row
from tests.interop.java_cluster import Broker, Served

SENT = 25
"""Messages that a producer sends to each of two topics."""
SENT_TO = ("orders", "accounts")
_WAIT_SECONDS = 60
_SMALL = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 800,
    "maxHashSlotNum": 125,
    "maxIndexNum": 500,
    "messageDelayLevel": "1s 8s 1h",
}


@dataclass(frozen=True)
class Case:
    """The settings of one store."""

    name: str
    release: str
    golden: str | None
    """The golden store that the sink appends to; the sink makes a new store if None."""
    levels: tuple[int, int, int]
    """Delay levels: soon, later, after the test."""
    delays_ms: tuple[int, ...]


_NEVER_MS = 3_600_000
CASES = (
    Case("new-5.3.3", "5.3.3", None, (1, 2, 3), (1_000, 8_000, _NEVER_MS)),
    Case("new-4.9.7", "4.9.7", None, (1, 2, 3), (1_000, 8_000, _NEVER_MS)),
    Case("new-5.5.1", "5.5.1", None, (1, 2, 3), (1_000, 8_000, _NEVER_MS)),
    Case("cluster-5x", "5.3.3", "cluster-5x", (1, 4, 6), (1_000, 5_000, _NEVER_MS)),
    Case("cluster-4x", "4.9.7", "cluster-4x", (1, 4, 6), (1_000, 5_000, _NEVER_MS)),
)


class ServedStore:
    """A store, the messages written to it, and the outcome of a broker that served it."""

    def __init__(self, case: Case, directory: Path) -> None:
        self.case = case
        self.root = directory / "store"
        self._directory = directory
        self.rows = broker_messages.rows(case.levels)
        self.settings: dict[str, Any] = dict(_SMALL)
        self.before: dict[str, int] = defaultdict(int)
        self.late: dict[str, int] = defaultdict(int)
        if case.golden:
            made = golden(case.golden)
            made.copy_to(directory)
            self.settings = dict(made.config["broker_settings"])
            for row in made.dump("delayed"):
                self.late[row["real_topic"]] += row["pending"]
        self.settings.update(listenPort=java_cluster.free_port(), brokerIP1="127.0.0.1")
        self.config_file = directory / "broker.conf"
        lines = [f"{key}={value}\n" for key, value in self.settings.items()]
        self.config_file.write_text("".join(lines), "utf-8")
        self.served: Served

    def open(self) -> StoreSnapshot:
        settings = {key: str(value) for key, value in self.settings.items()}
        return StoreSnapshot(self.root, MessageStoreConfig.from_properties(settings))

    def write(self, spark: Any) -> None:
        """Let the sink write all rows, and record the messages that it wrote."""
        if self.root.exists():
            with self.open() as snapshot:
                for topic, queue_id in snapshot.queue_paths:
                    held = snapshot.queue_range(topic, queue_id)
                    self.before[topic] += held.max_offset - held.min_offset
        frame = spark.createDataFrame([r.values() for r in self.rows], broker_messages.SCHEMA)
        writer = frame.write.format("rocketmq-store").mode("append")
        writer.options(config=str(self.config_file), queues="4").save(str(self.root))
        commit = rmqsource.last_commit(str(self.root))
        assert commit is not None
        self.commit = commit
        with self.open() as snapshot:
            assert_sound(snapshot)
            self.written = [
                message
                for message in all_messages(snapshot)
                if message.commit_log_offset >= self.commit.start_offset
            ]

    def start(self) -> Broker:
        """Start a broker on the store."""
        options = {
            "wait": str(_WAIT_SECONDS),
            "expect": _counts({topic: self.expected(topic) for topic in broker_messages.TOPICS}),
            "push": _counts(self.pushed()),
            "keys": ",".join(f"{topic}:{key}" for topic, key in self.asked_keys()),
            "ids": ",".join(f"{message.topic}:{name}" for message, name in self.asked_ids()),
            "send": _counts(dict.fromkeys(SENT_TO, SENT)),
        }
        directory = self._directory / "java"
        return Broker(self.root, directory, self.case.release, self.settings, options)

    def is_due(self, row: Row) -> bool:
        return row.delay_level is None or self.delay_ms(row) < _NEVER_MS

    def delay_ms(self, row: Row) -> int:
        assert row.delay_level is not None
        return self.case.delays_ms[self.case.levels.index(row.delay_level)]

    def expected(self, topic: str) -> int:
        new = sum(row.topic == topic and self.is_due(row) for row in self.rows)
        return self.before[topic] + self.late[topic] + new

    def pushed(self) -> dict[str, int]:
        """Return the subscriptions of groups that listen, and how many messages they must get."""
        topics = broker_messages.TOPICS
        asked = {f"{'+'.join(topics)}:*": sum(map(self.expected, topics))}
        if not self.case.golden:
            with_tags = sum(row.topic == TAGGED and row.tags in TAGS for row in self.rows)
            asked[f"{TAGGED}:{' || '.join(TAGS)}"] = with_tags
        return asked

    def asked_keys(self) -> list[tuple[str, str]]:
        return [("orders", "order-7"), ("shipments", "shipment"), (TAGGED, EVERYWHERE)]

    def asked_ids(self) -> list[tuple[Any, str]]:
        """Return some of the messages, with both kinds of ids."""
        plain = [message for message in self.written if message.topic != SCHEDULE_TOPIC]
        some = [plain[0], plain[len(plain) // 2], plain[-1]]
        return [(m, name) for m in some for name in (m.unique_key, m.message_id)]


def assert_sound(snapshot: StoreSnapshot) -> None:
    """Check that nothing is wrong with the store."""
    report = check_store(snapshot)
    assert report.is_good, report.findings


def all_messages(snapshot: StoreSnapshot) -> list[Any]:
    """Return all messages in queues."""
    found: list[Any] = []
    for topic, queue_id in snapshot.queue_paths:
        held = snapshot.queue_range(topic, queue_id)
        at = held.min_offset
        while at < held.max_offset:
            got = snapshot.get_message("g", topic, queue_id, at, 32)
            assert got.next_begin_offset > at, got.status
            found += got.messages
            at = got.next_begin_offset
    return sorted(found, key=lambda message: message.commit_log_offset)


def _counts(counts: dict[str, int]) -> str:
    return ",".join(f"{name}={count}" for name, count in counts.items())
