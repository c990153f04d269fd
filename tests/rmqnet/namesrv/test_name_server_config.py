from __future__ import annotations

from typing import Any

import pytest

from rmqnet.namesrv.name_server_config import NameServerConfig
from store_core.config.broker_config import parse_properties
from store_core.errors import StoreConfigError


def test_it_is_told_under_rocketmq_s_names() -> None:
    text = NameServerConfig(
        host="127.0.0.2", port=19876, kv_config_path="/x/kvConfig.json"
    ).to_text()
    told = parse_properties(text, "text")
    assert list(told) == sorted(told)
    assert told["listenPort"] == "19876"
    assert told["bindAddress"] == "127.0.0.2"
    assert told["kvConfigPath"] == "/x/kvConfig.json"
    assert told["orderMessageEnable"] == "false"
    assert told["returnOrderTopicConfigToBroker"] == "true"
    assert told["scanNotActiveBrokerInterval"] == "5000"
    assert told["waitSecondsForService"] == "45"


def test_what_may_change_does_and_all_else_stays() -> None:
    config = NameServerConfig()
    changed = config.changed(
        {
            "orderMessageEnable": "true",
            "waitSecondsForService": "7",
            "listenPort": "1",
            "defaultThreadPoolNums": "9",
            "unknown": "x",
        }
    )
    assert changed == NameServerConfig(order_message_enable=True, wait_seconds_for_service=7)
    assert config == NameServerConfig()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("orderMessageEnable", "maybe"),
        ("waitSecondsForService", "x"),
        ("waitSecondsForService", "0"),
    ],
)
def test_values_of_another_kind_are_errors(key: str, value: str) -> None:
    with pytest.raises(StoreConfigError, match=key):
        NameServerConfig().changed({key: value})


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("port", -1, "listenPort"),
        ("port", 65536, "listenPort"),
        ("host", 1, "bindAddress"),
        ("default_thread_pool_nums", 0, "defaultThreadPoolNums"),
        ("need_wait_for_service", 1, "needWaitForService"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: Any, key: str) -> None:
    with pytest.raises(StoreConfigError, match=key):
        NameServerConfig(**{name: value})
