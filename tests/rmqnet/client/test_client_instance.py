# SPDX-License-Identifier: Apache-2.0
"""The life of a client: started, used in many threads, shut down, forked."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rmqnet import (
    AclCredentials,
    ClientConfig,
    ClientError,
    ClientInstance,
    MessageQueue,
    RemotingError,
    RemotingTimeoutError,
    TlsConfig,
    TopicNotFoundError,
)
from rmqnet.remoting.codes import RequestCode
from rmqnet.remoting.headers import GetConsumerRunningInfoRequestHeader
from rmqnet.remoting.remoting_command import RemotingCommand
from tests.rmqnet.client.groups import NotingConsumer
from tests.rmqnet.forked_child import idle_child
from tests.rmqnet.scripted_cluster import ScriptedCluster, success, wait_until

QUEUE = MessageQueue("orders", "broker-a", 0)


def _client_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("rocketmq-client")]


def test_a_route_is_asked_for_once() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.add_topic("orders", queues={"broker-b": 1, "broker-a": 2})
        routes = [client.call(client.route("orders")) for _ in range(3)]
        assert routes[0].publish_queues() == [
            MessageQueue("orders", "broker-a", 0),
            MessageQueue("orders", "broker-a", 1),
            MessageQueue("orders", "broker-b", 0),
        ]
        assert routes[1] is routes[2] is routes[0]
        assert len(cluster.name_server.requests) == 1
        with pytest.raises(TopicNotFoundError, match=cluster.namesrv_addr):
            client.call(client.route("nothing"))


def test_clients_have_ids_of_their_own() -> None:
    first, second = ClientInstance("a:1"), ClientInstance("a:1")
    assert first.client_id != second.client_id
    shared = ClientInstance("a:1", own_instance_name=False)
    assert shared.client_id.endswith("@DEFAULT")


def test_many_threads_use_one_client() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.add_topic("orders")
        broker = cluster.broker("broker-a")
        broker.answers[RequestCode.GET_MAX_OFFSET] = lambda r: success(
            r, offset=r.ext_fields["queueId"]
        )

        def ask(number: int) -> int:
            queue = MessageQueue("orders", "broker-a", number)
            return client.call(client.broker.max_offset(broker.address, queue))

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(400))) == list(range(400))
        assert broker.connection_count == 1


def test_shutdown_leaves_no_thread_and_no_socket() -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders")
        broker = cluster.broker("broker-a")
        client = ClientInstance(cluster.namesrv_addr).start()
        consumer = NotingConsumer("g", "orders")
        client.call(client.register_consumer("g", consumer))
        broker.ask_client(
            RemotingCommand.request(GetConsumerRunningInfoRequestHeader("g", client.client_id))
        )
        assert broker.connection_count == cluster.name_server.connection_count == 1
        client.shutdown()
        client.shutdown()
        assert not _client_threads()
        assert not [each for each in threading.enumerate() if each.name in consumer.threads]
        wait_until(lambda: broker.connection_count == 0, "the broker's connection ends")
        wait_until(lambda: cluster.name_server.connection_count == 0, "the other one ends")


def test_a_client_that_does_not_run_says_so() -> None:
    client = ClientInstance("127.0.0.1:1")
    with pytest.raises(ClientError, match="is not started"):
        client.call(_nothing())
    client.shutdown()
    with pytest.raises(ClientError, match="was shut down: create a new one"):
        client.start()
    with pytest.raises(ClientError, match="was shut down"):
        client.submit(_nothing())


async def _nothing() -> None:
    pass


def test_a_file_for_tls_that_is_not_there_is_named_before_anything_starts() -> None:
    config = ClientConfig("127.0.0.1:1", tls=TlsConfig(ca_file="/nowhere/ca.pem"))
    with pytest.raises(ClientError, match=r"ca\.pem"):
        ClientInstance(config)
    assert not _client_threads()


def test_shutdown_ends_requests_that_wait() -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders")
        broker = cluster.broker("broker-a")
        broker.answers[RequestCode.GET_MAX_OFFSET] = lambda _: None
        errors: list[BaseException] = []

        def wait_for_offset() -> None:
            try:
                client.call(client.broker.max_offset(broker.address, QUEUE, timeout_s=60))
            except BaseException as err:
                errors.append(err)

        client = ClientInstance(cluster.namesrv_addr).start()
        threads = [threading.Thread(target=wait_for_offset) for _ in range(3)]
        for thread in threads:
            thread.start()
        broker.wait_for(RequestCode.GET_MAX_OFFSET, 3)
        future = client.submit(asyncio.sleep(60))
        client.shutdown()
        for thread in threads:
            thread.join(10)
        assert len(errors) == 3
        assert all(isinstance(err, (RemotingError, ClientError)) for err in errors), errors
        assert future.cancelled()


def test_shutdown_in_a_listener_does_not_wait_for_itself() -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders")
        done = threading.Event()

        class Quitter(NotingConsumer):
            def running_info(self) -> dict[str, Any]:
                client.shutdown()
                done.set()
                return {}

        client = ClientInstance(cluster.namesrv_addr).start()
        client.call(client.register_consumer("g", Quitter("g", "orders")))
        header = GetConsumerRunningInfoRequestHeader("g", client.client_id)
        cluster.broker("broker-a").tell_clients(RemotingCommand.request(header))
        assert done.wait(10)
        assert not _client_threads()


def test_shutdown_in_the_loop_happens_soon() -> None:
    with ScriptedCluster() as cluster:
        client = ClientInstance(cluster.namesrv_addr).start()
        client.submit(_nothing()).add_done_callback(lambda _: client.shutdown())
        wait_until(lambda: not _client_threads(), "the threads end")
        assert not client.is_running


def test_a_blocking_call_in_the_loop_is_refused() -> None:
    async def call_in_the_loop() -> None:
        client.call(_nothing())

    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        call = call_in_the_loop()
        with pytest.raises(ClientError, match="would wait for itself"):
            client.call(call)


def test_a_wait_may_be_limited() -> None:
    cancelled = threading.Event()

    async def wait_long() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        with pytest.raises(RemotingTimeoutError, match=r"no result within 0\.05 s"):
            client.call(wait_long(), timeout_s=0.05)
        assert cancelled.wait(10)


def test_shutdown_with_brokers_that_are_gone_does_not_take_long() -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders", queues={"broker-a": 1, "broker-b": 1})
        silent = cluster.broker("broker-b")
        config = ClientConfig(cluster.namesrv_addr, mq_client_api_timeout_ms=300)
        client = ClientInstance(config).start()
        client.call(client.register_consumer("h", NotingConsumer("h", "orders")))
        client.call(client.register_consumer("g", NotingConsumer("g", "orders")))
        cluster.broker("broker-a").stop()
        silent.answers[RequestCode.UNREGISTER_CLIENT] = lambda _: None
        client.shutdown()
        assert len(silent.asked(RequestCode.UNREGISTER_CLIENT)) == 1, "one wait, not one a group"
        assert not _client_threads()


def test_several_clients_in_one_process() -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders")
        with ClientInstance(cluster.namesrv_addr) as first:
            with ClientInstance(cluster.namesrv_addr) as second:
                for client in (first, second):
                    client.call(client.register_consumer("g", NotingConsumer("g", "orders")))
                assert cluster.broker("broker-a").connection_count == 2
            assert first.call(first.route("orders")).publish_queues()


def test_secrets_stay_secret() -> None:
    config = ClientConfig("127.0.0.1:1", credentials=AclCredentials("the-key", "the-secret"))
    client = ClientInstance(config)
    assert "the-secret" not in f"{client!r} {client.config!r}"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of Python 3.12; intended
def test_a_forked_child_does_not_hang_and_harms_nothing() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.add_topic("orders")
        client.call(client.route("orders"))
        assert _in_child(client, cluster.namesrv_addr) == [
            "belongs to process",
            "belongs to process",
            "4",
        ]
        assert client.call(client.refresh_route("orders")).publish_queues()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_connections_end_with_their_client_although_a_child_lives_on() -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders")
        client = ClientInstance(cluster.namesrv_addr).start()
        client.call(client.route("orders"))
        with idle_child():
            client.shutdown()
            wait_until(lambda: not cluster.name_server.connection_count, "the connection ends", 5)


def _in_child(client: ClientInstance, namesrv_addr: str) -> list[str]:
    """Return the results of a forked child with its parent's client, and with its own."""
    ours, its = socket.socketpair()
    ours.settimeout(20)
    process = os.fork()
    if process == 0:  # pragma: no cover
        try:
            its.sendall("\n".join(_use_in_child(client, namesrv_addr)).encode())
        finally:
            os._exit(0)
    its.close()
    with ours:
        said = b""
        while part := ours.recv(4096):
            said += part
    os.waitpid(process, 0)
    return said.decode().split("\n")


def _use_in_child(client: ClientInstance, namesrv_addr: str) -> list[str]:
    said = []
    for use in (lambda: client.call(client.route("orders")), client.start):
        try:
            use()
        except ClientError as err:
            said.append("belongs to process" if "belongs to process" in str(err) else str(err))
    client.shutdown()
    with ClientInstance(namesrv_addr) as own:
        said.append(str(len(own.call(own.route("orders")).publish_queues())))
    return said
