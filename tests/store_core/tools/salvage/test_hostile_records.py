# SPDX-License-Identifier: Apache-2.0
"""A record that cannot be taken over does not keep the others from the new store."""

from __future__ import annotations

import numpy as np
import pytest

from store_core.codec.message_codec import decode_message, encode_message
from store_core.config.message_store_config import MessageStoreConfig
from store_core.layout import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    MAX_PROPERTIES_BYTES,
    NEED_UNWRAP_FLAG,
)
from store_core.tools.salvage import salvage_store
from store_core.tools.salvage.derived_files import RecycledBlocks
from store_core.tools.salvage.inner_rows import (
    batch_size,
    light_offsets,
    with_new_offsets,
    with_properties,
)
from tests.store_core.tools.salvage.damage import OPTIONS, check, records_of
from tests.store_factory import BORN_HOST, STORE_HOST, StoreFactory

SEGMENT = 1 << 17
CONFIG = MessageStoreConfig(
    max_hash_slot_num=8,
    max_index_num=64,
    mapped_file_size_commit_log=SEGMENT,
    enable_multi_dispatch=True,
)
BATCH = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
LONG = "9" * 19
INNER = 0x80
LIGHT = b"a\1b\2INNER_MULTI_DISPATCH\1%LMQ%x,other,%LMQ%y\2INNER_MULTI_QUEUE_OFFSET\x0112,,7\2"


def light(names, offsets, **more):
    lists = {"INNER_MULTI_DISPATCH": ",".join(names), "INNER_MULTI_QUEUE_OFFSET": ",".join(offsets)}
    return {**lists, **more}


def filled(properties):
    """Return the properties with one more, filled up to the largest possible size."""
    bytes_now = sum(len(name) + len(value) + 2 for name, value in properties.items())
    return {**properties, "pad": "x" * (MAX_PROPERTIES_BYTES - bytes_now - len("pad") - 2)}


PROPERTIES = {
    "no room for an offset": filled(light(["%LMQ%x"], ["1"])),
    "no room for many offsets": filled(light([f"%LMQ%{n}" for n in range(60)], ["1"] * 60)),
    "huge offsets": light(["%LMQ%x", "%LMQ%y"], [LONG, str(2**63 - 1)]),
    "a light queue outside": light(["%LMQ%/../../../x", "%LMQ%\0", "%LMQ%"], ["1", "2", "3"]),
    "a light queue with a long name": light(["%LMQ%" + "x" * 300], ["1"]),
    "a light queue twice": light(["%LMQ%x", "%LMQ%x"], ["1", "2"]),
    "the light queue of a topic": light(["TopicA", ""], ["1", "2"]),
    "a delay": {"DELAY": "abc"},
    "a large delay": {"DELAY": LONG * 9},
    "a batch size": {"INNER_NUM": LONG, "INNER_BASE": LONG},
    "a batch size below zero": {"INNER_NUM": "-7", "INNER_BASE": "-9223372036854775808"},
    "many keys": {"KEYS": " ".join(map(str, range(6000))), "UNIQ_KEY": "x" * 1000},
    "a broken text": {"KEYS": "\x02\x01\x02", "__CRC32#": "x"},
}
NO_DIRECTORY = {"a light queue outside", "a light queue with a long name"}
"""A check names queues that cannot be made as missing."""


FIELDS = {
    "a queue": {"queue_id": 2**31 - 1},
    "a queue below zero": {"queue_id": -1},
    "a huge offset": {"queue_offset": 2**63 - 1},
    "an offset below zero": {"queue_offset": -(2**63)},
    "a store time": {"store_timestamp": 2**63 - 1},
    "a store time below zero": {"store_timestamp": -(2**63)},
    "a born time": {"born_timestamp": -(2**63)},
    "a topic outside": {"topic": b"../../x"},
    "no topic": {"topic": b""},
    "a topic that is no text": {"topic": b"\xff\xfe"},
    "a prepared message": {"sys_flag": 8, "prepared_transaction_offset": 2**63 - 1},
    "all flags": {"sys_flag": -1 & ~0x30},
    "a batch that is none": {"sys_flag": BATCH | COMPRESSED_FLAG | 0x700, "body": b"x" * 50},
}


@pytest.mark.parametrize("queue_offset", [0, 99])
@pytest.mark.parametrize("case", [*PROPERTIES, *FIELDS])
def test_the_others_are_taken_over(case, queue_offset, tmp_path):
    fields = FIELDS.get(case, {})
    fields = {"queue_offset": queue_offset, "topic": b"TopicA", **fields}
    factory = StoreFactory(tmp_path / "old", segment_bytes=SEGMENT, first_offset=7 * SEGMENT)
    good = []
    for number in range(8):
        kinds = light(["%LMQ%x"], [str(number + 95)]) if number % 2 else {}
        good.append(factory.add(properties={"KEYS": f"k{number}", **kinds}))
        if number in {2, 5}:
            sys_flag = BATCH if "batch size" in case else 0
            hostile = {"sys_flag": sys_flag, **fields}
            properties = PROPERTIES.get(case, {})
            topic = hostile.pop("topic")
            body = hostile.pop("body", b"odd")
            add_raw(factory, topic, body, properties, hostile)
    root = factory.write()
    report = salvage_store(str(root), str(tmp_path / "new"), CONFIG, OPTIONS)
    taken = [record.body for record in records_of(tmp_path / "new", CONFIG)]
    assert taken.count(b"body") == len(good)
    assert report.records + len(report.rejected) == len(good) + 2
    if case not in NO_DIRECTORY:
        check(tmp_path / "new", CONFIG)


