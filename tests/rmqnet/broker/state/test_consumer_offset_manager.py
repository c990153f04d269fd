# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging

import pytest

from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.state.consumer_offset_manager import ConsumerOffsetManager
from store_core.config.config_files import load_consumer_offsets
from store_core.config.lenient_json import parse_lenient_json
from store_core.files.store_directory import StoreDirectory
from tests.golden_store import golden


@pytest.fixture
def config():
    return BrokerConfig(broker_name="b", consumer_offset_update_version_step=3)


@pytest.fixture
def offsets(config, tmp_path):
    return ConsumerOffsetManager(config, str(tmp_path), lambda: 100)


@pytest.mark.parametrize("name", ["cluster-4x", "cluster-5x"])
def test_offsets_of_a_real_broker(config, name):
    root = str(golden(name).root)
    offsets = ConsumerOffsetManager(config, root, int, is_read_only=True)
    offsets.load()
    noted = load_consumer_offsets(StoreDirectory(root))
    for (group, topic), queues in noted.items():
        assert offsets.query_all(group, topic) == queues
        assert topic in offsets.topics_of(group)
        assert group in offsets.groups_of(topic)
        for queue_id, offset in queues.items():
            assert offsets.query(group, topic, queue_id) == offset


def test_commits_are_saved_when_told_to(offsets, tmp_path):
    assert offsets.query("g", "t", 0) == -1
    offsets.commit("g", "t", 0, 5)
    offsets.commit("g@broadcast", "t", 1, 7)
    assert load_consumer_offsets(StoreDirectory(str(tmp_path))) == {}
    offsets.persist()
    noted = load_consumer_offsets(StoreDirectory(str(tmp_path)))
    assert noted == {("g", "t"): {0: 5}, ("g@broadcast", "t"): {1: 7}}


def test_keys_that_name_no_group_are_kept_as_brokers_keep_them(offsets, config, tmp_path):
    odd = {"no group": {"0": 3}, "topic@": {"1": 4}, "@group": {"2": 5}}
    path = tmp_path / "config" / "consumerOffset.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"offsetTable": {**odd, "t@g": {"0": 6}}}))
    offsets.load()
    offsets.commit("g", "t", 0, 7)
    offsets.persist()
    table = parse_lenient_json(path.read_text())["offsetTable"]
    found = {key: {str(each): offset for each, offset in table[key].items()} for key in table}
    assert found == {**odd, "t@g": {"0": 7}}


def test_a_file_that_says_it_all_is_left_alone(offsets, tmp_path):
    path = tmp_path / "config" / "consumerOffset.json"
    changes = [
        lambda: offsets.commit("g", "t", 0, 5),
        lambda: offsets.assign_reset("g", "t", 0, 4),
        lambda: offsets.clone("g", "h", "t"),
        lambda: offsets.remove_group("g"),
        lambda: offsets.remove_topic("t"),
    ]
    for change in changes:
        change()
        offsets.persist()
        written = path.stat().st_mtime_ns, path.stat().st_ino
        offsets.commit_pull("g", "t", 0, 9)
        offsets.persist()
        assert (path.stat().st_mtime_ns, path.stat().st_ino) == written
        offsets.clear_pull("g", "t")


def test_the_version_counts_some_commits(offsets):
    for offset in range(7):
        offsets.commit("g", "t", 0, offset)
    assert offsets.data_version.counter == 2


def test_a_commit_that_goes_back_is_taken_and_told(offsets, caplog):
    offsets.commit("g", "t", 0, 5)
    with caplog.at_level(logging.WARNING):
        offsets.commit("g", "t", 0, 4, "10.0.0.1:5")
    assert offsets.query("g", "t", 0) == 4
    assert "10.0.0.1:5 sets group g back in queue t/0: from 5 to 4" in caplog.text


def test_what_was_handed_out(offsets):
    offsets.commit("g", "t", 0, 5)
    assert offsets.query_pull("g", "t", 0) == 5
    offsets.commit_pull("g", "t", 0, 9)
    assert (offsets.query_pull("g", "t", 0), offsets.query("g", "t", 0)) == (9, 5)
    offsets.clear_pull("g", "t")
    assert offsets.query_pull("g", "t", 0) == 5


def test_an_offset_that_was_assigned_is_taken_once(offsets, config):
    offsets.commit("g", "t", 0, 5)
    offsets.assign_reset("g", "t", 0, 2)
    offsets.commit("g", "t", 0, 6)
    assert offsets.has_reset("g", "t", 0)
    assert offsets.query("g", "t", 0) == 2
    config.update({"useServerSideResetOffset": "false"})
    assert offsets.query("g", "t", 0) == 6
    assert offsets.take_reset("g", "t", 0) == 2
    assert offsets.take_reset("g", "t", 0) is None
    assert offsets.take_reset("g", "nothing", 0) is None
    assert not offsets.has_reset("g", "t", 0)


def test_groups_and_topics_are_forgotten(offsets):
    for group in ("g", "gg"):
        for topic in ("t", "tt"):
            offsets.commit(group, topic, 0, 1)
    offsets.commit_pull("g", "t", 0, 9)
    offsets.assign_reset("g", "t", 0, 9)
    offsets.remove_group("g")
    assert offsets.topics_of("g") == set()
    assert offsets.topics_of("gg") == {"t", "tt"}
    assert offsets.query_pull("g", "t", 0) == -1
    offsets.remove_topic("t")
    assert offsets.topics_of("gg") == {"tt"}


def test_a_group_goes_on_where_another_is(offsets):
    offsets.commit("a", "t", 0, 3)
    offsets.clone("a", "b", "t")
    offsets.commit("a", "t", 0, 4)
    assert offsets.query("b", "t", 0) == 3
    offsets.clone("nobody", "b", "t")
    assert offsets.query("b", "t", 0) == 3


def test_the_answer_for_slaves(offsets, config, tmp_path):
    offsets.commit("g", "t", 0, 3)
    body = offsets.encode().decode()
    assert '"t@g":{0:3}' in body
    slave = ConsumerOffsetManager(config, str(tmp_path), int)
    slave.commit("h", "t", 1, 8)
    slave.assign(parse_lenient_json(body))
    assert slave.query("g", "t", 0) == 3
    assert slave.query("h", "t", 1) == 8
