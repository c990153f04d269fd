# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import json
import threading

import pytest

from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.state.attributes import parse_attribute_changes
from rmqnet.broker.state.subscription_group_manager import SubscriptionGroupManager
from rmqnet.broker.state.topic_config_manager import DEFAULT_TOPIC, TopicConfigManager
from store_core.config.config_files import (
    SubscriptionGroupConfig,
    TopicConfig,
    load_subscription_groups,
    load_topics,
)
from store_core.files.store_directory import StoreDirectory
from tests.golden_store import golden


@pytest.fixture
def config():
    return BrokerConfig(broker_name="broker-a")


@pytest.fixture
def topics(config, tmp_path):
    return TopicConfigManager(config, str(tmp_path), itertools.count(100).__next__)


@pytest.fixture
def heard(topics):
    events = []
    topics.on_change(lambda each: events.append(each and each.topic_name))
    return events


def saved(tmp_path):
    return load_topics(StoreDirectory(str(tmp_path)))


def test_a_brokers_own_topics_are_those_of_a_real_one(tmp_path):
    store = golden("cluster-5x")
    theirs = load_topics(StoreDirectory(str(store.root)))
    cluster = next(name for name in theirs if name.endswith("_REPLY_TOPIC")).removesuffix(
        "_REPLY_TOPIC"
    )
    prefix = "rmq_sys_SYNC_BROKER_MEMBER_"
    name = next(each for each in theirs if each.startswith(prefix)).removeprefix(prefix)
    ours = TopicConfigManager(
        BrokerConfig(broker_name=name, broker_cluster_name=cluster), str(tmp_path), int
    ).all()
    assert {each: theirs[each] for each in ours} == ours


def test_a_send_makes_a_topic_like_the_default_topic(topics, heard, tmp_path):
    made = topics.create_in_send_message("t", DEFAULT_TOPIC, "c:1", 4, 1)
    assert made == TopicConfig("t", 4, 4, 6, topic_sys_flag=1)
    assert topics.create_in_send_message("t", DEFAULT_TOPIC, "c:1", 2) is made
    assert topics.create_in_send_message("u", DEFAULT_TOPIC, "c:1", 99).write_queue_nums == 8
    assert topics.create_in_send_message("v", DEFAULT_TOPIC, "c:1", -3).write_queue_nums == 0
    assert heard == ["t", "u", "v"]
    assert saved(tmp_path)["t"] == made
    assert topics.data_version.counter == 3


@pytest.mark.parametrize("default_topic", ["nowhere", "BenchmarkTest"])
def test_a_send_makes_no_topic_like_one_that_is_not_there_or_gives_nothing(
    topics, heard, default_topic
):
    assert topics.create_in_send_message("t", default_topic, "c:1", 4) is None
    assert topics.select("t") is None
    assert heard == []


def test_a_send_makes_no_topic_where_the_broker_does_not_want_it(config, topics, tmp_path):
    config.update({"autoCreateTopicEnable": "false"})
    assert topics.create_in_send_message("t", DEFAULT_TOPIC, "c:1", 4) is None
    later = TopicConfigManager(config, str(tmp_path), int)
    assert later.select(DEFAULT_TOPIC) is None
    assert later.create_in_send_message("t", "broker-a", "c:1", 4).read_queue_nums == 1


def test_retry_topics_are_made_once(topics, heard):
    made = topics.create_in_send_message_back("%RETRY%g", 1, sys_flag=2)
    assert made == TopicConfig("%RETRY%g", 1, 1, 6, topic_sys_flag=2)
    assert topics.create_in_send_message_back("%RETRY%g", 5) == made
    assert topics.create_in_send_message_back("%RETRY%g", 5, order=True).order
    assert topics.select("%RETRY%g").read_queue_nums == 1
    assert heard == ["%RETRY%g"] * 2


