# SPDX-License-Identifier: Apache-2.0
"""A broker's metrics as Prometheus reads them, after various work of clients."""

from __future__ import annotations

import json
import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmqnet import Admin, Message, Producer, PullConsumer, serve
from rmqnet.broker.metrics.broker_collector import Lag, lags
from rmqnet.client.producer.transaction_producer import (
    LocalTransactionState,
    TransactionListener,
    TransactionProducer,
)
from rmqnet.errors import ClientError
from rmqnet.remoting.codes import ResponseCode
from rmqnet.remoting.headers import GetMaxOffsetRequestHeader, ViewBrokerStatsDataRequestHeader
from store_core.config.config_files import SubscriptionGroupConfig, TopicConfig
from tests.rmqnet.broker.client_broker import ClientBroker
from tests.rmqnet.remoting.raw_client import RawClient
from tests.rmqnet.scripted_cluster import wait_until

SETTINGS = {
    "brokerName": "broker-a",
    "brokerClusterName": "shop",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "defaultTopicQueueNums": 1,
}
NODE = {"cluster": "shop", "node_type": "broker", "node_id": "broker-a"}
FIGURE_SETTINGS = {"brokerName": "b", "mappedFileSizeCommitLog": "4194304"}
# Values that rocketmq-exporter parses as numbers (BrokerRuntimeStats): if one lacks, it shows none.
EXPORTED = {
    "msgPutTotalTodayNow",
    "putMessageDistributeTime",
    "putTps",
    "getMissTps",
    "getTransferredTps",
    "getTotalTps",
    "getFoundTps",
    "commitLogDirCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "remainHowManyDataToFlush",
    "msgGetTotalTodayNow",
    "queryThreadPoolQueueSize",
    "bootTimestamp",
    "pullThreadPoolQueueSize",
    "commitLogMinOffset",
    "runtime",
    "dispatchMaxBuffer",
    "brokerVersion",
    "consumeQueueDiskRatio",
    "pageCacheLockTimeMills",
    "commitLogDiskRatio",
    "commitLogMaxOffset",
    "getMessageEntireTimeMax",
    "putMessageTimesTotal",
    "brokerVersionDesc",
    "sendThreadPoolQueueSize",
    "startAcceptSendRequestTimeStamp",
    "putMessageEntireTimeMax",
    "earliestMessageTimeStamp",
    "remainTransientStoreBufferNumbs",
    "queryThreadPoolQueueCapacity",
    "putMessageAverageSize",
    "dispatchBehindBytes",
    "putMessageSizeTotal",
    "sendThreadPoolQueueCapacity",
    "pullThreadPoolQueueCapacity",
    "msgPutTotalYesterdayMorning",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgGetTotalTodayMorning",
}


@pytest.fixture
def cluster(tmp_path):
    with serve(tmp_path / "store", settings=SETTINGS, metrics_port=0) as running:
        yield running


class Figures:
    """All samples of one scrape."""

    def __init__(self, cluster):
        url = f"http://{cluster.metrics_address}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        self.types = {}
        self.samples = []
        for family in text_string_to_metric_families(text):
            self.types[family.name] = family.type
            self.samples += family.samples

    def of(self, name, **labels):
        """Return the values of samples with these labels, by their other labels."""
        wanted = {**NODE, **labels}
        found = {}
        for sample in self.samples:
            if sample.name == name and wanted.items() <= sample.labels.items():
                rest = [text for key, text in sample.labels.items() if key not in wanted]
                found[tuple(rest)] = sample.value
        return found

    def one(self, name, **labels):
        (value,) = self.of(name, **labels).values()
        return value


