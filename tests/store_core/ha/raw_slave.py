# SPDX-License-Identifier: Apache-2.0
"""A slave that is only a socket, and the master that tests connect it to."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace

from store_core.config.message_store_config import MessageStoreConfig
from store_core.ha.ha_service import HAService
from store_core.layout import REPORT, TRANSFER_HEADER
from store_core.message import Message
from store_core.message_store import MessageStore
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


@contextmanager
def serving(root, **changes):
    config = store_config(root, **changes)
    with MessageStore(config) as store, HAService(store, port=0) as service:
        put_anyhow(store, 30)
        yield store, service


def put_anyhow(store, count):
    """Put messages without waiting for slaves."""
    return put(store, count, WAIT="false")


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


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
    """Reports and receives when a test says so, with ``reads`` as the largest sizes of receives.

    Attributes
    ----------
    frames
        (offset, body size) of all received frames.
    body
        All bodies in a row.
    """

    def __init__(self, address, receive_buffer_bytes=None, reads=()):
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect((host, int(port)))
        self.frames, self.body = [], bytearray()
        self._reads = itertools.cycle([*reads] or [1 << 20])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def report(self, *offsets):
        self.socket.sendall(b"".join(REPORT.pack(max_offset=offset) for offset in offsets))

    def read(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(min(size - len(data), next(self._reads)))
            if not part:
                raise EOFError(data)
            data += part
        return data

    def frame(self):
        offset, size = TRANSFER_HEADER.struct.unpack(self.read(TRANSFER_HEADER.size))
        self.body += self.read(size)
        self.frames.append((offset, size))
        return offset, size

    @property
    def end(self):
        """The end of the received log; -1 before the first frame."""
        return sum(self.frames[-1]) if self.frames else -1

    @property
    def address(self):
        return "{}:{}".format(*self.socket.getsockname())

    def follow(self, stop):
        """Receive frames until the log has reached an offset; heartbeats count as frames."""
        while self.end < stop:
            self.frame()
        return self.frames

    def wait_for_end(self):
        """Wait until the master closes the connection; ignore bytes before that."""
        with suppress(ConnectionResetError):
            while self.socket.recv(1 << 16):
                pass


class AckingSlave(RawSlave):
    """Reports its progress, in a thread of its own, until the connection ends."""

    def __init__(self, address, first):
        super().__init__(address)
        self.report(first)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def __exit__(self, *_):
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        super().__exit__()

    def _run(self):
        with suppress(EOFError, OSError):
            while True:
                self.report(sum(self.frame()))


@contextmanager
def serving_one(root, **changes):
    """A service, and a slave that has connected."""
    with serving(root, **changes) as (store, service), RawSlave(service.address) as slave:
        wait_until(service.slaves)
        yield store, service, slave


def still_serves(service, store):
    with RawSlave(service.address) as slave:
        slave.report(1)
        slave.follow(store.max_phy_offset)
        return slave.body == log_bytes(store, 1, store.max_phy_offset)