@pytest.mark.parametrize(
    "attributes",
    [{"message.type": "LITE", "lite.topic.expiration": "30"}, {"message.type": "PRIORITY"}],
)
def test_types_of_newer_releases_stay(topics, tmp_path, attributes):
    """5.5 has topics that 5.3.3 does not know; saving keeps their attributes."""
    table = {"topicName": "new", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(
        json.dumps({"topicConfigTable": {"new": {**table, "attributes": attributes}}})
    )
    topics.load()
    assert topics.select("new").attributes == attributes
    topics.create_in_send_message("t", DEFAULT_TOPIC, "c:1", 4)
    topics.update(TopicConfig("new", 5, 5), {})
    assert saved(tmp_path)["new"].attributes == attributes
    assert saved(tmp_path)["new"].read_queue_nums == 5


def changes(text):
    return parse_attribute_changes(text)


def test_attributes_change_one_by_one(topics, tmp_path):
    config = TopicConfig("t", 2, 3)
    topics.update(config, changes("+message.type=FIFO,+queue.type=BatchCQ"))
    assert saved(tmp_path)["t"].attributes == {"message.type": "FIFO", "queue.type": "BatchCQ"}
    assert topics.update(config, {}).attributes["message.type"] == "FIFO"
    topics.update(config, changes("+message.type=NORMAL,+reserve.time=-1"))
    assert topics.update(config, changes("-message.type")).attributes == {
        "queue.type": "BatchCQ",
        "reserve.time": "-1",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        ("message.type", "delete attribute format is wrong: message.type"),
        ("+a=1,+a=2", r"key duplication: \+a"),
        ("+message.type=NORMAL,-message.type", "alter duplication key. key: message.type"),
        ("+=x", "kv string format wrong"),
        ("-message.type", "attempt to delete a nonexistent key: message.type"),
        ("+colour=red", "unsupported key: colour"),
        ("+queue.type=SimpleCQ", "attempt to update an unchangeable attribute. key: queue.type"),
        ("+message.type=normal", "value is not in set"),
        ("+reserve.time=-2", "value is not in range"),
        ("+reserve.time=9223372036854775808", "value is not in range"),
        ("+reserve.time=x", "value is not in range"),
        ("x+y=1", "wrong"),
    ],
)
def test_attributes_that_may_not_be(topics, text, words):
    before = topics.update(TopicConfig("t", 2, 3), {})
    with pytest.raises(ValueError, match=words):
        topics.update(TopicConfig("t", 9, 9), changes(text))
    assert topics.select("t") == before


def test_a_new_topic_only_gets_attributes(topics):
    with pytest.raises(ValueError, match="only add attribute is supported while creating topic"):
        topics.update(TopicConfig("t"), {"-message.type": ""})
    assert topics.select("t") is None


def test_of_several_topics_all_are_changed_or_none(topics, heard):
    bad = (TopicConfig("b"), {"+colour": "red"})
    with pytest.raises(ValueError, match="colour"):
        topics.update_all([(TopicConfig("a"), {}), bad])
    assert topics.select("a") is None
    assert [each.topic_name for each in topics.update_all([(TopicConfig("a"), {})])] == ["a"]
    assert heard == ["a"]


def test_a_deleted_topic_is_gone_from_the_file(topics, heard, tmp_path):
    topics.update(TopicConfig("t"), {})
    assert topics.delete("t")
    assert not topics.delete("t")
    assert "t" not in saved(tmp_path)
    assert heard == ["t", None]


def test_names_of_the_brokers_own_topics(topics):
    own = ("TBW102", "broker-a", "DefaultCluster", "rmq_sys_x", "DefaultCluster_REPLY_TOPIC")
    assert all(map(topics.is_system_topic, own))
    assert not topics.is_system_topic("%RETRY%g")
    assert not topics.is_sending_allowed("SCHEDULE_TOPIC_XXXX")
    assert topics.is_sending_allowed("TBW102")
    assert set(own) - {"rmq_sys_x"} < set(topics.system_topics())


def test_order_topics_of_name_servers(topics):
    topics.update(TopicConfig("t"), {})
    version = topics.data_version
    topics.set_order_topics(["t", "elsewhere"])
    assert topics.is_order_topic("t")
    assert not topics.is_order_topic("elsewhere")
    assert topics.data_version > version


