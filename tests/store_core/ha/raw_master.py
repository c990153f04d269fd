# SPDX-License-Identifier: Apache-2.0
"""A scripted master: it serves a log as RocketMQ's does, or as a test wants."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress

REPORT, HEADER = struct.Struct(">q"), struct.Struct(">qi")


class RawMaster:
    """Serves ``log``, which may grow, to any number of slaves, each in a thread of its own.

    Parameters
    ----------
    log
        The log from offset ``begin`` on.
    segment
        Its ``mappedFileSizeCommitLog``.
    heartbeat_s
        Heartbeat interval of an idle connection.
    most
        Largest number of bytes of a frame.
    pieces
        Takes the bytes of a frame, and returns how to cut them; a small pause follows each piece.
    """

    def __init__(self, log, segment, *, begin=0, heartbeat_s=0.2, most=32768, pieces=None):
        self.log, self.begin, self.segment = bytearray(log), begin, segment
        self.heartbeat_s, self.most, self.pieces = heartbeat_s, most, pieces
        self.requests, self.reports, self.accepted = [], [], 0
        self.after_bytes = None  # close a connection after so many bytes
        self._sockets, self._threads = set(), []
        self._changed = threading.Condition()
        self._closing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._start(self._accept)

    @property
    def end(self):
        return self.begin + len(self.log)

    def append(self, data):
        with self._changed:
            self.log += data
            self._changed.notify_all()

    def drop(self):
        """Break all connections."""
        with self._changed:
            for sock in self._sockets:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def wait_until(self, done, seconds=10):
        with self._changed:
            assert self._changed.wait_for(done, seconds), (self.requests, self.reports)

    def close(self):
        self._closing = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def serve(self, sock):
        """Talk to one slave."""
        request = REPORT.unpack(self._exactly(sock, REPORT.size))[0]
        self._note(self.requests, request)
        self._start(self._read_reports, sock)
        at = request or (self.end - 1 if self.end else 0) // self.segment * self.segment
        sent = time.monotonic()
        while not self._closing:
            data = self._data(at)
            if data or time.monotonic() - sent >= self.heartbeat_s:
                self._send(sock, HEADER.pack(at, len(data)) + data)
                sent = time.monotonic()
                at += len(data)
            else:
                with self._changed:
                    self._changed.wait_for(lambda at=at: self._data(at), 0.02)

    def _data(self, at):
        if not self.begin <= at < self.end:
            return b""
        stop = min(self.end, at - at % self.segment + self.segment, at + self.most)
        return bytes(self.log[at - self.begin : stop - self.begin])

    def _send(self, sock, data):
        if self.after_bytes is not None:
            data = data[: self.after_bytes]
            self.after_bytes -= len(data)
        pieces = [data] if self.pieces is None else self.pieces(data)
        for piece in pieces:
            sock.sendall(piece)
        if self.after_bytes == 0:
            self.after_bytes = None
            raise ConnectionError

    def _read_reports(self, sock):
        with suppress(OSError):
            while True:
                self._note(self.reports, REPORT.unpack(self._exactly(sock, REPORT.size))[0])

    def _note(self, where, offset):
        with self._changed:
            where.append(offset)
            self._changed.notify_all()

    @staticmethod
    def _exactly(sock, count):
        data = b""
        while len(data) < count:
            more = sock.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def _accept(self):
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._changed:
                    self.accepted += 1
                    self._sockets.add(sock)
                    self._changed.notify_all()
                self._start(self._serve, sock)

    def _serve(self, sock):
        with sock, suppress(OSError):
            try:
                self.serve(sock)
            finally:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                with self._changed:
                    self._sockets.discard(sock)

    def _start(self, work, *args):
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()
