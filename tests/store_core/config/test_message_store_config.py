# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from rmqnet.broker.broker_config import BrokerConfig
from store_core.config.broker_config import read_properties
from store_core.config.config_checks import camel_case
from store_core.config.message_store_config import (
    KEYS,
    MessageStoreConfig,
    config_key_names,
    load_broker_config,
    with_default_sizes,
)
from store_core.errors import StoreConfigError, StoreReadError
from store_core.layout import BATCH_CQ_UNIT, CQ_UNIT

CASES = json.loads(Path(__file__).with_name("properties_answers.json").read_text("utf-8"))["cases"]
_BROKER_FIELDS = {
    "brokerName": "broker_name",
    "brokerIP1": "broker_ip1",
    "brokerId": "broker_id",
    "autoCreateTopicEnable": "auto_create_topic_enable",
    "defaultTopicQueueNums": "default_topic_queue_nums",
}
NOT_OF_A_STORE = {
    *("fileReservedTime=-48", "fileReservedTime=-2147483648"),
    *("diskMaxUsedSpaceRatio=0", "diskMaxUsedSpaceRatio=200", "diskMaxUsedSpaceRatio=-1"),
    *("deleteWhen=24", "deleteWhen=x", "deleteWhen="),
    *("osPageCacheBusyTimeOutMills=-48", "osPageCacheBusyTimeOutMills=-2147483648"),
    *(
        "osPageCacheBusyTimeOutMills=-2147483649",
        "osPageCacheBusyTimeOutMills=-9223372036854775808",
    ),
    *("messageDelayLevel=1s  2s", "messageDelayLevel=x", "messageDelayLevel="),
}
"""RocketMQ accepts the value, but no store can have it: the default counts, with a warning."""
NOT_OF_A_BROKER = {"brokerName=a\0b", "defaultTopicQueueNums=-5", "brokerId=-1"}


def test_sizes_are_unknown_and_limits_are_rocketmqs():
    config = MessageStoreConfig(store_path_root_dir="/s")
    assert config.mapped_file_size_commit_log is None
    assert config.max_hash_slot_num is None
    assert (config.max_msgs_num_batch, config.max_filter_message_size) == (64, 16000)
    assert config.delay_levels_ms[0] == 1000
    assert config.delay_levels_ms[-1] == 2 * 3600 * 1000
    assert len(config.delay_levels_ms) == 18
    assert pickle.loads(pickle.dumps(config)) == config


def test_keys_are_spelled_as_rocketmq_does():
    assert KEYS["mapperFileSizeBatchConsumeQueue"] == "mapper_file_size_batch_consume_queue"
    assert camel_case("max_hash_slot_num") == "maxHashSlotNum"
    assert "readOnlyCommitLogStorePaths" in config_key_names()
    assert KEYS["checkCRCOnRecover"] == "check_crc_on_recover"
    assert KEYS["enabledAppendPropCRC"] == "enabled_append_prop_crc"
    assert KEYS["warmMapedFileEnable"] == "warm_maped_file_enable"


def test_from_properties_ignores_what_the_store_has_no_use_for():
    config = MessageStoreConfig.from_properties(
        {"maxIndexNum": " 400 ", "brokerName": "a", "messageDelayLevel": "2s 1d "}
    )
    assert config.max_index_num == 400
    assert config.delay_levels_ms == (2000, 86_400_000)


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({"maxHashSlotNum": "0"}, "maxHashSlotNum"),
        ({"maxHashSlotNum": "many"}, "maxHashSlotNum"),
        ({"mappedFileSizeCommitLog": "99999999999"}, "mappedFileSizeCommitLog"),
        ({"accessMessageInMemoryMaxRatio": "101"}, "accessMessageInMemoryMaxRatio"),
        ({"messageDelayLevel": "1s  5s"}, "messageDelayLevel"),
        ({"messageDelayLevel": "1w"}, "messageDelayLevel"),
        ({"messageDelayLevel": ""}, "messageDelayLevel"),
        ({"messageIndexEnable": "yes"}, "messageIndexEnable"),
        ({"flushDiskType": "FSYNC"}, "flushDiskType"),
        ({"brokerRole": "MASTER"}, "brokerRole"),
        ({"deleteWhen": "24"}, "deleteWhen"),
        ({"deleteWhen": "4,5"}, "deleteWhen"),
        ({"deleteWhen": " ; "}, "deleteWhen"),
        ({"maxTopicLength": "256"}, "maxTopicLength"),
        ({"diskMaxUsedSpaceRatio": "101"}, "diskMaxUsedSpaceRatio"),
        ({"fileReservedTime": "-1"}, "fileReservedTime"),
        ({"topicQueueLockNum": "0"}, "topicQueueLockNum"),
    ],
)
def test_bad_values_name_the_key(properties, key):
    with pytest.raises(StoreConfigError, match=key):
        MessageStoreConfig.from_properties(properties)


