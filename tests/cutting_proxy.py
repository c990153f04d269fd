# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that simulates a bad network: it splits, delays and cuts connections."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_READ_BYTES = 65_536
_SMALL_PIECE_BYTES = 64
_BYTE_BY_BYTE_UP_TO = 2_048
# Otherwise the kernel hands over many pieces in one read.
_BYTE_SECONDS = 1e-4
_DELAYED_PIECES = 0.05
# A connection may just have been accepted, before its other side is connected.
_LATE_SECONDS = 0.05
_Way = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Weather:
    """How bad the network is."""

    splits: str = "randomly"
    """``never``, ``randomly``, or ``bytes``: the first 2 KiB in each direction byte by byte."""
    max_delay_ms: int = 0
    """Longest delay of a piece; one in twenty is delayed."""
    cut_after_bytes: tuple[int, int] | None = None
    """Range of bytes, in one of the two directions, after which a connection is cut."""


class CuttingProxy:
    """Forwards connections to a target with disturbances until `calm` is called.

    It starts when it is created. The seed determines what happens to the n-th connection. Half of
    the cuts are clean ends, half are resets, which may destroy bytes in transit.

    Parameters
    ----------
    target
        ``HOST:PORT``; may be changed, for later connections.
    weather
        The disturbances until `calm`.
    seed
        Seed of all random choices.
    """

    def __init__(self, target: str, weather: Weather, seed: int) -> None:
        self.target = target
        self.cuts = 0
        self.connections = 0
        self._weather = weather
        self._seed = seed
        self._is_calm = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = self._run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The address it listens on."""
        return f"127.0.0.1:{self.port}"

    def calm(self) -> None:
        """From now on, forward everything as it comes."""
        self._is_calm = True

    def cut_all(self) -> None:
        """Cut every connection now."""
        self._run(self._cut_all())

    def close(self) -> None:
        """Cut all connections and stop."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _cut_all(self) -> None:
        while self._tasks:
            _abort(self._writers)
            await asyncio.wait(self._tasks, timeout=_LATE_SECONDS)

    async def _close(self) -> None:
        self._server.close()
        # A connection accepted a moment ago becomes a task in the next turns of the loop.
        for _ in range(3):
            await asyncio.sleep(0)
        await self._cut_all()
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._forward(reader, writer, self.connections))
        self.connections += 1
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        """Forward one connection until either side ends it or the weather cuts it."""
        writers = [writer]
        self._writers.add(writer)
        host, _, port = self.target.rpartition(":")
        with suppress(OSError):
            other_reader, other_writer = await asyncio.open_connection(host, int(port))
            writers.append(other_writer)
            self._writers.add(other_writer)
            await self._forward_both(number, (reader, other_writer), (other_reader, writer))
        for each in writers:
            each.close()
            with suppress(OSError):
                await each.wait_closed()
            self._writers.remove(each)

    async def _forward_both(self, number: int, there: _Way, back: _Way) -> None:
        chance = random.Random(f"{self._seed}/{number}")
        limits = self._cut_after(chance)
        pumps = [
            self._loop.create_task(self._pump(*way, random.Random(chance.random()), limit))
            for way, limit in zip((there, back), limits)
        ]
        done, others = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        if any([pump.result() for pump in done]):
            self.cuts += 1
            if chance.randrange(2):
                _abort([there[1], back[1]])
        for pump in others:
            pump.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _cut_after(self, chance: random.Random) -> tuple[int | None, int | None]:
        if self._weather.cut_after_bytes is None:
            return None, None
        limit = chance.randint(*self._weather.cut_after_bytes)
        # Reports are 8 bytes, the data they ask for is thousands.
        return (limit // 1024, None) if chance.randrange(4) == 0 else (None, limit)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        chance: random.Random,
        cut_after: int | None,
    ) -> bool:
        """Forward one direction; return True if the weather ended it rather than a side."""
        done = 0
        with suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                at = 0
                while at < len(data):
                    if self._is_calm:
                        piece = data[at:]
                    elif cut_after is not None and done >= cut_after:
                        return True
                    else:
                        piece = data[at : at + self._piece_bytes(chance, done)]
                        piece = piece[: None if cut_after is None else cut_after - done]
                        if self._weather.max_delay_ms and chance.random() < _DELAYED_PIECES:
                            await asyncio.sleep(chance.random() * self._weather.max_delay_ms / 1000)
                    writer.write(piece)
                    await writer.drain()
                    if len(piece) == 1 and self._weather.splits == "bytes":
                        await asyncio.sleep(_BYTE_SECONDS)
                    at += len(piece)
                    done += len(piece)
        return False

    def _piece_bytes(self, chance: random.Random, done: int) -> int:
        if self._weather.splits == "never":
            return _READ_BYTES
        if self._weather.splits == "bytes" and done < _BYTE_BY_BYTE_UP_TO:
            return 1
        largest = _SMALL_PIECE_BYTES if chance.randrange(2) else _READ_BYTES
        return chance.randint(1, largest)


def _abort(writers: Iterable[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()
