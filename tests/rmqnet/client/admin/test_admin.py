# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmqnet import (
    EARLIEST,
    LATEST,
    Admin,
    BrokerError,
    ClientError,
    ClientInstance,
    GroupConfig,
    MessageQueue,
    RemotingFormatError,
    TopicConfig,
)
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.codec.message_codec import encode_message
from store_core.codec.message_id import message_id, parse_host
from tests.rmqnet.scripted_cluster import ScriptedCluster, ScriptedServer, answer, success

CREATE_TOPIC = RequestCode.UPDATE_AND_CREATE_TOPIC
CREATE_GROUP = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
QUEUES = [MessageQueue("orders", "broker-a", each) for each in (0, 1)]


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as made:
        made.add_topic("orders", queues={"broker-a": 2})
        yield made


@pytest.fixture
def broker(cluster: ScriptedCluster) -> ScriptedServer:
    return cluster.broker("broker-a")


@pytest.fixture
def admin(cluster: ScriptedCluster) -> Iterator[Admin]:
    with Admin(cluster.namesrv_addr) as made:
        yield made


def _json(**data: Any) -> Any:
    return lambda request: success(request, json.dumps(data).encode())


def _code(code: int, remark: str = "no") -> Any:
    return lambda request: answer(request, code, remark)


def _key(queue: MessageQueue) -> str:
    return (
        f'{{"brokerName":"{queue.broker_name}","queueId":{queue.queue_id},"topic":"{queue.topic}"}}'
    )


def _queue_table(values: dict[MessageQueue, Any], **more: Any) -> Any:
    pairs = ",".join(f"{_key(queue)}:{json.dumps(value)}" for queue, value in values.items())
    rest = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in more.items())
    body = f'{{"offsetTable":{{{pairs}}}{rest}}}'.encode()
    return lambda request: success(request, body)


def test_an_admin_may_share_a_client(cluster: ScriptedCluster) -> None:
    with ClientInstance(cluster.namesrv_addr) as client:
        with Admin(client) as admin:
            assert admin.topics() == ["orders"]
        assert client.is_running
        assert client.call(client.route("orders"))


def test_an_admin_that_is_not_started_says_so() -> None:
    with pytest.raises(ClientError, match="is not started"):
        Admin("127.0.0.1:1").topics()


@pytest.mark.parametrize(
    ("current", "wanted", "told"),
    [
        ({}, {}, ""),
        ({}, {"a": "1"}, "+a=1"),
        ({"a": "1"}, {"a": "1"}, ""),
        ({"a": "1", "b": "2"}, {"a": "3"}, "+a=3,-b"),
    ],
)
def test_of_attributes_the_difference_is_told(
    admin: Admin,
    broker: ScriptedServer,
    current: dict[str, str],
    wanted: dict[str, str],
    told: str,
) -> None:
    broker.answers[RequestCode.GET_TOPIC_CONFIG] = _json(topicName="t", attributes=current)
    broker.answers[CREATE_TOPIC] = success
    admin.update_topic(TopicConfig("t", attributes=wanted))
    assert broker.asked(CREATE_TOPIC)[0].ext_fields["attributes"] == told


@pytest.mark.parametrize(
    "code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED]
)
def test_a_topic_is_new_or_a_broker_old(admin: Admin, broker: ScriptedServer, code: int) -> None:
    broker.answers[RequestCode.GET_TOPIC_CONFIG] = _code(code)
    broker.answers[CREATE_TOPIC] = success
    admin.create_topic("new", 3, perm=4)
    fields = broker.asked(CREATE_TOPIC)[0].ext_fields
    assert fields == {
        "topic": "new",
        "defaultTopic": "TBW102",
        "readQueueNums": "3",
        "writeQueueNums": "3",
        "perm": "4",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "",
    }


def test_names_are_checked_before_a_broker_is_asked(admin: Admin, broker: ScriptedServer) -> None:
    with pytest.raises(ClientError, match="'a b' has characters"):
        admin.create_topic("a b")
    with pytest.raises(ClientError, match="'a b' has characters"):
        admin.create_group("a b")
    assert broker.requests == []


