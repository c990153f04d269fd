"""The clusters that other tests use: they start, are killed, come back with what they had."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.interop.java_cluster import RELEASES
from tests.interop.live_cluster import LiveCluster

pytestmark = pytest.mark.interop


def _ask(address: str, code: int, **fields: str) -> tuple[int, Any]:
    header = {"code": code, "language": "JAVA", "version": 479, "opaque": 1, "flag": 0}
    text = json.dumps({**header, "extFields": fields}).encode()
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(text), len(text)) + text)
        with connection.makefile("rb") as stream:
            length, header_length = struct.unpack(">ii", stream.read(8))
            answer = json.loads(stream.read(header_length))
            body = stream.read(length - 4 - header_length)
    return answer["code"], json.loads(body) if body else None


def _brokers(cluster: LiveCluster) -> set[str]:
    _, route = _ask(cluster.namesrv_addr, 105, topic="TBW102")
    return {each["brokerName"] for each in route["brokerDatas"]} if route else set()


@pytest.mark.parametrize("release", RELEASES)
def test_brokers_come_and_go(tmp_path: Path, release: str) -> None:
    names = ("broker-a", "broker-b") if release == "5.3.3" else ("broker-a",)
    with LiveCluster(tmp_path, release, brokers=names) as cluster:
        assert _brokers(cluster) == set(names)
        cluster.stop_broker()
        assert not (cluster.store() / "abort").exists()
        cluster.start_broker()
        assert _brokers(cluster) == set(names)
        cluster.kill_broker()
        assert (cluster.store() / "abort").exists()
        cluster.start_broker()
        assert _brokers(cluster) == set(names)
