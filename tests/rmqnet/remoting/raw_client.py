# SPDX-License-Identifier: Apache-2.0
"""A client that sends arbitrary bytes, in the thread of the test."""

from __future__ import annotations

import itertools
import socket
import ssl
from types import TracebackType

from rmqnet.remoting.frame_codec import FrameDecoder, encode_frame
from rmqnet.remoting.header_fields import RequestHeader
from rmqnet.remoting.remoting_command import RemotingCommand

LIMIT_SECONDS = 10.0


class RawClient:
    """One connection to a server on this machine; leaving the block closes it."""

    def __init__(
        self, port: int, tls: ssl.SSLContext | None = None, receive_buffer: int | None = None
    ) -> None:
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(LIMIT_SECONDS)
        if tls is not None:  # before it connects: wrapping a socket that was just reset leaks it
            self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        try:
            self._socket.connect(("127.0.0.1", port))
        except BaseException:
            self._socket.close()
            raise
        self._decoder = FrameDecoder("server")
        self._commands: list[RemotingCommand] = []
        self._opaques = itertools.count(1)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Address of this client as the server names it."""
        return "{}:{}".format(*self._socket.getsockname())

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send_bytes(self, data: bytes) -> None:
        """Send bytes, as many as the server accepts in time."""
        self._socket.sendall(data)

    def send(self, command: RemotingCommand) -> RemotingCommand:
        """Send a command under a new number; return it."""
        command.opaque = next(self._opaques)
        self.send_bytes(encode_frame(command))
        return command

    def request(
        self, request: RequestHeader | int, body: bytes = b"", **changes: object
    ) -> RemotingCommand:
        """Send a request, and return the next command that comes."""
        command = RemotingCommand.request(request, body)
        for name, value in changes.items():
            setattr(command, name, value)
        self.send(command)
        return self.receive()

    def receive(self) -> RemotingCommand:
        """Return the next command of the server; EOFError if it ends the connection."""
        while not self._commands:
            data = self._read()
            if not data:
                raise EOFError("the server ended the connection")
            self._commands = self._decoder.feed(data)
        return self._commands.pop(0)

    def wait_end(self) -> None:
        """Read until the server ends the connection."""
        while self._read():
            pass

    def _read(self) -> bytes:
        try:
            return self._socket.recv(1 << 20)
        except ConnectionError:
            return b""
