# SPDX-License-Identifier: Apache-2.0
"""The messages of golden stores, put again, give RocketMQ's bytes."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from store_core.results import PutMessageStatus
from tests.golden_store import golden
from tests.store_core.putting import Log, batch_of, first_offsets, golden_message

GOLDEN = ["classic-5x", "classic-4x", "multipath-5x", "ext-5x", "batch-5x", "expired-5x"]
BATCH_TOPIC = "BatchSource"
"""Its messages were put as plain batches, each of which must go into one segment."""

# Messages are put with other values for fields that the store must replace in place.
_COMPLETED = re.compile(b"(?<=INNER_BASE\x01)[^\x02]*|(?<=INNER_MULTI_QUEUE_OFFSET\x01)[^\x02]*")


def put_together(line):
    return line["topic"] == BATCH_TOPIC, line["queue_id"], line["store_timestamp"]


def new_log(store, directory, lines):
    settings = store.config["store"]
    names = ("enabledAppendPropCRC", "enableLmq", "enableMultiDispatch")
    config = {
        name: bool(settings.get(key))
        for name, key in zip(
            ("enabled_append_prop_crc", "enable_lmq", "enable_multi_dispatch"), names
        )
    }
    log = Log(
        directory, settings["mappedFileSizeCommitLog"], store.config["commitlog_dirs"], **config
    )
    log.queue.writable_file(store.meta["min_phy_offset"])
    log.batch_topics = {
        topic
        for topic, kind in store.config.get("topic_queue_types", {}).items()
        if kind == "BatchCQ"
    }
    simple, batch = {}, {}
    for queue, offset in first_offsets(lines).items():
        (batch if queue[0] in log.batch_topics else simple)[queue] = offset
    log.offsets.set_all(simple, batch)
    return log


def given(line):
    message = golden_message(line)
    message.properties_raw = _COMPLETED.sub(b"7", message.properties_raw)
    return message


def assert_same_segments(store, log, directory):
    expected = {
        str(path.relative_to(store.root)): path.read_bytes()
        for path in store.root.rglob("*")
        if path.parent.name in store.config["commitlog_dirs"] and path.is_file()
    }
    expected = expected or {
        str(path.relative_to(store.root)): path.read_bytes()
        for path in store.root.rglob("commitlog/*")
    }
    assert {str(Path(f.path).relative_to(directory)) for f in log.queue.mapped_files} == set(
        expected
    )
    for relative, content in expected.items():
        same = (directory / relative).read_bytes() == content
        assert same, relative
    assert log.queue.max_offset == store.meta["max_phy_offset"]


@pytest.mark.parametrize("name", GOLDEN)
def test_one_by_one_and_in_plain_batches(name, tmp_path):
    store = golden(name)
    lines = list(store.dump("messages"))
    log = new_log(store, tmp_path, lines)
    for _, group in itertools.groupby(lines, put_together):
        part = list(group)
        log.clock.now = part[0]["store_timestamp"]
        if part[0]["topic"] == BATCH_TOPIC:
            result = log.putter.put_messages([given(line) for line in part])
            assert result.append_result.message_id == ",".join(line["msg_id"] for line in part)
            results = [result]
        else:
            results = [log.putter.put_message(given(line)) for line in part]
            assert [r.append_result.message_id for r in results] == [x["msg_id"] for x in part]
            assert [r.append_result.queue_offset for r in results] == [
                x["queue_offset"] for x in part
            ]
        assert {r.status for r in results} == {PutMessageStatus.PUT_OK}
    assert_same_segments(store, log, tmp_path)
    log.queue.close()


@pytest.mark.parametrize("name", ["multipath-5x", "ext-5x", "expired-5x"])
def test_as_record_batches(name, tmp_path):
    store = golden(name)
    lines = list(store.dump("messages"))
    log = new_log(store, tmp_path, lines)
    for time, group in itertools.groupby(lines, lambda line: line["store_timestamp"]):
        part = list(group)
        log.clock.now = time
        result = log.putter.append_batch(batch_of([given(line) for line in part]))
        assert (result.status, result.rows) == (PutMessageStatus.PUT_OK, len(part)), result.reason
        assert result.commit_log_offsets.tolist() == [x["commit_log_offset"] for x in part]
        assert result.queue_offsets.tolist() == [x["queue_offset"] for x in part]
    assert_same_segments(store, log, tmp_path)
    log.queue.close()


@pytest.mark.parametrize("name", ["classic-5x", "batch-5x"])
def test_one_record_batch_is_as_one_by_one(name, tmp_path):
    """Over many segments; with inner batches, light queues and the property CRC in batch-5x."""
    store = golden(name)
    lines = [line for line in store.dump("messages") if line["topic"] != BATCH_TOPIC]
    logs = [new_log(store, tmp_path / which, lines) for which in ("rows", "batch")]
    messages = [given(line) for line in lines]
    for message in messages:
        assert logs[0].putter.put_message(message).is_appended
    result = logs[1].putter.append_batch(batch_of(messages))
    assert result.rows == len(lines)
    assert result.queue_offsets.tolist() == [line["queue_offset"] for line in lines]
    assert len(logs[0].queue.mapped_files) > 2
    assert logs[0].bytes() == logs[1].bytes()
    assert logs[0].offsets.simple == logs[1].offsets.simple
    assert logs[0].offsets.batch == logs[1].offsets.batch
    for log in logs:
        log.queue.close()
