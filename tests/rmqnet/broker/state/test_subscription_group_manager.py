from __future__ import annotations

import pytest

from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.state.subscription_group_manager import SubscriptionGroupManager
from store_core.config.config_files import SubscriptionGroupConfig, load_subscription_groups
from store_core.files.store_directory import StoreDirectory
from tests.golden_store import golden


@pytest.fixture
def config():
    return BrokerConfig(broker_name="broker-a")


@pytest.fixture
def groups(config, tmp_path):
    return SubscriptionGroupManager(config, str(tmp_path), lambda: 100)


def saved(tmp_path):
    return load_subscription_groups(StoreDirectory(str(tmp_path)))


def test_a_brokers_own_groups_are_those_of_a_real_one(groups):
    theirs = load_subscription_groups(StoreDirectory(str(golden("cluster-5x").root)))
    own = groups.all()
    assert {name: theirs[name] for name in own} == own


def test_a_group_is_made_when_it_is_looked_for(groups, tmp_path):
    assert groups.get("g") is None
    assert groups.find("g") == SubscriptionGroupConfig("g")
    assert saved(tmp_path)["g"] == SubscriptionGroupConfig("g")
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
    assert saved(tmp_path)["g"].retry_max_times == 2
    assert groups.json_of("g")["groupRetryPolicy"] == {"type": "EXPONENTIAL"}
    with pytest.raises(ValueError, match="unsupported key: colour"):
        groups.update(SubscriptionGroupConfig("g", attributes={"+colour": "red"}), {})
    groups.disable_consume("g")
    assert not groups.get("g").consume_enable
    assert groups.delete("g")
    assert not groups.delete("g")
    assert "g" not in saved(tmp_path)


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