def test_values_of_another_type_are_refused():
    with pytest.raises(StoreConfigError, match=r"maxIndexNum=True"):
        MessageStoreConfig(max_index_num=True)
    with pytest.raises(StoreConfigError, match=r"enableLmq=1"):
        MessageStoreConfig(enable_lmq=1)
    with pytest.raises(StoreConfigError, match=r"deleteWhen=4"):
        MessageStoreConfig(delete_when=4)


def test_the_settings_of_writing_are_rocketmqs():
    config = MessageStoreConfig()
    assert (config.flush_disk_type, config.broker_role) == ("ASYNC_FLUSH", "ASYNC_MASTER")
    assert (config.max_message_size, config.topic_queue_lock_num) == (4 << 20, 32)
    assert (config.file_reserved_time, config.delete_hours) == (72, (4,))
    assert config.flush_consume_queue_thorough_interval == 60_000
    assert config.check_crc_on_recover
    assert not config.enabled_append_prop_crc
    assert MessageStoreConfig(file_reserved_time=0, flush_commit_log_least_pages=0)


def test_a_brokers_file_gives_the_settings(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text(
        "brokerClusterName = DefaultCluster\nbrokerId = 0\ndeleteWhen = 04;16\n"
        "fileReservedTime = 48\nbrokerRole = SLAVE \nflushDiskType=SYNC_FLUSH\n"
        "storePathRootDir=/data/store\nenableLmq= TRUE\nautoCreateTopicEnable=maybe\n"
    )
    config = MessageStoreConfig.from_file(str(path))
    assert (config.broker_role, config.flush_disk_type) == ("SLAVE", "SYNC_FLUSH")
    assert (config.delete_hours, config.file_reserved_time) == ((4, 16), 48)
    assert (config.store_path_root_dir, config.enable_lmq) == ("/data/store", True)


def test_a_new_store_has_rocketmqs_sizes_where_none_are_given():
    config = with_default_sizes(
        MessageStoreConfig(mapped_file_size_consume_queue=1001, max_index_num=7)
    )
    assert config.mapped_file_size_commit_log == 1 << 30
    assert config.mapped_file_size_consume_queue == 51 * CQ_UNIT.size
    assert config.mapper_file_size_batch_consume_queue == 300_000 * BATCH_CQ_UNIT.size
    assert config.mapped_file_size_consume_queue_ext == 50_331_648
    assert (config.max_hash_slot_num, config.max_index_num) == (5_000_000, 7)
    default = with_default_sizes(MessageStoreConfig())
    assert default.mapped_file_size_consume_queue == 300_000 * CQ_UNIT.size
    assert default == with_default_sizes(default)


def test_broker_config_is_a_java_properties_file(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_bytes(
        "# comment \\\n ! another\n\n"
        "a=1\r\n"
        "  b : two words \n"
        "c three\n"
        "d = x\\\n    y\\\n  # no comment\n"
        "e\\ f\\==\\u0041\\t\\q\n"
        "g\n"
        "h=\\\\\n"
        "a=ü\n"
        "i = end\\".encode()
    )
    assert load_broker_config(str(path)) == {
        "a": "Ã¼",  # as in Java: the file is Latin-1
        "b": "two words ",
        "c": "three",
        "d": "xy# no comment",
        "e f=": "A\tq",
        "g": "",
        "h": "\\",
        "i": "end",
    }


def test_broker_config_is_latin1(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_bytes(b"a=\xfc")
    assert load_broker_config(str(path)) == {"a": "ü"}


def test_broken_broker_configs(tmp_path):
    path = tmp_path / "broker.conf"
    with pytest.raises(StoreReadError, match=r"broker\.conf"):
        load_broker_config(str(path))
    path.write_text("a=\\u12")
    with pytest.raises(StoreConfigError, match=r"\\u escape"):
        load_broker_config(str(path))


def test_settings_without_effect_are_named_once_in_one_line(tmp_path, caplog):
    path = tmp_path / "broker.conf"
    path.write_text(
        "debugLockEnable=true\nlistenPort=10911\nsampleSteps=16\nmaxIndexNum=100\n"
        "mapedFileSizeConsumeQueue=2000\nmadeUp=1\ndestroyMapedFileIntervalForcibly=1\n"
    )
    config = MessageStoreConfig.from_file(path)
    assert config.destroy_maped_file_interval_forcibly == 1
    (line,) = [text for text in caplog.messages if "no effect" in text]
    assert line == (
        f"{path}: settings of RocketMQ that have no effect here: debugLockEnable, sampleSteps"
    )
    path.write_text("maxIndexNum=100\nlistenPort=10911\nflushConsumeQueueLeastPages=0\n")
    caplog.clear()
    MessageStoreConfig.from_file(path)
    assert not caplog.messages


# A broker's file is read as by RocketMQ itself, whose answers are pinned.


@pytest.fixture
def conf(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "broker.conf"
        path.write_bytes(text.encode("latin-1"))
        return str(path)

    return write


@pytest.mark.parametrize(("text", "properties"), [case[:2] for case in CASES])
def test_properties_are_those_that_java_reads(conf, text, properties):
    path = conf(text)
    if properties is None:
        with pytest.raises(StoreConfigError, match="line 1: malformed"):
            read_properties(path)
        return
    assert {key: each.value for key, each in read_properties(path).items()} == properties


@pytest.mark.parametrize(
    ("text", "fields"), [(text, fields) for text, _, fields in CASES if fields is not None]
)
def test_settings_are_those_that_rocketmq_takes(conf, caplog, text, fields):
    settings = load_broker_config(conf(text))
    if text in NOT_OF_A_STORE:
        assert "; the default applies, as in RocketMQ" in caplog.text
        fields = {}
    store, store_default = MessageStoreConfig.from_properties(settings), MessageStoreConfig()
    found = {
        key: getattr(store, name)
        for key, name in KEYS.items()
        if getattr(store, name) != getattr(store_default, name)
    }
    if text not in NOT_OF_A_BROKER:
        broker, default = BrokerConfig.from_properties(settings), BrokerConfig()
        found |= {
            key: getattr(broker, name)
            for key, name in _BROKER_FIELDS.items()
            if getattr(broker, name) != getattr(default, name)
        }
    known = {*KEYS, *_BROKER_FIELDS}
    expected = {key: value for key, value in fields.items() if key in known and value != ""}
    if text in NOT_OF_A_BROKER:
        expected = {}
    assert found == expected


def test_a_warning_names_file_line_key_and_value(conf, caplog):
    path = conf("brokerName=a\n# days\nfileReservedTime=48 # two days\nmaxHashSlotNum=1048576 \n")
    assert load_broker_config(path) == {"brokerName": "a"}
    first, second = caplog.messages
    assert first == (
        f"{path}, line 3: fileReservedTime='48 # two days': expected a whole number of 32 bits; "
        "the default applies, as in RocketMQ"
    )
    assert second.startswith(f"{path}, line 4: maxHashSlotNum='1048576 ': ")


def test_what_is_neither_true_nor_false_is_false_with_a_warning(conf, caplog):
    path = conf("autoCreateTopicEnable=yes\nmessageIndexEnable=true \n")
    settings = load_broker_config(path)
    assert settings == {"autoCreateTopicEnable": "false", "messageIndexEnable": "false"}
    assert f"{path}, line 1: autoCreateTopicEnable='yes' is read as false" in caplog.text
    assert f"{path}, line 2: messageIndexEnable='true ' is read as false" in caplog.text


def test_a_byte_order_mark_is_told(conf, caplog):
    path = conf("\xef\xbb\xbfbrokerName=a\n")
    assert "brokerName" not in load_broker_config(path)
    assert f"{path}, line 1: begins with a byte order mark" in caplog.text


def test_a_warning_is_given_once(conf, caplog):
    path = conf("fileReservedTime=x")
    for _ in range(3):
        load_broker_config(path)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("old", "field"),
    [
        ("mapedFileSizeCommitLog", "mapped_file_size_commit_log"),
        ("mapedFileSizeConsumeQueue", "mapped_file_size_consume_queue"),
    ],
)
def test_the_spelling_of_release_451_counts_without_the_newer_one(conf, caplog, old, field):
    path = conf(f"{old}=65536")
    assert getattr(MessageStoreConfig.from_file(path), field) == 65536
    assert f"{old}=65536 sets {old.replace('maped', 'mapped')}" in caplog.text
    path = conf(f"{old}=65536\n{old.replace('maped', 'mapped')}=131072")
    assert getattr(MessageStoreConfig.from_file(path), field) == 131072
