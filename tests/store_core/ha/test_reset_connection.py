"""A connection that the other side resets is made again, as one that it closes."""

from __future__ import annotations

import socket
import struct

from store_core.ha.ha_client import HAClient

_RESET = struct.pack("ii", 1, 0)


def test_a_reset_while_nothing_comes_is_no_failure(slave):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        with HAClient(slave, f"127.0.0.1:{listener.getsockname()[1]}") as client:
            for _ in range(3):
                connection, _ = listener.accept()
                assert connection.recv(8)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                connection.close()
            listener.accept()[0].close()
            assert client.failure is None
            assert client.state().reconnects >= 3
