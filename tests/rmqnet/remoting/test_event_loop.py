# SPDX-License-Identifier: Apache-2.0
"""Clients and servers in uvloop's event loop, where it is installed and requested."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import sys

import pytest

from rmqnet import ClientError, ClientInstance
from rmqnet.remoting.event_loop import new_event_loop
from rmqnet.remoting.remoting_client import RemotingClient
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.remoting_server import RemotingServer
from rmqnet.remoting.tls import TlsConfig
from store_core.event_loop_thread import EventLoopThread
from tests.rmqnet.forked_child import idle_child
from tests.rmqnet.remoting.test_tls import CA, server_context
from tests.rmqnet.scripted_cluster import ScriptedCluster, wait_until

ECHO = 10
needs_uvloop = pytest.mark.skipif(
    importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed"
)


@pytest.fixture
def with_uvloop(monkeypatch):
    monkeypatch.setenv("ROCKETMQ_STORE_UVLOOP", "1")


@pytest.mark.parametrize("value", [None, "", "0"])
def test_the_loop_is_of_asyncio_unless_another_is_requested(monkeypatch, value):
    if value is None:
        monkeypatch.delenv("ROCKETMQ_STORE_UVLOOP", raising=False)
    else:
        monkeypatch.setenv("ROCKETMQ_STORE_UVLOOP", value)
    loop = new_event_loop()
    loop.close()
    assert type(loop).__module__.startswith("asyncio")


@pytest.mark.usefixtures("with_uvloop")
def test_a_request_for_uvloop_without_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(ClientError, match="install the extra uvloop"):
        new_event_loop()
    client = ClientInstance("127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(ClientError, match="install the extra uvloop"):
            client.start()


def loop_name():
    async def name():
        return type(asyncio.get_running_loop()).__module__.partition(".")[0]

    return name()


@needs_uvloop
@pytest.mark.usefixtures("with_uvloop")
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_requests_of_all_sizes_are_answered(caplog, is_encrypted):
    tls = TlsConfig(CA) if is_encrypted else None
    server = RemotingServer("served", tls=server_context() if is_encrypted else None)
    server.register([ECHO], lambda _, request: request.success(body=request.body))
    ended = []
    server.on_close(ended.append)
    address = f"127.0.0.1:{server.start('127.0.0.1', 0)}"
    thread = EventLoopThread("client", new_event_loop)
    thread.start()
    try:
        assert thread.submit(loop_name()).result() == "uvloop"
        client = RemotingClient(tls=tls)
        for size in (0, 1, 100, 5 << 20):
            request = RemotingCommand(ECHO, body=bytes(size))
            answer = thread.submit(client.invoke(address, request, 10)).result()
            assert answer.body == request.body
        many = [
            thread.submit(client.invoke(address, RemotingCommand(ECHO, body=b"%d" % n), 10))
            for n in range(200)
        ]
        assert [each.result().body for each in many] == [b"%d" % n for n in range(200)]
        thread.submit(client.close()).result()
    finally:
        thread.shutdown()
        server.shutdown()
    assert len(ended) == 1
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


@needs_uvloop
@pytest.mark.usefixtures("with_uvloop")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_connections_end_with_their_client_although_a_child_lives_on():
    """Also a server sees the end, as the client shuts its sockets down."""
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders")
        client = ClientInstance(cluster.namesrv_addr).start()
        assert client.call(loop_name()) == "uvloop"
        client.call(client.route("orders"))
        with idle_child():
            client.shutdown()
            wait_until(lambda: not cluster.name_server.connection_count, "the connection ends", 5)
