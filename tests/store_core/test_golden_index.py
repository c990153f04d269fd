# SPDX-License-Identifier: Apache-2.0
"""Queries by key in the golden stores: RocketMQ's answers, and exact ones."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import defaultdict

import pytest

from store_core import CorruptRecordError, MessageStoreConfig, StoreSnapshot
from store_core.layout import COMPRESSED_FLAG
from tests.golden_store import CLUSTER_NAMES, GOLDEN_NAMES, RECOVERED_NAMES, STORE_NAMES, golden
from tests.store_core.snapshot.golden_snapshot import DUMPED_STORES, keys_by_topic, open_golden

MAX_MS = 2**63 - 1


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_sizes_of_index_files_are_found_from_them(name):
    store = golden(name, name in RECOVERED_NAMES)
    paths = store.config_properties.get("storePathCommitLog")
    config = MessageStoreConfig(store_path_commit_log=paths)
    with StoreSnapshot(store.root, config) as snapshot:
        sizes = (store.config_properties["maxHashSlotNum"], store.config_properties["maxIndexNum"])
        if snapshot.index.files:
            assert snapshot.index.sizes == tuple(map(int, sizes))
        assert len(snapshot.index.files) == len(open_golden(name).index.files)


def _offsets(messages):
    return [message.commit_log_offset for message in messages]


@pytest.mark.parametrize(("name", "recovered"), DUMPED_STORES)
def test_find_messages_of_all_keys(name, recovered):
    snapshot = open_golden(name, recovered)
    for topic, keys in keys_by_topic(name).items():
        found = snapshot.find_messages(topic, list(keys))
        expected = defaultdict(list)
        for message in found:
            for key in {*(message.keys or ()), message.unique_key} - {None}:
                expected[key].append(message.commit_log_offset)
        assert expected == keys
        chosen = sorted(keys, key=lambda key: (-len(keys[key]), key))[:3]
        chosen += random.Random(1).sample(sorted(keys), min(5, len(keys)))
        for key in chosen:
            assert _offsets(snapshot.find_messages(topic, [key])) == keys[key]
        assert snapshot.find_messages(topic, ["no such key"]) == []


def test_find_messages_in_a_store_that_was_not_recovered():
    snapshot = open_golden("crashed-5x", recovered=False)
    for topic, keys in keys_by_topic("crashed-5x").items():
        found = snapshot.find_messages(topic, keys)
        assert {*_offsets(found)} == {*itertools.chain(*keys.values())}


def test_find_messages_says_where_it_could_not_look():
    torn_at = golden("torn-5x").meta["max_phy_offset"]
    snapshot = open_golden("torn-5x", recovered=False)
    with pytest.raises(CorruptRecordError) as error:
        snapshot.find_messages("TopicTest", ["n0"])
    assert error.value.position == torn_at % snapshot.log.segments.file_size


@pytest.mark.parametrize("name", STORE_NAMES)
def test_find_messages_by_time(name):
    snapshot = open_golden(name)
    lines = [line for line in golden(name).dump("messages") if line["topic"] == "TopicTest"]
    times = {line["commit_log_offset"]: line["store_timestamp"] for line in lines}
    keys = keys_by_topic(name)["TopicTest"]
    places = {*itertools.chain(*keys.values())}
    ordered = sorted(times.values())
    if not ordered:
        return
    first, last = ordered[len(ordered) // 3], ordered[2 * len(ordered) // 3]
    for begin, end in [(first, last), (first, None), (None, last), (last, first - 1)]:
        low, high = begin if begin is not None else 0, end if end is not None else MAX_MS
        expected = sorted(place for place in places if low <= times[place] <= high)
        assert _offsets(snapshot.find_messages("TopicTest", keys, begin, end)) == expected


@pytest.mark.parametrize("name", CLUSTER_NAMES)
def test_queries_by_key_of_a_cluster(name):
    snapshot = open_golden(name)
    for line in golden(name).dump("query_by_key"):
        query = (line["topic"], line["key"], line["max_num"], line["begin"], line["end"])
        messages = snapshot.query_message(*query).messages
        with_key = [message for message in messages if line["key"] in (message.keys or ())]
        found = line.get("found", [])  # otherwise error 208: no message
        assert _offsets(with_key) == [item["commit_log_offset"] for item in found], line
        for message, item in zip(with_key, found):
            _assert_is(message, item)


@pytest.mark.parametrize("name", CLUSTER_NAMES)
def test_queries_by_id_of_a_cluster(name):
    snapshot = open_golden(name)
    for line in golden(name).dump("query_by_id"):
        found = line.get("found")
        if line["id_kind"] == "offset":
            messages = [m for m in [snapshot.look_message_by_id(line["id"])] if m]
        else:
            messages = snapshot.find_messages(line["topic"], [line["id"]])
        if found is None:
            assert messages == [], line
        else:
            _assert_is(
                {m.commit_log_offset: m for m in messages}[found["commit_log_offset"]], found
            )


def _assert_is(message, item):
    names = "topic queue_id queue_offset commit_log_offset store_size store_timestamp tags"
    for name in [*names.split(), "reconsume_times", "properties"]:
        assert getattr(message, name) == item[name], name
    assert message.sys_flag | COMPRESSED_FLAG == item["sys_flag"] | COMPRESSED_FLAG  # 5.x clears it
    assert message.message_id == item["offset_msg_id"]
    assert hashlib.sha256(message.body).hexdigest() == item["body_sha256"]
