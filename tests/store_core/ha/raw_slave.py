"""A slave that is nothing but a socket, and the master that tests connect it to."""

from __future__ import annotations

import socket
import time
from dataclasses import replace

from store_core.config.message_store_config import MessageStoreConfig
from store_core.layout.replication import REPORT, TRANSFER_HEADER
from store_core.message import Message
from store_core.results import PutMessageStatus

SEGMENT = 4096
DEADLINE_S = 20


def store_config(root, **changes):
    config = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=50,
        max_index_num=40,
        clean_file_forcibly_enable=False,
        ha_transfer_batch_size=700,
    )
    return replace(config, **changes)


def put(store, count, body_bytes=300, **properties):
    """Put messages; return the end of the last one."""
    for _ in range(count):
        message = Message("T", b"x" * body_bytes, queue_id=0, properties=properties)
        result = store.put_message(message)
        assert result.status is PutMessageStatus.PUT_OK
    return result.append_result.commit_log_offset + result.append_result.store_size


def log_bytes(store, start, stop):
    found = b""
    while start + len(found) < stop:
        at = start + len(found)
        with store.commit_log_data(at, stop - at) as data:
            found += data.tobytes()
    return found


def wait_until(condition, what="it"):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.001)


class RawSlave:
    """Reports and receives when a test says so.

    Attributes
    ----------
    frames
        (offset, body size) of all that came.
    body
        All bodies in a row.
    """

    def __init__(self, address, receive_buffer_bytes=None):
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect((host, int(port)))
        self.frames, self.body = [], b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def report(self, *offsets):
        self.socket.sendall(b"".join(REPORT.pack(max_offset=offset) for offset in offsets))

    def read(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError(data)
            data += part
        return data

    def frame(self):
        offset, size = TRANSFER_HEADER.struct.unpack(self.read(TRANSFER_HEADER.size))
        self.body += self.read(size)
        self.frames.append((offset, size))
        return offset, size

    def follow(self, stop):
        """Receive frames until the log has come up to an offset; heartbeats count as frames."""
        while sum(self.frames[-1] if self.frames else (-1,)) < stop:
            self.frame()
        return self.frames

    def is_dropped(self):
        """Whether the master closes the connection; frames before that are left out."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        return True
