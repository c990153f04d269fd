# SPDX-License-Identifier: Apache-2.0
"""Requests and changes of administrators, by this project's admin client and by raw requests."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from rmqnet.broker.broker_controller import PROCESSORS
from rmqnet.broker.processor.admin_broker import AdminProcessor
from rmqnet.broker.processor.admin_runtime import human_bytes
from rmqnet.broker.processor.client_manage import ClientManageProcessor
from rmqnet.broker.state.stats_items import BrokerStats, MessageTotals
from rmqnet.client.admin_results import GroupConfig, QueueConsumption, QueueStats
from rmqnet.client.heartbeat_data import ConsumerData, SubscriptionData, encode_heartbeat
from rmqnet.client.message_queue import MessageQueue
from rmqnet.errors import BrokerError
from rmqnet.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmqnet.remoting.frame_codec import encode_frame
from rmqnet.remoting.headers import (
    CloneGroupOffsetRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    ResetOffsetRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.config.config_files import TopicConfig, load_topics
from store_core.config.lenient_json import parse_lenient_json
from store_core.files.store_directory import StoreDirectory
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_store import golden
from tests.rmqnet.broker.client_broker import BROKER_NAME, ClientBroker
from tests.rmqnet.remoting.raw_client import RawClient


@pytest.fixture
def small(tmp_path):
    admin = [each for each in PROCESSORS if issubclass(each, AdminProcessor)]
    with ClientBroker(tmp_path, *admin, ClientManageProcessor) as small:
        small.broker.topics.update(TopicConfig("t", 2, 2), {})
        yield small


@pytest.fixture
def raw(small):
    with RawClient(small.port) as client:
        yield client


def queue(queue_id=0, topic="t"):
    return MessageQueue(topic, BROKER_NAME, queue_id)


def admin(small, method, *args, **options):
    return small.ask(lambda _, client: getattr(client, method)(small.address, *args, **options))


def body(answer):
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return parse_lenient_json(answer.body.decode())


def create(topic, **changes):
    values = {
        "default_topic": "TBW102",
        "read_queue_nums": 3,
        "write_queue_nums": 4,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
        "order": False,
        **changes,
    }
    return CreateTopicRequestHeader(topic=topic, **values)


class TestTopics:
    def test_made_changed_and_listed(self, small, tmp_path):
        config = TopicConfig("n", 3, 4, attributes={"message.type": "FIFO"})
        admin(small, "update_topic", config)
        assert admin(small, "topic_configs")["n"] == config
        assert load_topics(StoreDirectory(str(tmp_path)))["n"] == config
        changed = TopicConfig("n", 6, 4, perm=4, order=True)
        admin(small, "update_topic", changed)
        assert small.broker.topics.select("n") == changed

    def test_the_same_again_changes_no_version(self, small, raw):
        raw.request(create("n"))
        version = small.broker.topics.data_version
        assert raw.request(create("n")).code == ResponseCode.SUCCESS
        assert small.broker.topics.data_version == version

    @pytest.mark.parametrize(
        ("topic", "changes", "code", "words"),
        [
            ("bad topic!", {}, ResponseCode.INVALID_PARAMETER, "bad topic!"),
            ("", {}, ResponseCode.INVALID_PARAMETER, "blank"),
            ("x" * 128, {}, ResponseCode.INVALID_PARAMETER, "128 characters"),
            ("TBW102", {}, ResponseCode.INVALID_PARAMETER, "conflict with system topic"),
            ("rmq_sys_x", {}, ResponseCode.INVALID_PARAMETER, "conflict with system topic"),
            ("n", {"attributes": "+message.type=MIXED"}, 29, "MIXED message type"),
            ("n", {"attributes": "colour"}, ResponseCode.SYSTEM_ERROR, "format is wrong: colour"),
            ("n", {"attributes": "+colour=x"}, 1, "unsupported key: colour"),
        ],
    )
    def test_what_may_not_be(self, small, raw, topic, changes, code, words):
        answer = raw.request(create(topic, **changes))
        assert (answer.code, words in answer.remark) == (code, True), answer.remark
        assert topic not in small.broker.topics.all() or topic == "TBW102"

    def test_system_topics_may_be_changed_where_the_broker_lets_them(self, small, raw):
        small.broker.config.update({"validateSystemTopicWhenUpdateTopic": "false"})
        assert raw.request(create("TBW102")).code == ResponseCode.SUCCESS
        assert small.broker.topics.select("TBW102").write_queue_nums == 4

    def test_several_at_once(self, small, raw):
        items = [{"topicName": name, "writeQueueNums": 2} for name in ("a", "b")]
        data = json.dumps({"topicConfigList": items}).encode()
        raw.request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, data)
        assert small.broker.topics.select("b") == TopicConfig("b", 16, 2)
        data = json.dumps({"topicConfigList": [{"topicName": "c"}, {"topicName": "x y"}]}).encode()
        answer = raw.request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, data)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert small.broker.topics.select("c") is None

    def test_one_topic_is_shown(self, raw):
        assert body(raw.request(GetTopicConfigRequestHeader("t"))) == {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": 2,
            "topicFilterType": "SINGLE_TAG",
            "topicName": "t",
            "topicSysFlag": 0,
            "writeQueueNums": 2,
        }
        assert raw.request(GetTopicConfigRequestHeader("n")).code == ResponseCode.TOPIC_NOT_EXIST

    def test_statistics(self, small):
        small.put("t", b"1", b"2", queue_id=1)
        stats = admin(small, "topic_stats", "t")
        assert stats[queue(0)] == QueueStats(0, 0, 0)
        last = small.store.get_message_store_timestamp("t", 1, 1)
        assert stats[queue(1)] == QueueStats(0, 2, last)
        with pytest.raises(BrokerError, match=r"topic\[n\] not exist") as err:
            admin(small, "topic_stats", "n")
        assert err.value.code == ResponseCode.TOPIC_NOT_EXIST

    def test_a_deleted_topic_begins_anew(self, small):
        small.put("t", b"1", b"2")
        small.broker.offsets.commit("g", "t", 0, 2)
        admin(small, "delete_topic", "t")
        assert small.broker.topics.select("t") is None
        assert small.broker.offsets.query("g", "t", 0) == -1
        admin(small, "update_topic", TopicConfig("t", 2, 2))
        assert admin(small, "topic_stats", "t")[queue(0)] == QueueStats(0, 0, 0)
        small.put("t", b"new")
        assert small.store.get_max_offset_in_queue("t", 0) == 1

    def test_retry_topics_of_pop_go_with_their_topic(self, small, raw):
        names = ["%RETRY%g+t", "%RETRY%g_t", "%RETRY%g"]
        for name in names:
            small.broker.topics.create_in_send_message_back(name, 1)
        small.broker.offsets.commit("g", "t", 0, 2)
        raw.request(DeleteTopicRequestHeader("t"))
        assert [name for name in names if small.broker.topics.select(name)] == ["%RETRY%g"]

    @pytest.mark.parametrize("topic", ["TBW102", " "])
    def test_what_may_not_be_deleted(self, small, raw, topic):
        answer = raw.request(DeleteTopicRequestHeader(topic))
        assert answer.code == ResponseCode.INVALID_PARAMETER

    def test_queues_without_topics_are_cleaned(self, small, raw):
        small.put("gone", b"x")
        small.put("t", b"x")
        assert raw.request(RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SUCCESS
        assert small.store.get_max_offset_in_queue("gone", 0) == 0
        assert small.store.get_max_offset_in_queue("t", 0) == 1

    def test_the_brokers_own(self, raw):
        names = body(raw.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))["topicList"]
        assert {"TBW102", BROKER_NAME, "DefaultCluster_REPLY_TOPIC"} < set(names)

    def test_slaves_get_all_with_a_version(self, small, raw):
        data = body(raw.request(RequestCode.GET_ALL_TOPIC_CONFIG))
        assert data["dataVersion"] == small.broker.topics.data_version.to_json()
        assert data["topicConfigTable"]["t"]["readQueueNums"] == 2


class TestGroups:
    def test_made_changed_listed_and_deleted(self, small):
        admin(small, "update_group", GroupConfig("g", retry_max_times=3))
        assert admin(small, "group_configs")["g"].retry_max_times == 3
        admin(small, "update_group", GroupConfig("g", retry_max_times=5, consume_enable=False))
        assert small.broker.groups.get("g").consume_enable is False
        small.broker.offsets.commit("g", "t", 0, 1)
        admin(small, "delete_group", "g")
        assert small.broker.groups.get("g") is None
        assert small.broker.offsets.query("g", "t", 0) == 1
        admin(small, "delete_group", "g", clean_offsets=True)
        assert small.broker.offsets.query("g", "t", 0) == -1

    def test_the_clean_flag_of_4x(self, small, raw):
        small.broker.offsets.commit("g", "t", 0, 1)
        raw.request(DeleteSubscriptionGroupRequestHeader("g", remove_offset=True))
        assert small.broker.offsets.query("g", "t", 0) == -1

    def test_fields_that_nobody_knows_are_kept(self, raw):
        item = {"groupName": "g", "groupRetryPolicy": {"type": "EXPONENTIAL"}, "attributes": {}}
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        raw.request(code, json.dumps(item).encode())
        found = body(raw.request(GetSubscriptionGroupConfigRequestHeader("g")))
        assert found["groupRetryPolicy"] == {"type": "EXPONENTIAL"}
        assert found["retryMaxTimes"] == 16
        assert list(found) == sorted(found)

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"", "cannot be decoded"),
            (b"[]", "cannot be decoded"),
            (b"{}", "the group is blank"),
            (b'{"groupName":"a b"}', "characters other than"),
            (b'{"groupName":"g","retryMaxTimes":"x"}', "retryMaxTimes"),
            (b'{"groupName":"g","attributes":{"+a":"b"}}', "unsupported key: a"),
        ],
    )
    def test_what_may_not_be(self, small, raw, data, words):
        answer = raw.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, data)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert words in answer.remark
        assert small.broker.groups.get("g") is None

    def test_several_at_once(self, small, raw):
        data = {"groupConfigList": [{"groupName": "a"}, {"groupName": "b"}]}
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        raw.request(code, json.dumps(data).encode())
        assert small.broker.groups.get("b") is not None

    def test_a_group_that_may_not_be_made_is_not_there(self, small, raw):
        small.broker.config.update({"autoCreateSubscriptionGroup": "false"})
        answer = raw.request(GetSubscriptionGroupConfigRequestHeader("g"))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    def test_a_store_that_5_4_had_gets_no_long_group(self, small, tmp_path):
        admin(small, "update_group", GroupConfig("g" * 121))
        (tmp_path / "rocksdbstore").mkdir()
        admin(small, "update_group", GroupConfig("g" * 121, retry_max_times=3))
        with pytest.raises(BrokerError, match="at most 120"):
            admin(small, "update_group", GroupConfig("h" * 121))

    def test_who_pops_messages_is_what_the_file_says(self, small, raw, tmp_path):
        code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
        assert body(raw.request(code)) == {"messageRequestModeMap": {}}
        path = golden("cluster-5x").root / "config" / "messageRequestMode.json"
        (tmp_path / "config" / path.name).write_bytes(path.read_bytes())
        assert body(raw.request(code)) == json.loads(path.read_text())

    def test_a_topic_is_forbidden_and_allowed(self, small, raw):
        def ask(readable=None):
            return body(raw.request(UpdateGroupForbiddenRequestHeader("g", "t", readable)))

        assert ask() == {"group": "g", "topic": "t", "readable": True}
        assert ask(readable=False)["readable"] is False
        assert small.broker.groups.forbidden("g", "t") == 4  # which pulls ask for, as in RocketMQ
        assert ask(readable=True)["readable"] is True


def join(client, client_id, group="g", *topics, producers=()):
    subscriptions = tuple(SubscriptionData(topic) for topic in topics or ("t",))
    data = encode_heartbeat(client_id, producers, [ConsumerData(group, subscriptions)])
    client.request(RequestCode.HEART_BEAT, data, language=LanguageCode.JAVA, version=407)
    client.receive()


class TestClients:
    def test_members_of_a_group(self, small, raw):
        assert not admin(small, "consumer_connections", "g").is_online
        join(raw, "c1", "g", "t", "u")
        found = admin(small, "consumer_connections", "g")
        (connection,) = found.connections
        assert (connection.client_id, connection.client_addr) == ("c1", raw.address)
        assert (connection.language, connection.version) == ("JAVA", 407)
        words = (found.consume_type, found.message_model, found.consume_from_where)
        assert words == ("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
        assert found.subscriptions["u"] == SubscriptionData("u")
        assert admin(small, "groups_of_topic", "u") == {"g"}

    def test_producers(self, small, raw):
        assert admin(small, "producer_connections", "p") == ()
        join(raw, "c1", producers=["p"])
        (connection,) = admin(small, "producer_connections", "p")
        assert connection.client_id == "c1"
        (producer,) = body(raw.request(RequestCode.GET_ALL_PRODUCER_INFO))["data"]["p"]
        assert producer == {
            "clientId": "c1",
            "language": "JAVA",
            "lastUpdateTimestamp": small.now,
            "remoteIP": f"/{raw.address}",
            "version": 407,
        }

    def ask_through(self, small, raw, call, answer):
        """Return a call's result, and the request to the client, which gives the answer."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(call)
            command = raw.receive()
            code, data = answer
            response = RemotingCommand.response_to(command, code, "said", body=data)
            raw.send_bytes(encode_frame(response))
            return future.result(10), command

    def test_what_a_consumer_says_that_it_does(self, small, raw):
        join(raw, "c1")
        found, command = self.ask_through(
            small,
            raw,
            lambda: admin(small, "consumer_running_info", "g", "c1"),
            (ResponseCode.SUCCESS, b'{"properties":{"a":"b"}}'),
        )
        assert found == {"properties": {"a": "b"}}
        assert command.code == RequestCode.GET_CONSUMER_RUNNING_INFO
        assert command.ext_fields["clientId"] == "c1"
        with pytest.raises(BrokerError, match="The Consumer <g> <c2> not online"):
            admin(small, "consumer_running_info", "g", "c2")

    def test_one_message_is_consumed_now(self, small, raw):
        (result,) = small.put("t", b"body")
        message_id = result.append_result.message_id
        join(raw, "c1")
        header = ConsumeMessageDirectlyResultRequestHeader("g", "c1", message_id, topic="t")
        with RawClient(small.port) as asking:
            found, command = self.ask_through(
                small, raw, lambda: asking.request(header), (ResponseCode.SUCCESS, b"{}")
            )
        assert (found.code, found.remark, found.body) == (0, "said", b"{}")
        assert command.ext_fields["brokerName"] == BROKER_NAME
        assert command.ext_fields["groupSysFlag"] == command.ext_fields["topicSysFlag"] == "0"
        assert command.body == small.store.look_record(0)

    @pytest.mark.parametrize("message_id", ["x", "7F000001" + "0" * 22 + "FF"])
    def test_a_message_that_is_not_there_is_not_consumed(self, raw, message_id):
        header = ConsumeMessageDirectlyResultRequestHeader("g", "c1", message_id)
        answer = raw.request(header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert message_id in answer.remark

    def test_how_far_members_themselves_say_they_are(self, small, raw):
        header = GetConsumerStatusRequestHeader("t", "g", "")
        with RawClient(small.port) as asking:
            assert "No Any Consumer online" in asking.request(header).remark
            join(raw, "c1")
            name = f'{{"brokerName":"{BROKER_NAME}","queueId":0,"topic":"t"}}'
            status = f'{{"messageQueueTable":{{{name}:4}}}}'.encode()
            found, command = self.ask_through(
                small, raw, lambda: asking.request(header), (ResponseCode.SUCCESS, status)
            )
            assert command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
            assert command.ext_fields == {"topic": "t", "group": "g"}
            (offsets,) = body(found)["consumerTable"].values()
            assert list(offsets.values()) == [4]
            other = GetConsumerStatusRequestHeader("t", "g", "c2")
            assert body(asking.request(other)) == {"consumerTable": {}}
            found, _ = self.ask_through(
                small, raw, lambda: asking.request(header), (ResponseCode.SUCCESS, b"nonsense")
            )
            assert body(found) == {"consumerTable": {}}


class TestOffsets:
    @pytest.fixture(autouse=True)
    def messages(self, small):
        small.put("t", b"1", b"2", b"3")
        small.broker.groups.find("g")
        small.broker.offsets.commit("g", "t", 0, 2)

    def test_how_far_a_group_is(self, small):
        small.broker.offsets.commit_pull("g", "t", 0, 3)
        stats = admin(small, "consume_stats", "g")
        time = small.store.get_message_store_timestamp("t", 0, 1)
        assert stats.queues == {
            queue(0): QueueConsumption(3, 2, 3, time),
            queue(1): QueueConsumption(0, 0, 0, 0),
        }
        assert stats.lag == 1
        assert admin(small, "consume_stats", "nobody").queues == {}

    def test_topics_that_members_do_not_want_count_for_nothing(self, small, raw):
        join(raw, "c1", "g", "u")
        assert admin(small, "consume_stats", "g").queues == {}
        assert admin(small, "consume_stats", "g", "t").queues == {}
        header = GetConsumeStatsRequestHeader("g", topic_list="t;nothing")
        assert len(body(raw.request(header))["offsetTable"]) == 2

    def test_of_all_groups(self, small, raw):
        found = body(raw.request(GetConsumeStatsInBrokerHeader(is_order=False)))
        stats = next(each["g"] for each in found["consumeStatsList"] if "g" in each)
        assert [len(each["offsetTable"]) for each in stats] == [2]
        assert found["totalDiff"] == 1
        found = body(raw.request(GetConsumeStatsInBrokerHeader(is_order=True)))
        assert {"g": []} in found["consumeStatsList"]

    def test_who_reads_what(self, small, raw):
        assert admin(small, "groups_of_topic", "t") == {"g"}
        assert body(raw.request(QueryTopicsByConsumerRequestHeader("g")))["topicList"] == ["t"]
        header = QuerySubscriptionByConsumerRequestHeader("g", "t")
        assert body(raw.request(header)) == {"group": "g", "topic": "t"}
        join(raw, "c1")
        assert body(raw.request(header))["subscriptionData"]["subString"] == "*"

    def test_times(self, small, raw):
        times = [small.store.get_message_store_timestamp("t", 0, at) for at in range(3)]
        small.now = times[2] + 77
        header = QueryConsumeTimeSpanRequestHeader("t", "g")
        full, empty = body(raw.request(header))["consumeTimeSpanSet"]
        assert full == {
            "consumeTimeStamp": times[1],
            "delayTime": 77,
            "maxTimeStamp": times[2],
            "messageQueue": {"topic": "t", "brokerName": BROKER_NAME, "queueId": 0},
            "minTimeStamp": times[0],
        }
        assert (empty["minTimeStamp"], empty["maxTimeStamp"]) == (-1, -1)
        answer = raw.request(QueryConsumeTimeSpanRequestHeader("n", "g"))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST

    def test_slaves_get_all(self, small, raw):
        data = body(raw.request(RequestCode.GET_ALL_CONSUMER_OFFSET))
        assert data["offsetTable"] == {"t@g": {0: 2}}
        assert body(raw.request(RequestCode.GET_ALL_DELAY_OFFSET)) == {"offsetTable": {}}

    def test_units_of_a_queue(self, small, raw):
        found = body(raw.request(QueryConsumeQueueRequestHeader("t", 0, 1, 9, "g")))
        assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
        places = [small.store.look_record(each["physicOffset"]) for each in found["queueData"]]
        assert [len(record) for record in places] == [
            each["physicSize"] for each in found["queueData"]
        ]
        assert [b"2" in record for record in places] == [True, False]
        assert found["filterData"] == "g@t is not online!"
        join(raw, "c1")
        found = body(raw.request(QueryConsumeQueueRequestHeader("t", 0, 7, 9, "g")))
        assert found["queueData"] == []
        assert found["subscriptionData"]["topic"] == "t"
        assert (
            "7@t is not exist!" in raw.request(QueryConsumeQueueRequestHeader("t", 7, 0, 1)).remark
        )

    def test_a_group_goes_on_where_another_is(self, small, raw):
        raw.request(CloneGroupOffsetRequestHeader("g", "h"))
        assert small.broker.offsets.query("h", "t", 0) == 2
        join(raw, "c1", "g", "u")
        raw.request(CloneGroupOffsetRequestHeader("g", "i", "t"))
        assert small.broker.offsets.query("i", "t", 0) == -1
        raw.request(CloneGroupOffsetRequestHeader("g", "i", "t", offline=True))
        assert small.broker.offsets.query("i", "t", 0) == 2


class TestResets:
    @pytest.fixture(autouse=True)
    def messages(self, small):
        small.put("t", b"1", b"2", b"3")
        small.broker.groups.find("g")
        for queue_id in (0, 1):
            small.broker.offsets.commit("g", "t", queue_id, queue_id)

    def test_to_a_time(self, small):
        assert admin(small, "reset_offsets", "g", "t", 0) == {queue(0): 0, queue(1): 0}
        assert admin(small, "reset_offsets", "g", "t", -1) == {queue(0): 3, queue(1): 0}
        assert small.broker.offsets.take_reset("g", "t", 0) == 3
        assert small.broker.offsets.query("g", "t", 0) == 3

    def test_of_one_queue(self, small):
        found = admin(small, "reset_offsets", "g", "t", 0, queue_id=0, offset=2)
        assert found == {queue(0): 2}
        assert not small.broker.offsets.has_reset("g", "t", 1)
        with pytest.raises(BrokerError, match=r"offset 5 not in consume queue range \[0-3\]"):
            admin(small, "reset_offsets", "g", "t", 0, queue_id=0, offset=5)

    def test_clients_of_4x_name_no_queue(self, small, raw):
        answer = raw.request(ResetOffsetRequestHeader("g", "t", -1, True))
        assert len(body(answer)["offsetTable"]) == 2

    @pytest.mark.parametrize(
        ("group", "topic", "code"),
        [
            ("g", "n", ResponseCode.TOPIC_NOT_EXIST),
            ("n", "t", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ],
    )
    def test_of_what_is_not_there(self, small, group, topic, code):
        with pytest.raises(BrokerError, match="does not exist") as err:
            admin(small, "reset_offsets", group, topic, 0)
        assert err.value.code == code

    def test_by_the_members_where_the_broker_wants_it_so(self, small, raw):
        small.broker.config.update({"useServerSideResetOffset": "false"})
        with pytest.raises(BrokerError, match="Consumer not online"):
            admin(small, "reset_offsets", "g", "t", 0)
        join(raw, "c1")
        found = admin(small, "reset_offsets", "g", "t", -1, force=False)
        assert found == {queue(0): 0, queue(1): 0}
        command = raw.receive()
        assert (command.code, command.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
        assert len(parse_lenient_json(command.body.decode())["offsetTable"]) == 2
        assert small.broker.offsets.query("g", "t", 1) == 1


class TestRuntime:
    def test_settings_are_read_and_changed(self, small, raw):
        before = admin(small, "broker_config")
        assert before["brokerName"] == BROKER_NAME
        change = {"defaultQueryMaxNum": "33", "flushConsumerOffsetInterval": "77"}
        admin(small, "update_broker_config", change)
        after = admin(small, "broker_config")
        assert {key: after[key] for key in change} == change
        assert {**after, **before} == before
        assert small.store.config.default_query_max_num == 33
        version = json.loads(raw.request(RequestCode.GET_BROKER_CONFIG).ext_fields["version"])
        assert version["counter"] == 1

    @pytest.mark.parametrize(
        ("change", "code", "words"),
        [
            ({"configBlackList": "x"}, ResponseCode.NO_PERMISSION, "configBlackList: cannot be"),
            ({"listenPort": "1", "brokerName": "x"}, 16, "listenPort, brokerName: cannot be"),
            ({"flushDiskType": "SYNC_FLUSH"}, 16, "flushDiskType: cannot be changed"),
            ({"brokerPermission": "99"}, 1, "brokerPermission=99: must be 0 to 15"),
            ({"maxFilterMessageSize": "-1", "traceOn": "false"}, 1, "maxFilterMessageSize=-1"),
        ],
    )
    def test_settings_that_may_not_be_changed(self, small, change, code, words):
        with pytest.raises(BrokerError, match=words) as err:
            admin(small, "update_broker_config", change)
        assert err.value.code == code
        assert small.broker.config.trace_on

    def test_what_java_cannot_parse_is_ignored(self, small, caplog):
        change = {"defaultTopicQueueNums": "abc", "defaultQueryMaxNum": "x", "traceOn": "no"}
        before = admin(small, "broker_config")
        admin(small, "update_broker_config", change)
        assert admin(small, "broker_config") == {**before, "traceOn": "false"}
        assert "defaultTopicQueueNums is not changed: defaultTopicQueueNums='abc'" in caplog.text

    def test_the_rest_between_saves_of_delay_offsets_is_changed(self, small):
        admin(small, "update_broker_config", {"flushDelayOffsetInterval": "77"})
        assert small.store.config.flush_delay_offset_interval == 77

    def test_another_permission_of_the_broker_is_told(self, small):
        told = []
        small.broker.topics.on_change(told.append)
        version = small.broker.topics.data_version
        admin(small, "update_broker_config", {"brokerPermission": "4"})
        assert told == [None]
        assert small.broker.topics.data_version > version

    def test_figures(self, small):
        small.put("t", b"x")
        info = admin(small, "runtime_info")
        assert info["brokerVersionDesc"] == "V5_3_3"
        assert info["brokerVersion"] == "479"
        assert int(info["commitLogMaxOffset"]) > 0
        stored = small.store.get_message_store_timestamp("t", 0, 0)
        assert info["earliestMessageTimeStamp"] == str(stored)
        assert info["sendThreadPoolQueueCapacity"] == "10000"
        assert {
            "bootTimestamp",
            "commitLogDirCapacity",
            "commitLogDiskRatio",
            "consumeQueueDiskRatio",
            "dispatchBehindBytes",
            "pageCacheLockTimeMills",
            "pullThreadPoolQueueSize",
            "putMessageDistributeTime",
            "queryThreadPoolQueueSize",
            "remainHowManyDataToFlush",
            "startAcceptSendRequestTimeStamp",
            "timerReadBehind",
        } < set(info)

    def test_messages_of_yesterday_and_today(self, small):
        totals = [MessageTotals(3, 1)]
        small.broker.stats = BrokerStats(lambda: totals[0], small.clock)
        assert not small.broker.stats.run_once()
        for now in (MessageTotals(5, 4), MessageTotals(9, 8)):
            small.now += 24 * 3600 * 1000
            totals[0] = now
            assert small.broker.stats.run_once()
        totals[0] = MessageTotals(10, 10)
        info = admin(small, "runtime_info")
        found = [
            info[f"msgPutTotal{when}"] for when in ("YesterdayMorning", "TodayMorning", "TodayNow")
        ]
        assert found == ["5", "9", "10"]
        assert info["msgGetTotalTodayMorning"] == "8"

    def test_a_store_that_is_only_read_is_not_changed(self, small, raw):
        small.broker.store = StoreSnapshot(small.store.config.store_path_root_dir)
        info = admin(small, "runtime_info")
        assert info["brokerVersionDesc"] == "V5_3_3"
        assert info["commitLogMaxOffset"] == "0"
        for request in (
            DeleteTopicRequestHeader("t"),
            RequestCode.CLEAN_UNUSED_TOPIC,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
            RequestCode.DELETE_EXPIRED_COMMITLOG,
        ):
            answer = raw.request(request)
            assert (answer.code, answer.remark) == (16, "this broker only reads its store")
        assert small.broker.topics.select("t") is not None

    def test_an_empty_store_has_no_earliest_message(self, small):
        assert admin(small, "runtime_info")["earliestMessageTimeStamp"] == "-1"

    def test_old_files_are_looked_for(self, raw):
        for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG):
            assert raw.request(code).code == ResponseCode.SUCCESS

    @pytest.mark.parametrize(
        ("count", "text"),
        [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")],
    )
    def test_bytes_for_people(self, count, text):
        assert human_bytes(count) == text

    def test_what_is_not_supported_is_named(self, raw):
        answer = raw.request(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "UPDATE_AND_CREATE_STATIC_TOPIC" in answer.remark