def test_a_topic_is_deleted_everywhere(
    admin: Admin, cluster: ScriptedCluster, broker: ScriptedServer
) -> None:
    broker.answers[RequestCode.DELETE_TOPIC_IN_BROKER] = success
    for code in (RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.DELETE_KV_CONFIG):
        cluster.name_server.answers[code] = success
    admin.delete_topic("orders")
    assert broker.requests[-1].ext_fields == {"topic": "orders"}
    (forgotten,) = cluster.name_server.asked(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    assert forgotten.ext_fields == {"topic": "orders", "clusterName": "DefaultCluster"}
    (order,) = cluster.name_server.asked(RequestCode.DELETE_KV_CONFIG)
    assert order.ext_fields == {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}


def _paged(versions: Any, rows: str, total: str, begin: str) -> Any:
    """Answer as a broker of 5.5, three rows a page; each answer has one of the versions."""

    def answer_page(request: RemotingCommand) -> RemotingCommand:
        fields, version = request.ext_fields, {"counter": next(versions)}
        start = int(fields[begin])
        if start and json.loads(fields["dataVersion"] or "null") != version:
            start = 0
        names = [f"n{number}" for number in range(8)][start : start + 3]
        table = {name: {"topicName": name, "groupName": name} for name in names}
        body = json.dumps({rows: table, "dataVersion": version}).encode()
        return success(request, body, **{total: 8})

    return answer_page


@pytest.mark.parametrize("changes", [(), (1, 2)])
def test_topics_and_groups_come_page_by_page(
    admin: Admin, broker: ScriptedServer, changes: tuple[int, ...]
) -> None:
    names = [f"n{number}" for number in range(8)]
    for code, ask, fields in (
        (
            RequestCode.GET_ALL_TOPIC_CONFIG,
            admin.topic_configs,
            ("topicConfigTable", "totalTopicNum", "topicSeq"),
        ),
        (
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            admin.group_configs,
            ("subscriptionGroupTable", "totalGroupNum", "groupSeq"),
        ),
    ):
        versions = itertools.chain(changes, itertools.repeat(9))
        broker.answers[code] = _paged(versions, *fields)
        assert sorted(ask("broker-a")) == names
        first = broker.asked(code)[0].ext_fields
        assert first[fields[2]] == "0", "5.5 logs an error where it is missing"
        assert first["dataVersion"] == ""
        assert {"maxTopicNum", "maxGroupNum"} & first.keys()


def test_a_table_that_never_stands_still(admin: Admin, broker: ScriptedServer) -> None:
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    broker.answers[code] = _paged(
        itertools.count(), "topicConfigTable", "totalTopicNum", "topicSeq"
    )
    with pytest.raises(RemotingFormatError, match="a different version of the table each time"):
        admin.topic_configs("broker-a")


def test_a_group_keeps_the_settings_that_have_no_name_here(
    admin: Admin, broker: ScriptedServer
) -> None:
    group = {
        "groupName": "g",
        "retryMaxTimes": 3,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "attributes": {"a": "1"},
    }
    broker.answers[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = _json(
        subscriptionGroupTable={"g": group}
    )
    broker.answers[RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG] = _json(**group)
    broker.answers[CREATE_GROUP] = success
    (config,) = admin.group_configs("broker-a").values()
    assert config == GroupConfig(
        "g",
        retry_max_times=3,
        attributes={"a": "1"},
        more={"groupRetryPolicy": {"type": "CUSTOMIZED"}},
    )
    admin.update_group(config)
    sent = json.loads(broker.asked(CREATE_GROUP)[0].body)
    assert sent["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    assert (sent["groupName"], sent["retryMaxTimes"], sent["attributes"]) == ("g", 3, {})


def test_a_setting_under_rocketmqs_name_goes_before_the_field() -> None:
    assert GroupConfig("g", more={"retryMaxTimes": 7}).to_json()["retryMaxTimes"] == 7


def test_what_several_brokers_say_is_one_answer(admin: Admin, cluster: ScriptedCluster) -> None:
    cluster.add_topic("orders", queues={"broker-a": 1, "broker-b": 1})
    clients = [
        {"clientId": f"c{number}", "clientAddr": "h:1", "language": "JAVA", "version": 479}
        for number in (1, 2, 3)
    ]
    for name, queue_id, seen in (("broker-b", 0, clients[:2]), ("broker-a", 1, clients[1:])):
        answers = cluster.broker(name).answers
        queue = MessageQueue("orders", name, queue_id)
        offsets = {"brokerOffset": 9, "consumerOffset": 5, "lastTimestamp": 7}
        answers[RequestCode.GET_CONSUME_STATS] = _queue_table({queue: offsets}, consumeTps=1.5)
        answers[RequestCode.GET_CONSUMER_CONNECTION_LIST] = _json(
            connectionSet=seen, messageModel="CLUSTERING"
        )
        answers[RequestCode.GET_PRODUCER_CONNECTION_LIST] = _json(connectionSet=seen)
        answers[RequestCode.QUERY_TOPIC_CONSUME_BY_WHO] = _json(groupList=["g", name])
        answers[RequestCode.GET_TOPIC_STATS_INFO] = _queue_table(
            {queue: {"minOffset": 1, "maxOffset": 9, "lastUpdateTimestamp": 7}}
        )
    stats = admin.consume_stats("g")
    assert [queue.broker_name for queue in stats.queues] == ["broker-a", "broker-b"]
    assert (stats.lag, stats.consume_tps) == (8, 3.0)
    assert next(iter(stats.queues.values())).pull_offset == 5
    members = admin.consumer_connections("g")
    assert [each.client_id for each in members.connections] == ["c1", "c2", "c3"]
    assert members.message_model == "CLUSTERING"
    assert [each.client_id for each in admin.producer_connections("p")] == ["c1", "c2", "c3"]
    assert admin.groups_of_topic("orders") == ["broker-a", "broker-b", "g"]
    assert [each.max_offset for each in admin.topic_stats("orders").values()] == [9, 9]


def test_a_group_that_one_broker_does_not_know(admin: Admin, cluster: ScriptedCluster) -> None:
    cluster.add_topic("orders", queues={"broker-a": 1, "broker-b": 1})
    nobody, one = cluster.broker("broker-a").answers, cluster.broker("broker-b").answers
    offline = _code(ResponseCode.CONSUMER_NOT_ONLINE)
    nobody[RequestCode.GET_CONSUMER_CONNECTION_LIST] = offline
    one[RequestCode.GET_CONSUMER_CONNECTION_LIST] = _json(
        connectionSet=[{"clientId": "c", "clientAddr": "h:1", "language": "CPP", "version": 1}]
    )
    assert admin.consumer_connections("g").is_online
    gone = "the producer group[p] not exist"
    nobody[RequestCode.GET_PRODUCER_CONNECTION_LIST] = _code(ResponseCode.SYSTEM_ERROR, gone)
    one[RequestCode.GET_PRODUCER_CONNECTION_LIST] = _code(ResponseCode.SYSTEM_ERROR, "disk on fire")
    with pytest.raises(BrokerError, match="disk on fire"):
        admin.producer_connections("p")
    one[RequestCode.GET_CONSUMER_CONNECTION_LIST] = offline
    assert not admin.consumer_connections("g").is_online


# Resets.


def _online(broker: ScriptedServer, *, is_online: bool) -> None:
    clients = [{"clientId": "c", "clientAddr": "h:1", "language": "JAVA", "version": 407}]
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    offline = _code(ResponseCode.CONSUMER_NOT_ONLINE)
    broker.answers[code] = _json(connectionSet=clients) if is_online else offline


def _noted_offsets(broker: ScriptedServer) -> dict[int, int]:
    return {
        int(each.ext_fields["queueId"]): int(each.ext_fields["commitOffset"])
        for each in broker.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
    }


def _old_broker(broker: ScriptedServer) -> None:
    """Let it refuse to reset a group without members, as 4.x does."""
    broker.answers[RESET] = _code(ResponseCode.CONSUMER_NOT_ONLINE)
    stats = {"minOffset": 2, "maxOffset": 9, "lastUpdateTimestamp": 1000}
    broker.answers[RequestCode.GET_TOPIC_STATS_INFO] = _queue_table(dict.fromkeys(QUEUES, stats))
    broker.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda r: success(r, offset=4)
    broker.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = success
    _online(broker, is_online=False)


def test_a_broker_resets_by_itself(admin: Admin, broker: ScriptedServer) -> None:
    broker.answers[RESET] = _queue_table({QUEUES[1]: 5, QUEUES[0]: 4})
    found = admin.reset_offsets("g", "orders", 1000, force=False)
    assert list(found.items()) == [(QUEUES[0], 4), (QUEUES[1], 5)]
    assert broker.asked(RESET)[0].ext_fields == {
        "group": "g",
        "topic": "orders",
        "timestamp": "1000",
        "isForce": "false",
        "queueId": "-1",
        "offset": "-1",
    }


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(EARLIEST, 4), (1000, 4), (1001, 9), (LATEST, 9)]
)
def test_offsets_are_written_where_the_broker_does_not(
    admin: Admin, broker: ScriptedServer, timestamp: int, offset: int
) -> None:
    _old_broker(broker)
    assert admin.reset_offsets("g", "orders", timestamp) == dict.fromkeys(QUEUES, offset)
    assert _noted_offsets(broker) == {0: offset, 1: offset}


def test_backwards_only(admin: Admin, broker: ScriptedServer) -> None:
    _old_broker(broker)

    def where(request: RemotingCommand) -> RemotingCommand:
        if request.ext_fields["queueId"] == "0":
            return success(request, offset=3)
        return answer(request, ResponseCode.QUERY_NOT_FOUND)

    broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = where
    assert list(admin.reset_offsets("g", "orders", 0, force=False).values()) == [3, 4]
    assert _noted_offsets(broker) == {0: 3, 1: 4}


def test_a_refusal_is_told_where_members_are_connected(
    admin: Admin, broker: ScriptedServer
) -> None:
    """The members' own offsets would overwrite the new ones."""
    _old_broker(broker)
    broker.answers[RESET] = _code(ResponseCode.SYSTEM_ERROR, "The consumer group <g> not exist")
    _online(broker, is_online=True)
    with pytest.raises(BrokerError, match="<g> not exist"):
        admin.reset_offsets("g", "orders", 0)
    assert _noted_offsets(broker) == {}


def test_other_refusals_are_told(admin: Admin, broker: ScriptedServer) -> None:
    broker.answers[RESET] = _code(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group g")
    with pytest.raises(BrokerError, match="Group g"):
        admin.reset_offsets("g", "orders", 0)


def test_one_queue_is_reset_by_the_broker(admin: Admin, broker: ScriptedServer) -> None:
    broker.answers[RequestCode.GET_BROKER_CONFIG] = lambda r: success(
        r, b"a=b=c\nuseServerSideResetOffset=true\n"
    )
    broker.answers[RESET] = _queue_table({QUEUES[1]: 5})
    admin.reset_offset("g", QUEUES[1], 5)
    (request,) = broker.asked(RESET)
    assert (request.ext_fields["queueId"], request.ext_fields["offset"]) == ("1", "5")
    assert admin.broker_config("broker-a")["a"] == "b=c"


def test_one_queue_is_never_reset_by_a_broker_that_would_reset_all(
    admin: Admin, broker: ScriptedServer
) -> None:
    _old_broker(broker)
    broker.answers[RequestCode.GET_BROKER_CONFIG] = lambda r: success(r, b"a=b\n")
    admin.reset_offset("g", QUEUES[1], 5)
    assert _noted_offsets(broker) == {1: 5}
    _online(broker, is_online=True)
    with pytest.raises(ClientError, match="members of group 'g' are connected"):
        admin.reset_offset("g", QUEUES[1], 6)
    assert _noted_offsets(broker) == {1: 5}
    assert broker.asked(RESET) == []


# Messages.


def _record(broker: ScriptedServer, store_timestamp: int, properties: bytes) -> bytes:
    return encode_message(
        topic=b"orders",
        body=b"body",
        properties_raw=properties,
        commit_log_offset=store_timestamp,
        queue_offset=7,
        queue_id=0,
        born_timestamp=1,
        born_host=parse_host("10.0.0.9:5000"),
        store_timestamp=store_timestamp,
        store_host=parse_host(broker.address),
    )


def test_messages_of_an_equal_hash_are_left_out(admin: Admin, broker: ScriptedServer) -> None:
    body = b"".join(
        _record(broker, 20 - number, f"KEYS\x01{keys}\x02".encode())
        for number, keys in enumerate(("a b", "b", "ab", "b c"))
    )
    fields = {"indexLastUpdateTimestamp": 5, "indexLastUpdatePhyoffset": 6}
    broker.answers[RequestCode.QUERY_MESSAGE] = lambda r: success(r, body, **fields)
    found = admin.query_message("orders", "b", begin_timestamp=3)
    assert [message.keys for message in found] == [["b", "c"], ["b"], ["a", "b"]]
    assert broker.requests[-1].ext_fields["beginTimestamp"] == "3"


def test_a_message_by_either_id(admin: Admin, broker: ScriptedServer) -> None:
    unique_key = "7F0000010000AAAA0000000000000001"  # looks like a broker's, but is not one of ours
    record = _record(broker, 20, f"UNIQ_KEY\x01{unique_key}\x02".encode())
    fields = {"indexLastUpdateTimestamp": 5, "indexLastUpdatePhyoffset": 6}
    broker.answers[RequestCode.QUERY_MESSAGE] = lambda r: success(r, record, **fields)
    broker.answers[RequestCode.VIEW_MESSAGE_BY_ID] = lambda r: success(r, record)
    assert admin.view_message("orders", unique_key).unique_key == unique_key
    assert broker.asked(RequestCode.VIEW_MESSAGE_BY_ID) == []
    offset_id = message_id(parse_host(broker.address), 20)
    assert admin.view_message("orders", offset_id).message_id == offset_id
    assert broker.requests[-1].ext_fields == {"topic": "orders", "offset": "20"}
    with pytest.raises(ClientError, match="has no message with id 'other'"):
        admin.view_message("orders", "other")


# Answers that make no sense.


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"[]", "an object was expected"),
        (b'{"offsetTable":{"x":{}}}', "a queue was expected as key"),
        (b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":1}:{"minOffset":"x"}}}', "min"),
        (b"\xff", "decode"),
    ],
)
def test_a_bad_table_names_the_broker(
    admin: Admin, broker: ScriptedServer, body: bytes, named: str
) -> None:
    broker.answers[RequestCode.GET_TOPIC_STATS_INFO] = lambda r: success(r, body)
    with pytest.raises(RemotingFormatError, match=broker.address) as caught:
        admin.topic_stats("orders")
    assert named in str(caught.value)


def test_settings_of_a_broker_are_lines(admin: Admin, broker: ScriptedServer) -> None:
    broker.answers[RequestCode.UPDATE_BROKER_CONFIG] = success
    admin.update_broker_config("broker-a", {"a": "1", "b": "x=y"})
    assert broker.requests[-1].body == b"a=1\nb=x=y\n"
    with pytest.raises(ClientError, match=r"the setting 'a' .* line break") as caught:
        admin.update_broker_config("broker-a", {"a": "secret\nb=2"})
    assert "secret" not in str(caught.value)
    with pytest.raises(ClientError, match=r"no master of broker other is up \(known: broker-a\)"):
        admin.broker_stats("other")


def test_what_goes_to_all_brokers_needs_one() -> None:
    """Without a broker to create a topic, creating it is an error."""
    with (
        ScriptedCluster() as empty,
        Admin(empty.namesrv_addr) as admin,
        pytest.raises(ClientError, match="name servers know no master"),
    ):
        admin.create_topic("new", 4)
