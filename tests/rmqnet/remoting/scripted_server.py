# SPDX-License-Identifier: Apache-2.0
"""A server that treats each connection as a test's script says."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Callable

from rmqnet.remoting.frame_codec import FrameDecoder, encode_frame
from rmqnet.remoting.remoting_command import RemotingCommand

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Coroutine

LIMIT_SECONDS = 10.0


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test in a loop of its own; errors in the loop fail the test."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(_watched(test(*args, **kwargs)))

    return run


async def _watched(work: Awaitable[None]) -> None:
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    await asyncio.wait_for(work, LIMIT_SECONDS)
    assert unseen == []


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.ended = False
        self._reader = reader
        self._decoder = FrameDecoder("client")
        self._commands: list[RemotingCommand] = []

    async def read(self) -> RemotingCommand:
        """Return the next command of the client."""
        while not self._commands:
            data = await self._reader.read(1 << 16)
            if not data:
                raise EOFError
            self._commands = self._decoder.feed(data)
        return self._commands.pop(0)

    async def wait_end(self) -> None:
        """Wait until the client ends the connection."""
        try:
            while await self._reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        self.ended = True

    def send(self, command: RemotingCommand) -> None:
        """Send a command."""
        self.writer.write(encode_frame(command))

    def answer(self, request: RemotingCommand, code: int = 0, remark: str | None = None) -> None:
        """Answer a request with its own fields and body."""
        response = RemotingCommand.response_to(request, code, remark, body=request.body)
        response.ext_fields = request.ext_fields
        self.send(response)

    async def answer_all(self) -> None:
        """Answer until the client ends the connection."""
        try:
            while True:
                request = await self.read()
                if not request.is_oneway:
                    self.answer(request)
        except (EOFError, ConnectionError):
            self.ended = True


Script = "Callable[[Peer], Awaitable[None]]"


class ScriptedServer:
    """Serves the n-th connection by the n-th script, and all later ones by the last script.

    The connection is closed at the end of its script.
    """

    def __init__(self, *scripts: Script, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.peers: list[Peer] = []
        self._scripts = scripts or (Peer.answer_all,)
        self._tls = tls
        self._port = port
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, ssl=self._tls
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        errors = [r for r in results if isinstance(r, Exception)]
        assert errors == []

    @property
    def address(self) -> str:
        """Address of the server as clients name it."""
        return f"127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(reader, writer)
        script = self._scripts[min(len(self.peers), len(self._scripts) - 1)]
        self.peers.append(peer)
        try:
            await script(peer)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.close()
            self._tasks.discard(task)


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    while not condition():
        await asyncio.sleep(0.001)