def test_a_slave_forgets_what_its_master_has_no_more(topics):
    topics.update(TopicConfig("t"), {})
    data = {"dataVersion": {"counter": 77}, "topicConfigTable": {"u": {"perm": 4}}}
    topics.assign(data, whole=True)
    assert topics.all() == {"u": TopicConfig("u", perm=4)}
    assert topics.data_version.counter == 77
    assert json.loads(topics.encode())["topicConfigTable"]["u"]["perm"] == 4


def test_many_threads_make_topics_at_once(topics, tmp_path):
    def work(first):
        for number in range(6):
            topics.create_in_send_message(f"t{(first + number) % 8}", DEFAULT_TOPIC, "c", 4)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = {name for name in saved(tmp_path) if name[0] == "t" and name[1:].isdecimal()}
    assert made == {f"t{number}" for number in range(8)} | set()
    assert topics.data_version.counter == 8


@pytest.fixture
def groups(config, tmp_path):
    return SubscriptionGroupManager(config, str(tmp_path), lambda: 100)


def saved_groups(tmp_path):
    return load_subscription_groups(StoreDirectory(str(tmp_path)))


def test_a_brokers_own_groups_are_those_of_a_real_one(groups):
    theirs = load_subscription_groups(StoreDirectory(str(golden("cluster-5x").root)))
    own = groups.all()
    assert {name: theirs[name] for name in own} == own


def test_a_group_is_made_when_it_is_looked_for(groups, tmp_path):
    assert groups.get("g") is None
    assert groups.find("g") == SubscriptionGroupConfig("g")
    assert saved_groups(tmp_path)["g"] == SubscriptionGroupConfig("g")
    assert groups.find("g") is groups.get("g")
    assert groups.data_version.counter == 1


@pytest.mark.parametrize("name", ["a b", "", "x" * 256, "ä", "a@b"])
def test_no_group_is_made_of_a_name_that_is_none(groups, name):
    assert groups.find(name) is None
    assert groups.data_version.counter == 0


def test_without_auto_creation_only_system_groups_are_made(config, groups):
    config.update({"autoCreateSubscriptionGroup": "false"})
    assert groups.find("g") is None
    assert groups.find("CID_RMQ_SYS_x") is not None
    config.update({"enableCreateSysGroup": "false"})
    assert groups.find("CID_RMQ_SYS_y") is None


def test_a_group_changes_whole(groups, tmp_path):
    item = {"groupName": "g", "retryMaxTimes": 2, "groupRetryPolicy": {"type": "EXPONENTIAL"}}
    groups.update(SubscriptionGroupConfig("g", retry_max_times=2), item)
    assert saved_groups(tmp_path)["g"].retry_max_times == 2
    assert groups.json_of("g")["groupRetryPolicy"] == {"type": "EXPONENTIAL"}
    with pytest.raises(ValueError, match="unsupported key: colour"):
        groups.update(SubscriptionGroupConfig("g", attributes={"+colour": "red"}), {})
    groups.disable_consume("g")
    assert not groups.get("g").consume_enable
    assert groups.delete("g")
    assert not groups.delete("g")
    assert "g" not in saved_groups(tmp_path)


def test_what_a_group_may_not_read_is_kept(groups, tmp_path, config):
    groups.set_forbidden("g", "t", 5)
    later = SubscriptionGroupManager(config, str(tmp_path), int)
    later.load()
    assert later.forbidden("g", "t") == 5
    assert later.forbidden("g", "u") == later.forbidden("h", "t") == 0
    later.set_forbidden("g", "t", 0)
    assert later.forbidden("g", "t") == 0


def test_a_store_that_5_4_had_gets_no_group_of_more_than_120_characters(groups, tmp_path):
    older = groups.find("x" * 255)
    assert older is not None
    (tmp_path / "rocksdbstore").mkdir()
    assert groups.find("y" * 121) is None
    assert groups.find("y" * 120) is not None
    assert groups.find("x" * 255) is older
