# SPDX-License-Identifier: Apache-2.0
"""A queue damaged after a clean stop gets its units again from the log, before any put."""

from __future__ import annotations

import random
import struct

import pytest

from store_core import Message, MessageStore
from store_core.layout import BATCH_CQ_UNIT
from tests.store_core.crash.messages import config_of, make_message, messages_in, numbers_in

_COUNT = 400  # 100 of a queue, in two files


@pytest.fixture
def config(tmp_path):
    found = config_of(tmp_path)
    with MessageStore(found) as store:
        for number in range(_COUNT):
            store.put_message(make_message(number))
        store.wait_for_dispatch()
    return found


def garbage(data):
    return random.Random(4).randbytes(len(data))


@pytest.mark.parametrize(
    ("number", "change"),
    [
        *((number, garbage) for number in (0, 1)),
        (1, lambda data: bytes(len(data))),
        (-1, lambda data: bytes(len(data))),
    ],
    ids=["first bad", "last bad", "last zeroed", "both zeroed"],
)
def test_all_messages_of_a_damaged_queue_are_delivered(config, tmp_path, number, change):
    files = sorted((tmp_path / "consumequeue" / "TopicA" / "1").iterdir())
    assert len(files) == 2
    for path in files if number < 0 else files[number : number + 1]:
        path.write_bytes(change(path.read_bytes()))
    with MessageStore(config) as store:
        result = store.put_message(make_message(_COUNT + 2))
        assert result.append_result.queue_offset == _COUNT // 4
        store.wait_for_dispatch()
        numbers = numbers_in(store)
    assert numbers["TopicA", 1] == [*range(2, _COUNT + 2, 4), _COUNT + 2]
    assert numbers["TopicB", 0] == [*range(1, _COUNT, 4)]


def bodies_after_another(config):
    """Put one more message; return the bodies in the batch queue."""
    with MessageStore(config, is_batch_topic=lambda _: True) as store:
        store.put_message(Message("Batches", b"one more"))
        store.wait_for_dispatch()
        return [message.body for message in messages_in(store, "Batches", 0)]


@pytest.mark.parametrize("row", [0, 3, 9])
@pytest.mark.parametrize("place", [0, 400, 1 << 60, -1], ids=["first", "another", "far", "none"])
def test_a_batch_queue_with_a_unit_of_another_place(tmp_path, row, place):
    config = config_of(tmp_path)
    with MessageStore(config, is_batch_topic=lambda _: True) as store:
        bodies = [b"message %d" % number for number in range(10)]
        for body in bodies:
            store.put_message(Message("Batches", body))
        store.wait_for_dispatch()
    (path,) = (tmp_path / "batchconsumequeue" / "Batches" / "0").iterdir()
    data = bytearray(path.read_bytes())
    at = row * BATCH_CQ_UNIT.size
    data[at : at + 8] = place.to_bytes(8, "big", signed=True)
    path.write_bytes(data)
    assert bodies_after_another(config) == [*bodies, b"one more"]


@pytest.mark.parametrize("bit", range(9, 20))
def test_a_batch_queue_with_a_unit_of_another_size(tmp_path, bit):
    """Also of one that would go on in the next segment, and end before the log does."""
    config = config_of(tmp_path, mapped_file_size_commit_log=8 << 10)
    bodies = [b"message %d %s" % (number, bytes(200)) for number in range(90)]
    with MessageStore(config, is_batch_topic=lambda _: True) as store:
        for body in bodies:
            store.put_message(Message("Batches", body))
        store.wait_for_dispatch()
    assert len([*(tmp_path / "commitlog").iterdir()]) > 2
    path = min((tmp_path / "batchconsumequeue" / "Batches" / "0").iterdir())
    data = bytearray(path.read_bytes())
    at = 19 * BATCH_CQ_UNIT.size + 8
    size = int.from_bytes(data[at : at + 4], "big")
    data[at : at + 4] = (size ^ 1 << bit).to_bytes(4, "big")
    path.write_bytes(data)
    assert bodies_after_another(config) == [*bodies, b"one more"]


@pytest.mark.parametrize("unit", [0, 10, 13, 17, 40])
def test_units_that_refer_to_far_places_in_the_queue_of_a_crashed_store(tmp_path, unit):
    """The queue is cut before all of them: after one of them all records count as dispatched."""
    config = config_of(tmp_path, mapped_file_size_consume_queue=10 * 20)
    with MessageStore(config) as store:
        for number in range(_COUNT):
            store.put_message(make_message(number))
        store.wait_for_dispatch()
    path = sorted((tmp_path / "consumequeue" / "TopicA" / "1").iterdir())[unit // 10]
    data = bytearray(path.read_bytes())
    at = unit % 10 * 20
    places = [(1 << 62, 100), (1 << 61, 100), (-1, -1)]
    data[at : at + 60] = b"".join(struct.pack(">qiq", *place, 1) for place in places)
    path.write_bytes(data)
    (tmp_path / "abort").touch()
    with MessageStore(config) as store:
        store.put_message(make_message(_COUNT + 2))
        store.wait_for_dispatch()
        numbers = numbers_in(store)
    assert numbers["TopicA", 1] == [*range(2, _COUNT + 2, 4), _COUNT + 2]
