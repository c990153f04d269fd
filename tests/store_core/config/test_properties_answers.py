"""A broker's file is read as RocketMQ itself reads it, whose answers are pinned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqnet.broker.broker_config import BrokerConfig
from store_core.config.broker_config import read_properties
from store_core.config.message_store_config import (
    KEYS,
    MessageStoreConfig,
    load_broker_config,
)
from store_core.errors import StoreConfigError

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
"""What RocketMQ takes, and what no store can have: the default counts, with a warning."""
NOT_OF_A_BROKER = {"brokerName=a\0b", "defaultTopicQueueNums=-5", "brokerId=-1"}


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
        assert "; the default counts, as in RocketMQ" in caplog.text
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
        f"{path}, line 3: fileReservedTime='48 # two days': a whole number of 32 bits is needed; "
        "the default counts, as in RocketMQ"
    )
    assert second.startswith(f"{path}, line 4: maxHashSlotNum='1048576 ': ")


def test_what_is_neither_true_nor_false_is_false_with_a_warning(conf, caplog):
    path = conf("autoCreateTopicEnable=yes\nmessageIndexEnable=true \n")
    settings = load_broker_config(path)
    assert settings == {"autoCreateTopicEnable": "false", "messageIndexEnable": "false"}
    assert f"{path}, line 1: autoCreateTopicEnable='yes' is false, as in RocketMQ" in caplog.text
    assert f"{path}, line 2: messageIndexEnable='true ' is false" in caplog.text


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
    assert f"{old}=65536 counts as {old.replace('maped', 'mapped')}" in caplog.text
    path = conf(f"{old}=65536\n{old.replace('maped', 'mapped')}=131072")
    assert getattr(MessageStoreConfig.from_file(path), field) == 131072
