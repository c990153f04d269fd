"""What comes of clients when the process has no room for more."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqnet import Message, Producer, serve
from rmqnet.remoting.remoting_server import RemotingServer, RemotingServerConfig
from rmqnet.remoting.tls import ServerTls
from tests.rmqnet.remoting.raw_client import RawClient
from tests.rmqnet.scripted_cluster import wait_until

CERTIFICATES = Path(__file__).parent / "certificates"


@contextlib.contextmanager
def descriptors_for_clients(count: int) -> Iterator[None]:
    """Let this process open about so many more files before it refuses clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = os.open(os.devnull, os.O_RDONLY)
    os.close(found)
    resource.setrlimit(resource.RLIMIT_NOFILE, ((found + count) * 4 // 3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ended(client: socket.socket) -> bool:
    client.settimeout(0.01)
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True
    except OSError:  # nothing comes
        return False


def test_idle_clients_leave_descriptors_to_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"mappedFileSizeCommitLog": 1 << 16}
    with serve(tmp_path / "store", settings=settings) as cluster:
        port = cluster.controller.config.listen_port
        with Producer("p", cluster.namesrv_addr) as producer, contextlib.ExitStack() as idle:
            producer.send(Message("t", b"first"))
            with descriptors_for_clients(200):
                before = cluster.state().connections
                clients = [  # both ends are in this process
                    idle.enter_context(socket.create_connection(("127.0.0.1", port)))
                    for _ in range(110)
                ]
                wait_until(lambda: any(map(ended, clients[-10:])), "the last are refused")
                wait_until(lambda: cluster.state().connections > before, "the first are taken")
                for number in range(10):  # each a file of the log
                    producer.send(Message("t", b"%d" % number * 40_000))
    assert caplog.text.count("are refused") == 1


def test_clients_whose_handshake_hangs_count() -> None:
    tls = ServerTls(str(CERTIFICATES / "server.pem"), str(CERTIFICATES / "server.key"))
    config = RemotingServerConfig(max_connections=3)
    server = RemotingServer("s", config, tls.ssl_context())
    port = server.start("127.0.0.1", 0)
    try:
        with contextlib.ExitStack() as hanging:
            for _ in range(3):
                hanging.enter_context(RawClient(port))
            with RawClient(port) as late:
                late.wait_end()
            assert server.connections == 0
    finally:
        server.stop()
