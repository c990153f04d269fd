# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqnet.client.topic_route import BrokerData, QueueData
from rmqnet.errors import ClientError
from rmqnet.namesrv.kv_config_manager import KVConfigManager
from rmqnet.namesrv.name_server_config import NameServerConfig
from rmqnet.namesrv.route_info_manager import RouteInfoManager
from rmqnet.remoting.headers import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rmqnet.remoting.registration_body import RegistrationBody
from store_core.config.broker_config import parse_properties
from store_core.config.config_files import TopicConfig
from store_core.config.data_version import DataVersion
from store_core.errors import StoreConfigError, StoreWriteError


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Cluster:
    """A manager and its brokers: broker ``n`` is at ``10.0.0.n:10911``."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.routes = RouteInfoManager(self.clock)

    def register(
        self,
        name: str = "a",
        broker_id: int = 0,
        *,
        at: int | None = None,
        topics: Any = ("orders", "TBW102"),
        version: int = 1,
        state: int = 0,
        cluster: str = "c",
        connection: object = None,
        zone: str | None = None,
        forgets_topics: bool = False,
        mappings: Any = None,
        **header: Any,
    ) -> RegisterBrokerResponseHeader | None:
        configs = [
            each if isinstance(each, TopicConfig) else TopicConfig(each, 4, 4) for each in topics
        ]
        address = address_of(at if at is not None else ord(name[0]) + broker_id)
        filter_servers = header.pop("filter_servers", ())
        return self.routes.register(
            RegisterBrokerRequestHeader(
                name, address, cluster, f"{address}+ha", broker_id, **header
            ),
            RegistrationBody(
                {each.topic_name: each for each in configs},
                DataVersion(state, version, 5),
                filter_servers,
                mappings or {},
            ),
            connection,
            zone,
            forgets_topics=forgets_topics,
        )

    def unregister(self, name: str = "a", broker_id: int = 0, at: int | None = None) -> None:
        address = address_of(at if at is not None else ord(name[0]) + broker_id)
        self.routes.unregister(UnRegisterBrokerRequestHeader(name, address, "c", broker_id))

    def queues(self, topic: str = "orders") -> dict[str, QueueData]:
        route = self.routes.route(topic)
        return {} if route is None else {each.broker_name: each for each in route.queue_datas}

    def perms(self, topic: str = "orders") -> dict[str, int]:
        return {name: queues.perm for name, queues in self.queues(topic).items()}

    def addresses(self, **options: Any) -> dict[str, dict[int, str]]:
        route = self.routes.route("orders", **options)
        assert route is not None
        return {each.broker_name: dict(each.addresses) for each in route.broker_datas}


def address_of(number: int) -> str:
    return f"10.0.0.{number}:10911"


MASTER_A, SLAVE_A, MASTER_B = address_of(97), address_of(98), address_of(98)


def test_a_broker_that_registers_is_in_routes_and_cluster_info() -> None:
    cluster = Cluster()
    assert cluster.register() == RegisterBrokerResponseHeader()
    route = cluster.routes.route("orders")
    assert route is not None
    assert route.queue_datas == [QueueData("a", 4, 4, 6)]
    assert route.broker_datas == [BrokerData("a", "c", {0: MASTER_A})]
    assert cluster.routes.route("unknown") is None
    assert cluster.routes.topics() == ["TBW102", "orders"]
    assert cluster.routes.cluster_info() == {
        "brokerAddrTable": {
            "a": {
                "brokerAddrs": {0: MASTER_A},
                "brokerName": "a",
                "cluster": "c",
                "enableActingMaster": False,
            }
        },
        "clusterAddrTable": {"c": ["a"]},
    }


def test_brokers_share_topics() -> None:
    cluster = Cluster()
    cluster.register("b")
    cluster.register("a", cluster="other", topics=["orders", "more"])
    assert list(cluster.queues()) == ["a", "b"]
    assert cluster.routes.topics_of_cluster("c") == ["TBW102", "orders"]
    assert cluster.routes.topics_of_cluster("other") == ["more", "orders"]
    assert cluster.routes.topics_of_cluster("none") == []
    assert cluster.routes.system_topics() == (["a", "b", "c", "other"], address_of(98))
    cluster.unregister("b")
    assert list(cluster.queues()) == ["a"]
    assert cluster.routes.topics() == ["more", "orders"]
    assert cluster.routes.cluster_info()["clusterAddrTable"] == {"other": ["a"]}


def test_a_slave_hears_where_its_master_is_and_its_topics_do_not_count() -> None:
    cluster = Cluster()
    assert cluster.register(broker_id=1, topics=["other", "more"]) == RegisterBrokerResponseHeader()
    assert cluster.routes.topics() == []
    cluster.register()
    answer = cluster.register(broker_id=1, topics=["other", "more"])
    assert answer == RegisterBrokerResponseHeader(f"{MASTER_A}+ha", MASTER_A)
    assert cluster.addresses() == {"a": {0: MASTER_A, 1: SLAVE_A}}
    assert cluster.routes.topics() == ["TBW102", "orders"]
    assert cluster.routes.broker_addresses("a") == {0: MASTER_A, 1: SLAVE_A}
    assert cluster.routes.broker_addresses("none") == {}


def test_a_master_that_goes_leaves_its_slave_and_the_topics() -> None:
    cluster = Cluster()
    cluster.register()
    cluster.register(broker_id=1)
    cluster.unregister()
    assert cluster.addresses() == {"a": {1: SLAVE_A}}
    assert cluster.perms() == {"a": 6}
    cluster.unregister(broker_id=1)
    assert cluster.routes.route("orders") is None
    assert cluster.routes.cluster_info() == {"brokerAddrTable": {}, "clusterAddrTable": {}}


def test_a_slave_that_becomes_master_has_one_place() -> None:
    cluster = Cluster()
    cluster.register(broker_id=1)
    cluster.register(broker_id=0, at=98, topics=["orders", "new"])
    assert cluster.addresses() == {"a": {0: SLAVE_A}}
    assert cluster.routes.topics() == ["new", "orders"]


def test_a_master_that_comes_back_elsewhere_replaces_the_old() -> None:
    cluster = Cluster()
    cluster.register()
    cluster.register(at=7)
    assert cluster.addresses() == {"a": {0: address_of(7)}}
    cluster.unregister(at=97)  # the old one unregisters late
    assert cluster.addresses() == {"a": {0: address_of(7)}}


def test_a_broker_that_comes_back_under_another_name_replaces_the_old() -> None:
    cluster = Cluster()
    cluster.register()
    cluster.register("new", at=97)
    assert list(cluster.queues()) == ["new"]
    assert list(cluster.routes.cluster_info()["brokerAddrTable"]) == ["new"]


def test_the_controller_s_later_choice_stays() -> None:
    cluster = Cluster()
    cluster.register(state=2)
    assert cluster.register(at=7, state=1) == RegisterBrokerResponseHeader()
    assert cluster.addresses() == {"a": {0: MASTER_A}}
    cluster.register(at=7, state=3)
    assert cluster.addresses() == {"a": {0: address_of(7)}}


def test_topics_change_with_their_version() -> None:
    cluster = Cluster()
    cluster.register()
    changed = [TopicConfig("orders", 8, 8, 4), TopicConfig("TBW102", 4, 4)]
    cluster.register(topics=changed, version=1)
    assert cluster.queues() == {"a": QueueData("a", 4, 4, 6)}
    cluster.register(topics=changed, version=2)
    assert cluster.queues() == {"a": QueueData("a", 8, 8, 4)}
    assert cluster.routes.data_version("c", MASTER_A) == DataVersion(0, 2, 5)
    assert cluster.routes.data_version("c", "elsewhere") is None


def test_a_topic_that_was_deleted_comes_back_with_the_next_registration() -> None:
    cluster = Cluster()
    cluster.register()
    cluster.routes.delete_topic("orders")
    assert cluster.routes.topics() == ["TBW102"]
    cluster.register()
    assert cluster.routes.topics() == ["TBW102", "orders"]


def test_a_topic_is_deleted_of_one_cluster_or_of_all() -> None:
    cluster = Cluster()
    cluster.register("a")
    cluster.register("b", cluster="other")
    cluster.routes.delete_topic("orders", "none")
    cluster.routes.delete_topic("unknown", "c")
    assert list(cluster.queues()) == ["a", "b"]
    cluster.routes.delete_topic("orders", "c")
    assert list(cluster.queues()) == ["b"]
    cluster.routes.delete_topic("orders", "other")
    assert cluster.routes.topics() == ["TBW102"]


def test_topics_that_a_broker_names_no_more_stay_unless_told_otherwise() -> None:
    cluster = Cluster()
    cluster.register("b", topics=["shared", "more"])
    cluster.register(topics=["orders", "shared"])
    cluster.register(topics=["TBW102", "x"], version=2)
    assert cluster.routes.topics() == ["TBW102", "more", "orders", "shared", "x"]
    cluster.register(topics=["TBW102", "x"], version=3, forgets_topics=True)
    assert cluster.routes.topics() == ["TBW102", "more", "shared", "x"]
    assert list(cluster.queues("shared")) == ["b"]


def test_one_topic_of_a_broker_that_is_not_known_is_refused() -> None:
    cluster = Cluster()
    assert cluster.register(topics=["new"]) is None
    assert cluster.routes.cluster_info() == {"brokerAddrTable": {}, "clusterAddrTable": {}}
    cluster.register()
    assert cluster.register(topics=["new"], version=2) is not None
    assert cluster.routes.topics() == ["TBW102", "new", "orders"]


def test_single_topics_count_where_their_brokers_are_known() -> None:
    cluster = Cluster()
    cluster.register()
    cluster.routes.register_topic("new", [QueueData("a", 1, 1, 6)])
    cluster.routes.register_topic("bad", [QueueData("a", 1, 1, 6), QueueData("none", 1, 1, 6)])
    cluster.routes.register_topic("empty", [])
    assert cluster.routes.topics() == ["TBW102", "new", "orders"]
    assert cluster.queues("new") == {"a": QueueData("a", 1, 1, 6)}


def test_silent_brokers_expire_by_what_they_said() -> None:
    cluster = Cluster()
    patient, quick = object(), object()
    cluster.register("a", connection=patient)  # two minutes, as for brokers of 4.x
    cluster.register("b", connection=quick, heartbeat_timeout_millis=1000)
    cluster.clock.now += 1
    assert cluster.routes.expire() == []
    cluster.clock.now += 0.1
    cluster.routes.note_heartbeat("c", MASTER_B)
    cluster.routes.note_heartbeat("c", "unknown")
    assert cluster.routes.expire() == []
    cluster.clock.now += 1.1
    assert cluster.routes.expire() == [quick]
    assert list(cluster.queues()) == ["a"]
    cluster.clock.now += 117.7
    assert cluster.routes.expire() == []
    cluster.clock.now += 0.2
    assert cluster.routes.expire() == [patient]
    assert cluster.routes.topics() == []


def test_the_end_of_a_connection_removes_the_brokers_that_have_no_other() -> None:
    cluster = Cluster()
    first, second = object(), object()
    cluster.register("a", connection=first)
    cluster.register("b", connection=first)
    cluster.register("a", connection=second)
    cluster.routes.unregister_connection(first)
    assert list(cluster.queues()) == ["a"]
    cluster.routes.unregister_connection(object())
    assert list(cluster.queues()) == ["a"]
    cluster.routes.unregister_connection(second)
    assert cluster.routes.topics() == []


def test_permission_to_write_is_taken_and_given() -> None:
    cluster = Cluster()
    cluster.register("a")
    cluster.register("b")
    assert cluster.routes.wipe_write_perm("a") == 2
    assert cluster.perms() == {"a": 4, "b": 6}
    cluster.register("a")
    assert cluster.perms() == {"a": 4, "b": 6}
    assert cluster.routes.add_write_perm("a") == 2
    assert cluster.perms() == {"a": 6, "b": 6}
    assert cluster.routes.wipe_write_perm("none") == 0


def test_without_its_master_an_acting_one_stands_in_and_takes_no_messages() -> None:
    cluster = Cluster()
    cluster.register(enable_acting_master=True)
    cluster.register(broker_id=2, enable_acting_master=True)
    cluster.register(broker_id=1, enable_acting_master=True)
    cluster.unregister()
    assert cluster.perms() == {"a": 4}
    slaves = {1: SLAVE_A, 2: address_of(99)}
    assert cluster.addresses() == {"a": slaves}
    assert cluster.addresses(acting_masters=True) == {"a": {0: SLAVE_A, 2: address_of(99)}}
    cluster.register(broker_id=1, enable_acting_master=True, version=2)
    assert cluster.perms() == {"a": 4}
    cluster.register(enable_acting_master=True, version=3)
    assert cluster.perms() == {"a": 6}
    assert cluster.addresses(acting_masters=True) == {"a": {0: MASTER_A, **slaves}}


def test_slaves_that_do_not_want_to_do_not_stand_in() -> None:
    cluster = Cluster()
    cluster.register(enable_acting_master=False)
    cluster.register(broker_id=1, enable_acting_master=False)
    cluster.unregister()
    assert cluster.perms() == {"a": 6}
    assert cluster.addresses(acting_masters=True) == {"a": {1: SLAVE_A}}


def test_the_first_slave_of_5_x_brings_topics_where_no_master_ever_was() -> None:
    cluster = Cluster()
    cluster.register(broker_id=1, enable_acting_master=False)
    assert cluster.perms() == {"a": 6}
    cluster.register(broker_id=2, enable_acting_master=False, topics=["x", "y"])
    assert cluster.routes.topics() == ["TBW102", "orders"]


def test_zones() -> None:
    cluster = Cluster()
    cluster.register("a", zone="Z1", filter_servers=("f:1",))
    cluster.register("b", zone="z2", filter_servers=("f:2",))
    route = cluster.routes.route("orders")
    assert route is not None
    assert route.filter_servers == {MASTER_A: ("f:1",), MASTER_B: ("f:2",)}
    here = route.in_zone("z1")
    assert [each.broker_name for each in here.broker_datas] == ["a"]
    assert [each.broker_name for each in here.queue_datas] == ["a"]
    assert here.filter_servers == {MASTER_A: ("f:1",)}
    cluster.register("b", 1, zone="z2")
    cluster.unregister("b")
    route = cluster.routes.route("orders")
    assert route is not None
    assert [each.broker_name for each in route.in_zone("z1").queue_datas] == ["a", "b"]


def test_mappings_of_static_topics_are_told() -> None:
    cluster = Cluster()
    mapping = {"topic": "orders", "bname": "a", "currIdMap": {0: 0}}
    cluster.register(mappings={"orders": mapping})
    route = cluster.routes.route("orders")
    assert route is not None
    assert route.to_json()["topicQueueMappingByBroker"] == {"a": mapping}


def test_topics_by_flags() -> None:
    cluster = Cluster()
    topics = [TopicConfig(f"t{flag}", topic_sys_flag=flag) for flag in range(4)]
    cluster.register(topics=topics)
    assert cluster.routes.topics_with_flags(1, 1) == ["t1", "t3"]
    assert cluster.routes.topics_with_flags(2, 2) == ["t2", "t3"]
    assert cluster.routes.topics_with_flags(2, 3) == ["t2"]


def test_values_come_and_go() -> None:
    values = KVConfigManager()
    assert values.get("space", "colour") is None
    assert values.table("space") is None
    values.put("space", "colour", "blau ü")
    values.put("space", "colour", "red")
    values.put("space", "size", "")
    assert values.get("space", "colour") == "red"
    assert values.table("space") == {"colour": "red", "size": ""}
    values.delete("space", "colour")
    values.delete("space", "colour")
    values.delete("none", "colour")
    assert values.table("space") == {"size": ""}
    assert values.table("none") is None


def test_they_are_kept_in_the_file_that_rocketmq_reads(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    values = KVConfigManager(str(path))
    assert not path.exists()
    values.put("space", "colour", "blau ü \ud800")
    assert json.loads(path.read_text()) == {"configTable": {"space": {"colour": "blau ü \ud800"}}}
    again = KVConfigManager(str(path))
    assert again.get("space", "colour") == "blau ü \ud800"
    again.delete("space", "colour")
    assert KVConfigManager(str(path)).table("space") == {}
    assert [each.name for each in path.parent.iterdir()] == ["kvConfig.json"]


def test_a_file_of_rocketmq_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"a:2;b:2"}}}')
    assert KVConfigManager(str(path)).get("ORDER_TOPIC_CONFIG", "t") == "a:2;b:2"
    path.write_text("")
    assert KVConfigManager(str(path)).table("ORDER_TOPIC_CONFIG") is None


@pytest.mark.parametrize("text", ["[]", "{", '{"configTable":[]}', '{"configTable":{"n":1}}'])
def test_another_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    with pytest.raises(ClientError, match=str(path)):
        KVConfigManager(str(path))
    with pytest.raises(ClientError, match=str(tmp_path)):
        KVConfigManager(str(tmp_path))


def test_a_value_that_cannot_be_kept_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    values = KVConfigManager(str(tmp_path / "kvConfig.json"))
    (tmp_path / "kvConfig.json.tmp").mkdir()
    with pytest.raises(StoreWriteError):
        values.put("space", "colour", "red")
    assert values.table("space") is None


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