def add_raw(factory, topic, body, properties, fields):
    """Append a record that is in no queue and no index of the old store."""
    known = {"store_timestamp", "born_timestamp", "queue_offset"}
    named = {name: value for name, value in fields.items() if name not in known}
    overridden = {name: value for name, value in fields.items() if name in known}
    factory.add(
        body=body,
        queue_id=named.pop("queue_id", 0),
        properties=properties,
        dispatched=False,
        topic_bytes=topic,
        **{**named, **overridden},
    )


@pytest.mark.parametrize("store_timestamp", [-(1 << 63), -5, 1 << 62])
def test_the_only_record_has_an_impossible_time(store_timestamp, tmp_path):
    """No other record says what its time was."""
    factory = StoreFactory(tmp_path / "old", segment_bytes=SEGMENT)
    factory.add(store_timestamp=store_timestamp)
    root = factory.write()
    salvage_store(str(root), str(tmp_path / "new"), CONFIG, OPTIONS)
    assert len(records_of(tmp_path / "new", CONFIG)) == 1
    check(tmp_path / "new", CONFIG)


def test_a_record_that_fills_its_segment(tmp_path):
    factory = StoreFactory(tmp_path / "old", segment_bytes=4096)
    first = factory.add()
    factory.roll()
    factory.add(body=b"x" * (4096 - 8 - (first.total_size - len(first.body))))
    factory.roll()
    factory.add(properties=light(["%LMQ%x"], ["1"]))
    size = factory.records[-1].total_size
    factory.roll()
    pad = {"pad": "x" * (4096 - 8 - size - 5)}
    factory.add(properties=light(["%LMQ%x"], ["1"], **pad))
    root = factory.write()
    config = MessageStoreConfig(max_hash_slot_num=8, max_index_num=64, enable_multi_dispatch=True)
    report = salvage_store(str(root), str(tmp_path / "new"), config, OPTIONS)
    assert report.records + len(report.rejected) == 4
    check(tmp_path / "new", config)


def test_a_block_comes_back_when_all_others_were_handed_out():
    blocks = RecycledBlocks(3)
    held = []
    for number, size in enumerate([10, 20, 5, 4, 30, 5, 10, 0]):
        block = blocks.next_block(size)
        assert len(block) == size
        block[:] = number
        held = [*held[-2:], (number, block)]
        assert all((other == of).all() for of, other in held), "the last three are apart"
    first = blocks.next_block(5)
    for _ in range(2):
        assert not np.shares_memory(first, blocks.next_block(5))
    assert np.shares_memory(first, blocks.next_block(4))


@pytest.mark.parametrize(
    ("sys_flag", "raw", "count"),
    [
        (INNER, b"INNER_NUM\x0112\2INNER_BASE\1100\2", 12),
        (0, b"INNER_NUM\x0112\2", 0),
        (INNER, b"INNER_NUM\x01-2\2", 0),
        (INNER, b"INNER_NUM\x0140000\2", 0),
        (INNER, b"", 0),
    ],
)
def test_batch_size(sys_flag, raw, count):
    assert batch_size(sys_flag, raw) == count


def test_light_offsets():
    assert light_offsets(LIGHT) == {"%LMQ%x": 12, "%LMQ%y": 7}
    assert light_offsets(LIGHT.replace(b"12,,7", b"12,7")) == {}
    assert light_offsets(b"INNER_MULTI_DISPATCH\1%LMQ%x\2") == {}


def test_new_offsets_stand_where_the_old_ones_stood():
    new = with_new_offsets(LIGHT, 0, {"%LMQ%x": 9, "%LMQ%y": 100}, in_batch_queue=False)
    assert new == LIGHT.replace(b"12,,7", b"9,,100")
    batch = b"x\1y\2INNER_BASE\1100\2INNER_NUM\x0112\2"
    assert with_new_offsets(batch, 98, {}, in_batch_queue=True) == batch.replace(b"100", b"98")
    assert with_new_offsets(batch, 98, {}, in_batch_queue=False) == batch
    assert with_new_offsets(b"x\1y", 98, {}, in_batch_queue=True) == b"x\1y"


@pytest.mark.parametrize("topic", [b"T", b"t" * 200])
def test_with_properties(topic):
    record = encode_message(
        topic=topic,
        body=b"body",
        properties_raw=b"old\1v\2",
        queue_id=3,
        commit_log_offset=70,
        queue_offset=5,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        born_timestamp=1,
        store_timestamp=2,
    )
    longer = with_properties(bytes(record), len(b"old\1v\2"), b"a much longer name\1value\2")
    found = decode_message(longer, 0, 70, "")
    assert (found.body, found.topic_bytes, found.queue_offset) == (b"body", topic, 5)
    assert found.properties_raw == b"a much longer name\1value\2"
    assert found.total_size == len(longer)
    with pytest.raises(ValueError, match="32768 bytes"):
        with_properties(bytes(record), len(b"old\1v\2"), b"x" * 32768)
