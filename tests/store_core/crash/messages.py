# SPDX-License-Identifier: Apache-2.0
"""Numbered messages for crash tests, and a check of which of them a store still has."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from store_core import GetMessageStatus, Message, MessageStore, MessageStoreConfig

TOPICS = ("TopicA", "TopicB")
QUEUES = 2
_BODY_MAX = 400


def config_of(root: Path, **settings: Any) -> MessageStoreConfig:
    """Return the configuration of a small store: a few messages fill a segment."""
    sizes = {
        "mapped_file_size_commit_log": 16 << 10,
        "mapped_file_size_consume_queue": 50 * 20,
        "mapped_file_size_consume_queue_ext": 1 << 10,
        "max_hash_slot_num": 64,
        "max_index_num": 256,
        "flush_disk_type": "SYNC_FLUSH",
    }
    return MessageStoreConfig(store_path_root_dir=str(root), **{**sizes, **settings})


def place_of(number: int) -> tuple[str, int]:
    """Return topic and queue of a message."""
    return TOPICS[number % 2], number // 2 % QUEUES


def make_message(number: int) -> Message:
    """Return a message; its body has its number and a length of its own."""
    topic, queue_id = place_of(number)
    body = b"%d:" % number + bytes([number % 251]) * (number * 37 % _BODY_MAX)
    return Message(
        topic, body, queue_id=queue_id, keys=[f"k{number}"], tags="T", unique_key=f"U{number}"
    )


def make_batch(numbers: Iterable[int]) -> Any:
    """Return messages as ``append_batch`` takes them."""
    made = [make_message(number) for number in numbers]
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([message.topic for message in made]),
            "queue_id": pa.array([message.queue_id for message in made], pa.int32()),
            "body": pa.array([message.body for message in made], pa.binary()),
            "properties_raw": pa.array([_properties(message) for message in made], pa.binary()),
        }
    )


def put_some(store: MessageStore, first: int, generator: random.Random) -> range:
    """Put one to a dozen messages from number ``first`` on, in one of three ways; all succeed."""
    way = generator.random()
    if way < 0.6:
        numbers = range(first, first + 1)
        status = store.put_message(make_message(first)).status
    elif way < 0.8:
        numbers = range(first, first + 8, 4)  # one queue
        numbers = range(first, first + 1) if generator.random() < 0.2 else numbers
        status = store.put_messages([make_message(number) for number in numbers]).status
    else:
        numbers = range(first, first + generator.randrange(1, 12))
        status = store.append_batch(make_batch(numbers)).status
    assert status.name == "PUT_OK", status
    return numbers


def numbers_in(store: MessageStore) -> dict[tuple[str, int], list[int]]:
    """Return the numbers of all messages of each queue, in queue order."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            for message in messages_in(store, topic, queue_id):
                number = int(message.body.split(b":")[0])
                assert message.body == make_message(number).body
                assert (message.topic, message.queue_id) == place_of(number)
                found[topic, queue_id].append(number)
    return found


def messages_in(store: MessageStore, topic: str, queue_id: int) -> Iterator[Message]:
    """Yield the messages of a queue that `get_message` finds."""
    at = store.get_min_offset_in_queue(topic, queue_id)
    while at < store.get_max_offset_in_queue(topic, queue_id):
        result = store.get_message("g", topic, queue_id, at, 32)
        assert result.status in {GetMessageStatus.FOUND, GetMessageStatus.OFFSET_FOUND_NULL}
        assert result.next_begin_offset > at
        for message in result.messages:
            assert message.queue_offset == at
            at += 1
            yield message
        at = result.next_begin_offset


def _properties(message: Message) -> bytes:
    return b"".join(
        name.encode() + b"\1" + value.encode() + b"\2" for name, value in message.properties.items()
    )
