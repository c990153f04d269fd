# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from store_core.config.config_files import (
    load_consumer_offsets,
    load_delay_offsets,
    load_subscription_groups,
    load_topics,
    static_topics,
    warn_of_static_topics,
)
from store_core.config.consumer_filter_file import (
    ConsumerFilterData,
    load_consumer_filters,
    save_consumer_filters,
)
from store_core.errors import StoreFormatError
from store_core.files.store_directory import StoreDirectory
from tests.golden_store import CLUSTER_NAMES, golden, tree_state

# One of two brokers of a topic of four queues, as TopicQueueMappingManager of 5.3.3 writes it.
DETAIL = {
    "bname": "broker-a",
    "currIdMap": {"0": 0, "1": 1},
    "dirty": False,
    "epoch": 1795792000000,
    "hostedQueues": {
        "0": [{"bname": "broker-a", "endOffset": -1, "gen": 0, "logicOffset": 0, "queueId": 0}],
        "1": [{"bname": "broker-a", "endOffset": -1, "gen": 0, "logicOffset": 500, "queueId": 1}],
    },
    "scope": "__global__",
    "topic": "orders",
    "totalQueues": 4,
}


@pytest.fixture
def store(tmp_path):
    (tmp_path / "config").mkdir()
    return StoreDirectory(str(tmp_path))


def write(store, name, text):
    with open(store.resolve("config", name), "w", encoding="utf-8") as out:  # noqa: PTH123
        out.write(text)


