"""Figures of a broker as Prometheus reads them, after clients did this and that."""

from __future__ import annotations

import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmqnet import Message, Producer, PullConsumer, serve
from rmqnet.client.producer.transaction_producer import (
    LocalTransactionState,
    TransactionListener,
    TransactionProducer,
)
from rmqnet.errors import ClientError
from tests.rmqnet.scripted_cluster import wait_until

SETTINGS = {
    "brokerName": "broker-a",
    "brokerClusterName": "shop",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "defaultTopicQueueNums": 1,
}
NODE = {"cluster": "shop", "node_type": "broker", "node_id": "broker-a"}


@pytest.fixture
def cluster(tmp_path):
    with serve(tmp_path / "store", settings=SETTINGS, metrics_port=0) as running:
        yield running


class Figures:
    """All samples of a look."""

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
        """Return the values of samples with these labels, by the other ones."""
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
        cluster.stop()
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
