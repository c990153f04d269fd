# SPDX-License-Identifier: Apache-2.0
"""Reserved properties with odd values, written in every way: a broker finds what was accepted."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.committing import commit_parts
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from rmqsource.sink.task import stage_part
from store_core import Message, MessageStore, MessageStoreConfig
from store_core.codec.java_hash_map import hash_map_string, hash_map_strings
from store_core.codec.java_string import string_hash
from store_core.codec.message_codec import string_to_properties
from tests.interop import java_oracle
from tests.rmqsource.sink.support import TYPES, batch_of
from tests.store_core.put.test_put_properties import ODD, raw_properties

pytestmark = pytest.mark.interop

NAMES = (
    "KEYS", "TAGS", "WAIT", "DELAY", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "UNIQ_KEY",
    "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "__CRC32#",
    "DUP_INFO", "CLUSTER", "CORRELATION_ID", "RETRY_TOPIC", "CONSUME_START_TIME", "TIMER_OUT_MS",
    "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_ENQUEUE_MS",
    "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "BORN_HOST", "BORN_TIMESTAMP", "MSG_REGION",
    "POP_CK", "1ST_POP_TIME", "POP_CK_OFFSET", "TRACE_ON", "__STARTDELIVERTIME",
    "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "ORIGIN_MESSAGE_ID",
)  # fmt: skip
TOPICS = ("A", "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "rmq_sys_wheel_timer")
SIZES = {
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 40_000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
}
_COUNT = 20_000
_USUAL = (
    *("KEYS", "TAGS", "UNIQ_KEY", "CLUSTER", "WAIT", "DELAY", "REAL_TOPIC", "REAL_QID", "PGROUP"),
    *("MSG_REGION", "TRACE_ON", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "TRAN_MSG", "Aa", "BB"),
)
_LETTERS = "abcXYZ_09 ößü价格🚀\t\x00\x03"
_MOST_IN_A_BIN = 7  # more may become a tree


def odd_messages() -> list[tuple[str, bytes]]:
    """Return (topic, property bytes): every name with every value, alone and with its partner."""
    beside = (
        (),
        (("INNER_NUM", "2"),),
        (("INNER_MULTI_DISPATCH", "%LMQ%a"),),
        (("INNER_MULTI_QUEUE_OFFSET", "1"),),
    )
    return [
        (topic, raw_properties([(name, value), *more]))
        for topic in TOPICS
        for name in NAMES
        for value in ODD
        for more in (beside if name.startswith("INNER_") else beside[:1])
    ]


def sink_rows(root: Path, rows: list[tuple[str, bytes]], sizes: dict[str, int]) -> int:
    """Write rows by the sink; return how many it accepted."""
    names = ("topic", "body", "queue_id", "properties_raw")
    columns = resolve_sink_columns([(name, TYPES[name][0]) for name in names])
    options = {"path": str(root), **{key: str(size) for key, size in sizes.items()}}
    options.update(systemTopics="true", compatibility="5", badRows="drop")
    plan = plan_write(parse_sink_options(options), columns)
    batch = batch_of(
        topic=[topic for topic, _ in rows],
        body=[b"body"] * len(rows),
        queue_id=[0] * len(rows),
        properties_raw=[raw for _, raw in rows],
    )
    done = commit_parts(plan, [stage_part([batch], plan, 0)])
    assert done is not None
    assert done.dropped["properties_raw"] > 0
    return done.messages


@pytest.mark.parametrize("light", [False, True])
def test_brokers_keep_all_that_was_accepted(tmp_path: Path, light: bool) -> None:
    root, rows = tmp_path / "store", odd_messages()
    settings = {**SIZES, "enableLmq": light, "enableMultiDispatch": light}
    (tmp_path / "config.json").write_text(json.dumps({"store": settings}))
    texts = {key: str(value).lower() for key, value in settings.items()}
    config = MessageStoreConfig.from_properties({"storePathRootDir": str(root), **texts})
    accepted = refused = 0
    with MessageStore(config) as store:
        for number, (topic, raw) in enumerate(rows):
            message = Message(topic, b"body", properties_raw=raw)
            done = store.put_message(message).is_appended
            accepted, refused = accepted + done, refused + (not done)
            if number % 5 == 0:  # another test checks that they accept the same messages
                batch = {"topic": [topic], "body": [b"body"], "properties_raw": [raw]}
                accepted += store.append_batch(pa.record_batch(batch)).rows
                accepted += store.put_messages([message]).is_appended
    accepted += sink_rows(root, rows, SIZES)
    assert accepted > len(rows) > refused > 0
    for api in java_oracle.APIS:
        copy = tmp_path / api / "store"
        shutil.copytree(root, copy)
        shutil.copy(tmp_path / "config.json", copy.parent)
        found = java_oracle.check(copy, api=api)
        assert found["loaded"], json.dumps(found)
        assert (found["records_cut_off"], found["messages"]) == (0, accepted), json.dumps(found)
        assert found["reput_from_offset"] == found["max_phy_offset"]
        # The program knows light queues only as a broker fills them, not ones that begin at 1.
        assert found["ok"] or light, json.dumps(found)


# The order in which RocketMQ writes properties again, taken from RocketMQ itself.


def _name(generator: random.Random) -> str:
    if generator.random() < 0.5:
        return generator.choice(_USUAL)
    return "".join(generator.choices(_LETTERS, k=generator.randrange(1, 9)))


def _properties(generator: random.Random) -> bytes:
    count = generator.choice((1, 3, 8, 12, 13, 30, 95, 97, 200))
    if count > len(_USUAL):
        count = count if generator.random() < 0.1 else 5
    parts = [
        f"{_name(generator)}\1{generator.choice(('v', 'ö', 'a b', chr(1), ''))}"
        for _ in range(count)
    ]
    raw = "\2".join(parts).encode() + b"\2" * generator.randrange(3)
    if generator.random() < 0.1:
        raw = raw[: generator.randrange(len(raw) + 1)] + b"\xff\xed\xa0" + raw[4:]
    return raw


def _has_tree(raw: bytes) -> bool:
    """Return whether some bin of a map of any size may have too many names."""
    names = string_to_properties(raw)
    spread = [(code := string_hash(name) & 0xFFFFFFFF) ^ code >> 16 for name in names]
    return max(Counter(code & 127 for code in spread).values(), default=0) > _MOST_IN_A_BIN


def test_properties_are_written_anew_in_rocketmqs_order() -> None:
    generator = random.Random(11)
    asked = [_properties(generator) for _ in range(_COUNT)]
    asked = [raw for raw in asked if not _has_tree(raw)]
    assert len(asked) > 0.9 * _COUNT
    expected = java_oracle.encode_anew(asked)
    assert len(set(map(len, expected))) > 100
    assert [hash_map_string(string_to_properties(raw)) for raw in asked] == expected
    closed = pa.array([raw + b"\2" if raw else raw for raw in asked], pa.binary())
    assert hash_map_strings(closed).to_pylist() == expected