@pytest.mark.parametrize("name", CLUSTER_NAMES)
def test_golden_config_files(name):
    golden_store = golden(name)
    before = tree_state(golden_store.root / "config")
    directory = StoreDirectory(str(golden_store.root))
    topics = load_topics(directory)
    for topic in filter(None, golden_store.config["topics"].values()):
        assert topics[topic].topic_name == topic
        assert topics[topic].perm == 6
    assert topics["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18
    kinds = {topic.attributes.get("message.type") for topic in topics.values()}
    assert ("DELAY" in kinds) == (name != "cluster-4x") or kinds == {None}
    groups = load_subscription_groups(directory)
    assert set(golden_store.config["groups"]) <= set(groups)
    assert min(load_delay_offsets(directory)) == 1
    assert tree_state(golden_store.root / "config") == before


@pytest.mark.parametrize("name", CLUSTER_NAMES)
def test_golden_consumer_offsets_are_those_in_the_file(name):
    golden_store = golden(name)
    offsets = load_consumer_offsets(StoreDirectory(str(golden_store.root)))
    text = (golden_store.root / "config" / "consumerOffset.json").read_text("utf-8")
    bookings = golden_store.config["topics"]["normal"]
    group = f"cg_{bookings}_lagging"
    assert set(offsets[group, bookings]) == {0, 1, 2, 3}
    assert offsets[group, bookings][2] == 5 + 7 * 2
    broadcasting = (f"cg_{bookings}_broadcast@broadcast", bookings)
    assert (broadcasting in offsets) == (name != "cluster-4x")
    assert text.count("@") == len(offsets) + (broadcasting in offsets)


def test_missing_and_empty_files_are_none(store):
    assert load_topics(store) is None
    assert load_consumer_offsets(store) == {}
    write(store, "topics.json", "")
    write(store, "delayOffset.json.bak", " \n")
    assert load_topics(store) is None
    assert load_delay_offsets(store) is None


@pytest.mark.parametrize("broken", [None, "", "{1:", "[]", '{"offsetTable":{1:"x"}}', "\0"])
def test_the_backup_is_read_where_the_file_is_unusable(store, broken):
    if broken is not None:
        write(store, "delayOffset.json", broken)
    write(store, "delayOffset.json.bak", '{"offsetTable":{1:57,3:12}}')
    assert load_delay_offsets(store) == {1: 57, 3: 12}


@pytest.mark.parametrize("garbage", ["x", "\0" * 100, '{"topicConfigTable":{"a":{"perm":"x"}}}'])
def test_garbage_without_backup_counts_as_missing_with_a_warning(store, caplog, garbage):
    write(store, "topics.json", garbage)
    write(store, "topics.json.bak", "garbage")
    assert load_topics(store) is None
    assert "topics.json: not what a broker writes: " in caplog.text
    assert caplog.text.rstrip().endswith("; it is treated as missing here")


def test_a_garbage_backup_of_a_missing_file_counts_as_missing_too(store, caplog):
    write(store, "topics.json.bak", "garbage")
    assert load_topics(store) is None
    assert "topics.json.bak: not what a broker writes: " in caplog.text


def test_garbage_is_an_error_where_the_offsets_are_needed(store):
    write(store, "consumerOffset.json", "\0" * 100)
    assert load_consumer_offsets(store) == {}
    with pytest.raises(StoreFormatError, match=r"consumerOffset\.json: not what a broker writes"):
        load_consumer_offsets(store, is_needed=True)


def test_missing_fields_have_rocketmqs_defaults(store):
    write(store, "topics.json", '{"topicConfigTable":{"a":{"new":1}},"x":[]}')
    write(store, "subscriptionGroup.json", '{"subscriptionGroupTable":{"g":{}}}')
    topic = load_topics(store)["a"]
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (16, 16, 6)
    group = load_subscription_groups(store)["g"]
    assert (group.consume_enable, group.retry_max_times) == (True, 16)


def test_light_queues_and_odd_groups(store):
    table = {"orders@a@b": {"0": 1}, "%RETRY%g@g": {"2": 3}}
    write(store, "consumerOffset.json", json.dumps({"offsetTable": table}))
    write(store, "lmqConsumerOffset.json", '{"lmqOffsetTable":{"%LMQ%x@%LMQ%group":5}}')
    assert load_consumer_offsets(store) == {
        ("a@b", "orders"): {0: 1},
        ("g", "%RETRY%g"): {2: 3},
        ("%LMQ%group", "%LMQ%x"): {0: 5},
    }


def test_a_key_without_group_is_skipped(store):
    write(store, "consumerOffset.json", '{"offsetTable":{"orders":{0:1},"a@g":{0:2},"@g":{}}}')
    assert load_consumer_offsets(store) == {("g", "a"): {0: 2}}


def directory_with(tmp_path: Path, topics: dict[str, object]) -> StoreDirectory:
    (tmp_path / "config").mkdir()
    content = {"dataVersion": {"counter": 1}, "topicQueueMappingInfoMap": topics}
    (tmp_path / "config" / "topicQueueMapping.json").write_text(json.dumps(content))
    return StoreDirectory(str(tmp_path))


def test_static_topics_are_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = directory_with(tmp_path, {"orders": DETAIL, "bills": {**DETAIL, "topic": "bills"}})
    assert static_topics(directory) == ("bills", "orders")
    warn_of_static_topics(directory)
    (record,) = caplog.records
    assert "static topics (bills, orders): consumers see logical offsets" in record.getMessage()


def test_a_broker_without_static_topics_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    warn_of_static_topics(directory_with(tmp_path, {}))
    warn_of_static_topics(StoreDirectory(str(tmp_path / "none")))
    assert caplog.records == []


def put(path, data):
    Path(path).write_bytes(data)


def loaded(root):
    return load_consumer_filters(StoreDirectory(str(root)))


def given(root, text):
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerFilter.json").write_text(text)
    return root


@pytest.mark.parametrize("name", CLUSTER_NAMES)
def test_a_brokers_file_is_written_as_it_was_read(name, tmp_path):
    root = golden(name).root
    filters = loaded(root)
    save_consumer_filters(str(tmp_path), filters, put)
    texts = [(r / "config" / "consumerFilter.json").read_text() for r in (root, tmp_path)]
    assert json.loads(texts[0]) == json.loads(texts[1])
    assert loaded(tmp_path) == tuple(sorted(filters, key=lambda data: data.consumer_group))
    first, topic = filters[0], golden(name).config["topics"]["filter"]
    assert (first.topic, first.expression_type, first.bit_count) == (topic, "SQL92", 112)
    assert 0 < first.born_timestamp < first.dead_timestamp
    assert first.is_dead


def test_what_is_missing_has_defaults(tmp_path):
    text = '{"filterDataByTopic":{"t":{"groupFilterData":{"g":{"expression":"a"}}}}}'
    assert loaded(given(tmp_path, text)) == (ConsumerFilterData("t", "g", "a"),)
    save_consumer_filters(str(tmp_path), loaded(tmp_path), put)
    assert loaded(tmp_path) == (ConsumerFilterData("t", "g", "a"),)


@pytest.mark.parametrize("text", ["[]", "{not json", '{"filterDataByTopic":7}'])
def test_what_cannot_be_read_is_kept_when_the_file_is_written(tmp_path, text, caplog):
    given(tmp_path, text)
    filters = (ConsumerFilterData("t", "g", "a"),)
    for _ in range(2):
        save_consumer_filters(str(tmp_path), filters, put)
    assert loaded(tmp_path) == filters
    kept = tmp_path / "config" / "consumerFilter.json.unreadable"
    assert kept.read_text() == text
    assert caplog.text.count(str(kept)) == 1


def test_no_file_and_an_empty_one(tmp_path):
    assert loaded(tmp_path) is None
    assert loaded(given(tmp_path, "{}")) == ()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"filterDataByTopic":[]}',
        '{"filterDataByTopic":{"t":{"groupFilterData":{"g":null}}}}',
        '{"filterDataByTopic":{"t":{"groupFilterData":{"g":7}}}}',
        '{"filterDataByTopic":{"t":{"groupFilterData":{"g":{"bornTime":"x"}}}}}',
        '{"filterDataByTopic":{"t":{"groupFilterData":{"g":{"bloomFilterData":{"bitPos":7}}}}}}',
        '{"filterDataByTopic":{"t":{"groupFilterData":{"g":{"bloomFilterData":{"bitPos":["x"]}}}}}}',
    ],
)
def test_a_file_that_no_broker_writes_counts_as_missing_with_a_warning(text, tmp_path, caplog):
    assert loaded(given(tmp_path, text)) is None
    assert "consumerFilter.json: not what a broker writes" in caplog.text
