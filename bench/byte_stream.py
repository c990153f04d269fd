# SPDX-License-Identifier: Apache-2.0
"""A sender and a receiver that only move bytes: ``python -m bench.byte_stream …``."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

from bench.side_process import tell, until_input_ends

_CHUNK = 1 << 20


def send(paths: list[str]) -> None:
    """Send the bytes of files to the first client that connects."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tell("listening", port=listener.getsockname()[1])
        peer, _ = listener.accept()
        with peer:
            for path in paths:
                with Path(path).open("rb") as file:
                    peer.sendfile(file)
            until_input_ends()


def receive(port: int, count: int) -> None:
    """Receive and discard bytes; print the time since the connection was made."""
    begin = time.perf_counter()
    buffer = memoryview(bytearray(_CHUNK))
    with socket.create_connection(("127.0.0.1", port)) as peer:
        left = count
        while left > 0:
            got = peer.recv_into(buffer)
            if not got:
                raise EOFError(f"{left} of {count} bytes did not come")
            left -= got
    tell("received", count=count, seconds=time.perf_counter() - begin)
    until_input_ends()


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2:])
    else:
        receive(int(sys.argv[2]), int(sys.argv[3]))
