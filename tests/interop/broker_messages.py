# SPDX-License-Identifier: Apache-2.0
"""Rows for the sink of every kind that a broker serves, and what a consumer must get for them."""

from __future__ import annotations

import datetime
import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA = (
    "topic string, body binary, queue_id int, keys array<string>, tags string, "
    "properties map<string,string>, sharding_key string, flag int, born_timestamp timestamp, "
    "born_host string, delay_level int"
)
TOPICS = ("orders", "documents", "shipments", "accounts", "reminders")
TAGGED, TAGS = "orders", ("TagA", "größe")
"""A topic and two of its tags."""
EVERYWHERE = "价格"
"""A key that many messages of `TAGGED` have."""
GIVEN_QUEUES = 6
"""Number of queues of topic shipments, whose rows name their queue."""
ROW = "row"
"""The property that identifies the rows of a topic."""

_BORN = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_HOSTS = ("10.1.2.3:1234", "[2001:db8::7]:4321", None)
_WORDS = ("größe", "价格", "🚀", "a b", "naïve")


@dataclass(frozen=True)
class Row:
    """One row, by the sink's columns."""

    topic: str
    number: int
    body: bytes
    queue_id: int | None = None
    keys: Sequence[str] | None = None
    tags: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    sharding_key: str | None = None
    delay_level: int | None = None

    @property
    def born_host(self) -> str | None:
        return _HOSTS[self.number % len(_HOSTS)]

    @property
    def born_timestamp(self) -> datetime.datetime:
        return _BORN + datetime.timedelta(milliseconds=1_001 * self.number)

    @property
    def born_timestamp_ms(self) -> int:
        return (self.born_timestamp - _EPOCH) // datetime.timedelta(milliseconds=1)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    def values(self) -> tuple[Any, ...]:
        """Return the row in the form of `SCHEMA`."""
        return (
            self.topic,
            self.body,
            self.queue_id,
            self.keys,
            self.tags,
            {ROW: str(self.number), **self.properties},
            self.sharding_key,
            self.number,
            self.born_timestamp,
            self.born_host,
            self.delay_level,
        )

    def stored_properties(self) -> dict[str, str]:
        """Return the properties a consumer gets, except the unique key."""
        named = {
            "KEYS": " ".join(self.keys or ()),
            "TAGS": self.tags,
            "__SHARDINGKEY": self.sharding_key,
        }
        given = {name: value for name, value in named.items() if value}
        return {ROW: str(self.number), **self.properties, **given}


def rows(levels: Sequence[int], seed: int = 7) -> list[Row]:
    """Return all rows; `levels` are the delay levels of topic reminders."""
    generator = random.Random(seed)
    made = [*_orders(), *_documents(generator), *_shipments(), *_accounts(), *_reminders(levels)]
    assert {row.topic for row in made} == set(TOPICS)
    return made


def _orders() -> Iterator[Row]:
    for i in range(160):
        keys = [f"order-{i}", EVERYWHERE] if i % 4 else None
        tags = (*TAGS, "TagC", None)[i % 4]
        yield Row(
            topic="orders",
            number=i,
            body=b"order %d" % i,
            queue_id=None,
            keys=keys,
            tags=tags,
            properties={"note": _WORDS[i % len(_WORDS)]},
        )


def _documents(generator: random.Random) -> Iterator[Row]:
    for i in range(24):
        body = (f"größe {i}, " * 700).encode()
        if i % 3 == 1:
            body = generator.getrandbits(8 * 5000).to_bytes(5000, "big")
        yield Row("documents", i, body, properties={f"größe {n}": "价" * n for n in range(1, 9)})


def _shipments() -> Iterator[Row]:
    for i in range(60):
        yield Row("shipments", i, b"shipment %d" % i, i * i % GIVEN_QUEUES, ["shipment"])


def _accounts() -> Iterator[Row]:
    for i in range(40):
        yield Row("accounts", i, b"account %d" % i, sharding_key=f"account {i % 7}")


def _reminders(levels: Sequence[int]) -> Iterator[Row]:
    for i in range(20):
        level = (None, *levels)[i % (1 + len(levels))]
        yield Row(
            topic="reminders",
            number=i,
            body=b"reminder %d" % i,
            queue_id=None,
            keys=[f"r{i}"],
            tags="TagA",
            delay_level=level,
        )
