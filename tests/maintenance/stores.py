# SPDX-License-Identifier: Apache-2.0
"""Small stores of several segments, drawn from a generator, for maintenance to begin with."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from store_core import Message, MessageStore, MessageStoreConfig
from store_core.layout import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG

_SEGMENT_BYTES = (8 << 10, 16 << 10, 32 << 10)
_UNITS_A_FILE = (10, 25, 100)
_MOST_MESSAGES = 160
BATCH_TOPIC = "Batches"


@dataclass
class Store:
    """A store below a directory of its own, and the options of commands on it.

    ``root`` changes if maintenance makes another store and continues with that.
    """

    place: Path
    chance: random.Random
    properties: dict[str, str]
    queues: int
    root: Path
    bodies: Iterator[int] = field(default_factory=itertools.count)

    @property
    def has_batches(self) -> bool:
        """It has a topic with batch queues."""
        return self.properties["brokerName"] == "batches"

    @property
    def config_file(self) -> Path:
        return self.place / "broker.conf"

    @property
    def flags(self) -> list[str]:
        """Arguments that name the broker configuration."""
        return ["--config", str(self.config_file)]

    def config(self, root: Path | None = None, **settings: str) -> MessageStoreConfig:
        """Return the settings of the store, or of another with the same ones."""
        where = {"storePathRootDir": str(root or self.root)}
        return MessageStoreConfig.from_properties({**self.properties, **where, **settings})

    def another_root(self) -> Path:
        """Return an unused path beside the store."""
        return self.place / f"store-{next(self.bodies)}"

    def message(self, *, of_batches: bool = True) -> Message:
        """Return a message with a body of its own; ``of_batches``: or one for a batch queue."""
        number, chance = next(self.bodies), self.chance
        topic = chance.choice(["TopicA", "TopicA", "TopicB"])
        queue_id = chance.randrange(self.queues)
        body = b"%d:" % number + chance.randbytes(chance.randrange(300))
        if of_batches and self.has_batches and chance.random() < 0.25:
            return self._of_batch_queue(body, queue_id)
        keys = [f"k{number}"] if chance.random() < 0.6 else None
        tags = chance.choice([None, "paid", "sent"])
        unique = f"U{number}" if chance.random() < 0.5 else None
        return Message(topic, body, queue_id=queue_id, keys=keys, tags=tags, unique_key=unique)

    def _of_batch_queue(self, body: bytes, queue_id: int) -> Message:
        if self.chance.random() < 0.5:
            return Message(BATCH_TOPIC, body, queue_id=queue_id, keys=["batch"])
        items = [_inner_item(body + b"/%d" % n) for n in range(self.chance.randint(1, 3))]
        return Message(
            BATCH_TOPIC,
            b"".join(items),
            queue_id=queue_id,
            sys_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG,
            properties={"INNER_NUM": str(len(items))},
        )


def _inner_item(body: bytes) -> bytes:
    size = 22 + len(body)
    return struct.pack(">iIIii", size, 0, 0, 0, len(body)) + body + struct.pack(">h", 0)


def draw_store(chance: random.Random, place: Path) -> Store:
    """Make a store that was stopped cleanly, or one that a killed process left."""
    has_batches = chance.random() < 0.3
    properties = {
        "mappedFileSizeCommitLog": str(chance.choice(_SEGMENT_BYTES)),
        "mappedFileSizeConsumeQueue": str(20 * chance.choice(_UNITS_A_FILE)),
        "mapperFileSizeBatchConsumeQueue": str(46 * chance.choice(_UNITS_A_FILE)),
        "maxHashSlotNum": "32",
        "maxIndexNum": str(chance.choice([40, 1000])),
        "maxMessageSize": "4096",
        "fileReservedTime": "876000",
        "diskMaxUsedSpaceRatio": "99",
        "cleanFileForciblyEnable": "false",
        "brokerName": "batches" if has_batches else "simple",
    }
    place.mkdir(parents=True)
    store = Store(place, chance, properties, chance.randint(1, 8), place / "store")
    lines = [f"{name}={value}\n" for name, value in properties.items()]
    store.config_file.write_text("".join(lines), encoding="utf-8")
    _write_topics(store)
    _fill(store, chance.randint(20, _MOST_MESSAGES))
    return store


def _write_topics(store: Store) -> None:
    table: dict[str, object] = {
        topic: {"topicName": topic, "readQueueNums": 8, "writeQueueNums": 8}
        for topic in ("TopicA", "TopicB")
    }
    if store.has_batches:
        kind = {"queue.type": "BatchCQ"}
        table[BATCH_TOPIC] = {
            "topicName": BATCH_TOPIC,
            "readQueueNums": 8,
            "writeQueueNums": 8,
            "attributes": kind,
        }
    config = store.root / "config"
    config.mkdir(parents=True)
    text = json.dumps({"topicConfigTable": table})
    (config / "topics.json").write_text(text, encoding="utf-8")


def _fill(store: Store, count: int) -> None:
    crashes = store.chance.random() < 0.3
    with MessageStore(store.config()) as opened:
        put_messages(store, opened, count)
        opened.wait_for_dispatch(20)
        if crashes:
            put_messages(store, opened, store.chance.randint(0, 6))
            leave_as_killed(store)


def leave_as_killed(store: Store) -> None:
    """Continue with a copy of an open store's files, as if its process had died now."""
    copy = store.another_root()
    shutil.copytree(store.root, copy)
    (copy / "abort").touch()
    store.root = copy


def put_messages(store: Store, opened: MessageStore, count: int) -> list[bytes]:
    """Put messages one by one, or several of a queue in one call; return their bodies."""
    put: list[bytes] = []
    for _ in range(count):
        message = store.message()
        several = [message]
        if store.chance.random() < 0.1 and message.topic != BATCH_TOPIC:
            several = [Message(message.topic, b"%d" % next(store.bodies)) for _ in range(3)]
            result = opened.put_messages(several)
        else:
            result = opened.put_message(message)
        if result.status.name != "PUT_OK":
            break
        put += [] if message.sys_flag else [one.body for one in several]
    return put