def test_messages_that_come_and_leave(cluster):
    with Producer("tills", cluster.namesrv_addr) as producer:
        for _ in range(3):
            queue = producer.send(Message("orders", b"x" * 2000)).queue
        producer.send(Message("orders", b"y"), delay_level=18)
        producer.send_batch([Message("orders", b"z") for _ in range(5)])
    with PullConsumer("cooks", cluster.namesrv_addr) as consumer:
        consumer.assign([queue])
        consumer.seek_to_begin()
        got = []
        while len(got) < 8:
            got += consumer.poll(8)
        consumer.seek(queue, 6)
        consumer.commit()
    figures = Figures(cluster)
    key = {"topic": "orders", "is_system": "false"}
    assert figures.of("rocketmq_messages_in_total", **key) == {("normal",): 8, ("delay",): 1}
    came = figures.of("rocketmq_throughput_in_total", **key)
    assert came[("normal",)] > 6000
    assert 90 < came[("delay",)] < 1000
    assert figures.one("rocketmq_messages_out_total", **key, consumer_group="cooks") >= 8
    assert figures.one("rocketmq_throughput_out_total", **key, consumer_group="cooks") > 6000
    sizes = figures.of("rocketmq_message_size_bucket", **key, message_type="normal")
    assert sizes[("1024.0",)] == 1  # the batch
    assert sizes[("4096.0",)] == sizes[("+Inf",)] == 4
    assert figures.one("rocketmq_message_size_count", **key, message_type="normal") == 4
    lag = {"consumer_group": "cooks", "topic": "orders", "is_retry": "false", "is_system": "false"}
    assert figures.one("rocketmq_consumer_lag_messages", **lag) == 2
    assert 0 <= figures.one("rocketmq_consumer_inflight_messages", **lag) <= 2
    assert figures.one("rocketmq_consumer_lag_latency", **lag) >= 0


def test_transactions(cluster):
    class Decided(TransactionListener):
        def execute_local_transaction(self, message, argument):
            return argument

        def check_local_transaction(self, message):
            return LocalTransactionState.UNKNOW

    states = LocalTransactionState
    with TransactionProducer("tills", cluster.namesrv_addr, listener=Decided()) as producer:
        for state in (states.COMMIT_MESSAGE, states.ROLLBACK_MESSAGE, states.COMMIT_MESSAGE):
            producer.send_in_transaction(Message("orders", b"x"), state)
    wait_until(lambda: Figures(cluster).one("rocketmq_commit_messages_total") == 2, "two commits")
    figures = Figures(cluster)
    assert figures.one("rocketmq_rollback_messages_total") == 1
    assert figures.of("rocketmq_messages_in_total", topic="orders", is_system="false") == {
        ("transaction",): 3
    }


def test_the_broker_itself(cluster):
    with Producer("tills", cluster.namesrv_addr) as producer:
        producer.send(Message("orders", b"x"))
        figures = Figures(cluster)
        found = figures.of("rocketmq_producer_connections", protocol_type="remoting")
        assert found == {("python", "479"): 2}  # its own group, and that of all clients
    assert figures.one("rocketmq_broker_permission") == 6
    assert figures.one("rocketmq_broker_connections") >= 1
    assert figures.one("rocketmq_topic_number") > 5
    disk = {"storage_type": "local", "storage_medium": "disk"}
    assert figures.one("rocketmq_storage_size", **disk) > 0
    assert figures.one("rocketmq_storage_dispatch_behind_bytes", **disk) >= 0
    assert figures.one("rocketmq_storage_flush_behind_bytes", **disk) >= 0
    assert figures.one("rocketmq_storage_message_reserve_time", **disk) >= 0
    assert set(figures.of("rocketmq_processor_watermark")) == {
        *(("send",), ("pull",), ("query_message",), ("client_manager",)),
        *(("heartbeat",), ("transaction",), ("admin",), ("reply",)),
    }
    assert figures.types["rocketmq_messages_in"] == "counter"
    assert figures.types["rocketmq_message_size"] == "histogram"


def test_readers_that_read_nothing_hold_up_nobody(cluster):
    host, _, port = cluster.metrics_address.rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(4)]
    try:
        silent[0].sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        silent[1].sendall(b"\x00" * 100)
        assert Figures(cluster).one("rocketmq_broker_permission") == 6
        cluster.shutdown()
    finally:
        for each in silent:
            each.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port))).close()


