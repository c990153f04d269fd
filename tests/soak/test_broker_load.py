# SPDX-License-Identifier: Apache-2.0
"""Many connections and a flood of broken ones: everything arrives, others hardly wait."""

from __future__ import annotations

import random
import socket
import statistics
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from rmqnet import Admin, Message, Producer, PushConsumer
from rmqnet.remoting.headers import SendMessageRequestHeaderV2
from tests.interop.client_node import wait_until
from tests.interop.live_cluster import LiveCluster
from tests.interop.python_server import OURS
from tests.rmqnet.remoting.raw_client import RawClient

pytestmark = pytest.mark.soak

CONNECTIONS, MESSAGES = 200, 100_000
_QUEUES, _BODY_BYTES = 8, 512
_GARBAGE_THREADS = 4
_BYSTANDER_PAUSE_S = 0.02
_BASELINE_S = 5.0
_MOST_MEMORY_BYTES = 256 << 20
_LONGEST_S = 2.0
_LIMIT_S = 900


class Bystander:
    """A producer and a consumer with little work that record how long each message takes."""

    def __init__(self, namesrv_addr: str) -> None:
        self.send_s: list[float] = []
        self.arrival_s: list[float] = []
        self._producer = Producer("bystander", namesrv_addr)
        self._consumer = PushConsumer("bystanders", namesrv_addr, self._arrived)
        self._consumer.subscribe("bystander")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Bystander:
        self._producer.start()
        self._producer.send(Message("bystander", b"0.0"))
        self._consumer.start()
        # The topic's queues are assigned, and arriving messages are delivered immediately.
        assert wait_until(lambda: self.arrival_s)
        self.take()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.shutdown()
        self._producer.shutdown()

    def take(self) -> tuple[list[float], list[float]]:
        """Return the times since the last call: of sends, and from send to arrival."""
        taken = self.send_s, self.arrival_s
        self.send_s, self.arrival_s = [], []
        return taken

    def _run(self) -> None:
        while not self._stop.wait(_BYSTANDER_PAUSE_S):
            begin = time.monotonic()
            self._producer.send(Message("bystander", repr(begin).encode()), timeout_s=30)
            self.send_s.append(time.monotonic() - begin)

    def _arrived(self, messages: list[Message], context: object) -> None:
        now = time.monotonic()
        self.arrival_s += [now - float(message.body) for message in messages]


class Garbage:
    """Threads that repeatedly connect and send invalid requests."""

    def __init__(self, port: int) -> None:
        self.connections = 0
        self._port = port
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(seed,)) for seed in range(_GARBAGE_THREADS)
        ]

    def __enter__(self) -> Garbage:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed: int) -> None:
        generator = random.Random(seed)
        silent: list[socket.socket] = []
        while not self._stop.wait(0.01):
            with suppress(OSError):
                each = socket.create_connection(("127.0.0.1", self._port), timeout=5)
                self.connections += 1
                each.sendall(_garbage(generator))
                if generator.random() < 0.2:  # it stays, half sent
                    silent.append(each)
                else:
                    each.close()
            while len(silent) > 50:
                silent.pop(0).close()
        for each in silent:
            each.close()


def _garbage(generator: random.Random) -> bytes:
    noise = generator.randbytes(generator.randrange(1, 4096))
    return generator.choice(
        [
            noise,
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            struct.pack(">i", generator.randrange(-(1 << 31), 1 << 31)),
            struct.pack(">ii", 16 << 20, 100) + noise,  # a frame that never ends
            struct.pack(">ii", 4 + len(noise), len(noise)) + noise,
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise,
        ]
    )


def _send_some(port: int, number: int) -> int:
    """Send a connection's share; return how many were acknowledged."""
    share = MESSAGES // CONNECTIONS
    with RawClient(port) as client:
        for each in range(share):
            header = SendMessageRequestHeaderV2(
                producer_group="load",
                topic="load",
                default_topic="TBW102",
                default_topic_queue_nums=_QUEUES,
                queue_id=number % _QUEUES,
                sys_flag=0,
                born_timestamp=int(time.time() * 1000),
                flag=0,
                properties=f"KEYS\x01{number}-{each}\x02",
            )
            answer = client.request(header, b"x" * _BODY_BYTES)
            assert answer.code == 0, answer.remark
    return share


def _anonymous_bytes(process_id: int) -> int:
    """Return the memory of a process that no file backs."""
    for line in Path(f"/proc/{process_id}/status").read_text("ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the system does not say how much memory a process has")


def _said(times: list[float]) -> str:
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    named = {"median": cuts[49], "99th": cuts[98], "longest": max(times)}
    return ", ".join(f"{name} {1000 * each:.1f} ms" for name, each in named.items())


def test_many_connections_and_garbage(tmp_path, capsys):
    settings = {"mappedFileSizeCommitLog": 64 << 20, "sendMessageThreadPoolNums": 4}
    with LiveCluster(tmp_path / "cluster", OURS, settings=settings) as cluster:
        port = int(cluster.address().rpartition(":")[2])
        process_id = cluster.process_id()
        with Admin(cluster.namesrv_addr) as admin, Bystander(cluster.namesrv_addr) as bystander:
            admin.create_topic("load", _QUEUES)
            time.sleep(_BASELINE_S)  # memory when nothing else is done
            alone = bystander.take()
            before, most = _anonymous_bytes(process_id), 0
            begin = time.monotonic()
            with Garbage(port) as garbage, ThreadPoolExecutor(CONNECTIONS) as pool:
                running = [pool.submit(_send_some, port, n) for n in range(CONNECTIONS)]
                while not all(each.done() for each in running):
                    assert time.monotonic() - begin < _LIMIT_S
                    most = max(most, _anonymous_bytes(process_id))
                    time.sleep(0.2)
                acknowledged = sum(each.result() for each in running)
            seconds = time.monotonic() - begin
            beside = bystander.take()
            stats = admin.topic_stats("load")
            stored = sum(each.max_offset - each.min_offset for each in stats.values())
        with capsys.disabled():
            print(f"\n{acknowledged} of {CONNECTIONS} connections in {seconds:.0f} s")
            print(f"{garbage.connections} broken connections meanwhile")
            print(f"memory {before >> 20} MiB, at most {most >> 20} MiB")
            for name, times in (("alone", alone), ("beside", beside)):
                print(f"{name}: send {_said(times[0])}; to arrival {_said(times[1])}")
    assert acknowledged == stored == MESSAGES
    assert garbage.connections > 100
    assert most - before < _MOST_MEMORY_BYTES
    assert statistics.median(beside[1]) < _LONGEST_S
