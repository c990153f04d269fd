from __future__ import annotations

import pickle

import pytest

from store_core.config import (
    KEYS,
    MessageStoreConfig,
    camel_case,
    config_key_names,
    load_broker_config,
)
from store_core.errors import StoreConfigError, StoreReadError


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


def test_from_properties_ignores_what_reading_has_no_use_for():
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
    ],
)
def test_bad_values_name_the_key(properties, key):
    with pytest.raises(StoreConfigError, match=key):
        MessageStoreConfig.from_properties(properties)


def test_values_of_another_type_are_refused():
    with pytest.raises(StoreConfigError, match=r"maxIndexNum=True"):
        MessageStoreConfig(max_index_num=True)


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
        "a": "ü",
        "b": "two words ",
        "c": "three",
        "d": "xy# no comment",
        "e f=": "A\tq",
        "g": "",
        "h": "\\",
        "i": "end",
    }


def test_broker_config_that_is_no_utf8_is_latin1(tmp_path):
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
