# SPDX-License-Identifier: Apache-2.0
"""The proxy does what its weather says, and nothing else."""

from __future__ import annotations

import random
import socket
import threading

import pytest

from tests.cutting_proxy import CuttingProxy, Weather

DATA = random.Random(1).randbytes(200_000)
_SECONDS = 20


class Echo:
    """Sends back what comes, and remembers the sizes of the received pieces."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.pieces = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    while data := connection.recv(65_536):
                        self.pieces.append(len(data))
                        connection.sendall(data)
                except OSError:
                    pass

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def echo():
    server = Echo()
    yield server
    server.close()


def connect(proxy):
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=_SECONDS)


def exchange(proxy, data):
    """Send all; return the bytes that came back before the connection ended, or all of them."""
    got = b""
    with connect(proxy) as connection:
        sender = threading.Thread(target=_send, args=(connection, data))
        sender.start()
        try:
            while len(got) < len(data):
                piece = connection.recv(65_536)
                if not piece:
                    break
                got += piece
        except ConnectionError:
            pass
        sender.join()
    return got


def _send(connection, data):
    try:
        connection.sendall(data)
    except OSError:
        return


@pytest.mark.parametrize("splits", ["never", "randomly", "bytes"])
def test_all_bytes_come_in_order(echo, splits):
    with CuttingProxy(echo.address, Weather(splits, max_delay_ms=2), seed=1) as proxy:
        assert exchange(proxy, DATA) == DATA
        assert (proxy.connections, proxy.cuts) == (1, 0)


def test_bytes_come_one_by_one(echo):
    with CuttingProxy(echo.address, Weather("bytes"), seed=1) as proxy:
        assert exchange(proxy, DATA[:1000]) == DATA[:1000]
    assert echo.pieces.count(1) > 20


def test_each_connection_is_cut_after_so_many_bytes_until_it_is_calm(echo):
    weather = Weather(cut_after_bytes=(1_000, 50_000))
    with CuttingProxy(echo.address, weather, seed=3) as proxy:
        for _ in range(20):
            got = exchange(proxy, DATA)
            assert len(got) <= 50_000
            assert DATA.startswith(got)
        assert (proxy.connections, proxy.cuts) == (20, 20)
        proxy.calm()
        assert exchange(proxy, DATA) == DATA
        assert proxy.cuts == 20


def test_where_it_cuts_follows_from_the_seed(echo):
    def lengths(seed):
        # A clean end lets all forwarded bytes through; a reset may lose some.
        weather = Weather("never", cut_after_bytes=(1_000, 9_000))
        with CuttingProxy(echo.address, weather, seed) as proxy:
            return {len(exchange(proxy, DATA)) for _ in range(30)}

    assert len(lengths(1) & lengths(1)) > 8
    assert len(lengths(1) & lengths(2)) < 4


def test_everything_can_be_cut_at_once(echo):
    weather = Weather("never")
    with CuttingProxy(echo.address, weather, seed=1) as proxy, connect(proxy) as sender:
        sender.sendall(b"x")
        assert sender.recv(1) == b"x"
        proxy.cut_all()
        assert sender.recv(1) == b""
        assert proxy.cuts == 0


def test_a_target_that_is_not_there_ends_the_connection(echo):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    with CuttingProxy(address, Weather(), seed=1) as proxy:
        assert exchange(proxy, DATA) == b""
        proxy.target = echo.address
        assert exchange(proxy, DATA) == DATA