def test_a_port_that_is_taken(cluster, tmp_path):
    taken = int(cluster.metrics_address.rpartition(":")[2])
    second = serve(tmp_path / "other", settings=SETTINGS, metrics_port=taken)
    with pytest.raises(ClientError, match=f"metrics cannot be served at 127.0.0.1:{taken}"):
        second.start()
    with serve(tmp_path / "other", settings=SETTINGS) as again:  # its lock was given back
        assert again.metrics_address is None


@pytest.fixture
def parts(tmp_path):
    with ClientBroker(tmp_path) as running:
        broker = running.broker
        broker.topics.update(TopicConfig("orders", 2, 2), {})
        for queue_id, count in ((0, 5), (1, 3)):
            for _ in range(count):
                running.store.put_message(Message("orders", b"tea", queue_id=queue_id))
        running.store.wait_for_dispatch()
        broker.groups.update(SubscriptionGroupConfig("cooks"), {})
        yield broker


def test_a_group_without_members_is_behind_from_where_it_was(parts):
    parts.offsets.commit("cooks", "orders", 0, 2)
    parts.offsets.commit_pull("cooks", "orders", 0, 4)
    (found,) = lags(parts)
    assert (found.group, found.topic) == ("cooks", "orders")
    assert (found.behind, found.inflight) == (3, 2)  # the other queue has no offset
    assert found.latency_ms >= found.queueing_ms >= 0


def test_one_that_has_all_is_not_behind(parts):
    for queue_id, end in ((0, 5), (1, 3)):
        parts.offsets.commit("cooks", "orders", queue_id, end)
    assert list(lags(parts)) == [Lag("cooks", "orders", 0, 0, 0, 0)]


def test_offsets_after_the_end_are_no_lag(parts):
    parts.offsets.commit("cooks", "orders", 0, 500)
    parts.offsets.commit_pull("cooks", "orders", 0, 900)
    (found,) = lags(parts)
    assert (found.behind, found.inflight) == (0, 0)


def test_topics_that_are_gone_and_groups_that_read_nothing_are_left_out(parts):
    parts.offsets.commit("cooks", "gone", 0, 1)
    assert list(lags(parts)) == []


# Requests of exporters and consoles to a broker, and whether the answers are current.


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory):
    with serve(tmp_path_factory.mktemp("store"), settings=FIGURE_SETTINGS) as served:
        yield served


@pytest.fixture
def raw(served):
    with RawClient(int(served.address.rpartition(":")[2])) as client:
        yield client


def test_all_that_exporters_need_is_there(served) -> None:
    with Admin(served.namesrv_addr) as admin:
        figures = admin.broker_stats("b")
    assert set(figures) >= EXPORTED
    assert figures["sendThreadPoolQueueHeadWaitTimeMills"] == "0"
    assert figures["remainTransientStoreBufferNumbs"] == str(2**31 - 1)


def test_a_queue_ends_after_the_message_that_was_acknowledged(served, raw: RawClient) -> None:
    with Admin(served.namesrv_addr) as admin, Producer("p", served.namesrv_addr) as producer:
        admin.create_topic("ends", 1)
        for _ in range(20):
            for _ in range(24):
                sent = producer.send(Message("ends", b"x" * 100))
            answer = raw.request(GetMaxOffsetRequestHeader("ends", 0))
            assert answer.ext_fields["offset"] == str(sent.queue_offset + 1)
            (stats,) = admin.topic_stats("ends").values()
            assert stats.max_offset == sent.queue_offset + 1


def test_what_was_counted_of_a_topic_is_told(served, raw: RawClient) -> None:
    with Producer("p", served.namesrv_addr) as producer:
        producer.send(Message("counted", b"x" * 100))
    answer = raw.request(ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "counted"))
    assert answer.code == ResponseCode.SUCCESS
    told = json.loads(answer.body)
    assert set(told) == {"statsMinute", "statsHour", "statsDay"}
    assert all(part["sum"] == 1 and part["avgpt"] == 1 for part in told.values())
    answer = raw.request(ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "never"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "The stats <TOPIC_PUT_NUMS> <never> not exist"
