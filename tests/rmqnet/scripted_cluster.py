# SPDX-License-Identifier: Apache-2.0
"""Name servers and brokers with scripted answers, without Java.

Each server listens on a port of its own, in an event loop in its own thread. Its answers are
functions by request code: they take the request and return the answer, or None for no answer; they
may be coroutine functions. All requests are recorded, in order.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable

from rmqnet.remoting.codes import RequestCode, ResponseCode, request_name
from rmqnet.remoting.frame_codec import FrameDecoder, encode_frame
from rmqnet.remoting.remoting_command import ONEWAY_FLAG, RemotingCommand
from store_core.event_loop_thread import EventLoopThread

Answer = Callable[[RemotingCommand], Any]
DEADLINE_S = 10.0


def success(request: RemotingCommand, body: bytes = b"", **ext_fields: object) -> RemotingCommand:
    return answer(request, ResponseCode.SUCCESS, body=body, **ext_fields)


def answer(
    request: RemotingCommand,
    code: int,
    remark: str | None = None,
    body: bytes = b"",
    **ext_fields: object,
) -> RemotingCommand:
    response = RemotingCommand.response_to(request, code, remark, body=body)
    response.ext_fields = {name: str(value) for name, value in ext_fields.items()}
    return response


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.005)


class ScriptedServer:
    """One server; a context manager, or ``start`` and ``stop``. ``start`` after ``stop`` uses
    the same port.
    """

    def __init__(self, answers: dict[int, Answer] | None = None) -> None:
        self.answers: dict[int, Answer] = dict(answers or {})
        self.requests: list[RemotingCommand] = []
        self._port = 0
        self._loop_thread = EventLoopThread("scripted-server")
        self._server: asyncio.AbstractServer | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._asked: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 1 << 20
        self._arrived = threading.Condition()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def connection_count(self) -> int:
        return len(self._writers)

    def start(self) -> ScriptedServer:
        self._loop_thread.start()
        self._loop_thread.submit(self._listen()).result(DEADLINE_S)
        return self

    def stop(self) -> None:
        if self._loop_thread.is_running:
            self._loop_thread.submit(self._end()).result(DEADLINE_S)
            self._loop_thread.shutdown()

    def __enter__(self) -> ScriptedServer:
        return self if self._loop_thread.is_running else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def asked(self, code: int) -> list[RemotingCommand]:
        """Return the requests of one code so far."""
        return [request for request in self.requests if request.code == code]

    def wait_for(
        self, code: int, count: int = 1, timeout_s: float = DEADLINE_S
    ) -> list[RemotingCommand]:
        """Wait until so many requests of one code have come; return them all."""
        with self._arrived:
            came = self._arrived.wait_for(lambda: len(self.asked(code)) >= count, timeout_s)
        found = self.asked(code)
        assert came, f"{len(found)} of {count} requests {request_name(code)} came"
        return found

    def tell_clients(self, command: RemotingCommand) -> None:
        """Send a one-way request to every connection."""
        command.flag |= ONEWAY_FLAG
        self._loop_thread.submit(self._write_all(command)).result(DEADLINE_S)

    def ask_client(self, command: RemotingCommand) -> RemotingCommand:
        """Send a request to the only connection and return its answer."""
        return self._loop_thread.submit(self._ask(command)).result(DEADLINE_S)

    def drop_connections(self) -> None:
        """Close all connections; new connections are accepted."""
        self._loop_thread.submit(self._drop()).result(DEADLINE_S)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._drop()

    async def _drop(self) -> None:
        writers = list(self._writers)
        for writer in writers:
            writer.close()
        await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        decoder = FrameDecoder("a client")
        tasks: set[asyncio.Task[None]] = set()
        try:
            while data := await reader.read(1 << 16):
                for command in decoder.feed(data):
                    if command.is_response:
                        self._asked.pop(command.opaque).set_result(command)
                    else:
                        tasks.add(asyncio.ensure_future(self._answer(command, writer)))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            for task in tasks:
                task.cancel()
            writer.close()

    async def _answer(self, request: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        response = self.answers.get(request.code, _not_supported)(request)
        if inspect.isawaitable(response):
            response = await response
        if response is not None and not request.is_oneway:
            writer.write(encode_frame(response))

    async def _write_all(self, command: RemotingCommand) -> None:
        for writer in self._writers:
            writer.write(encode_frame(command))
            await writer.drain()

    async def _ask(self, command: RemotingCommand) -> RemotingCommand:
        assert len(self._writers) == 1
        self._opaque += 1
        command.opaque = self._opaque
        future = self._asked[command.opaque] = asyncio.get_running_loop().create_future()
        await self._write_all(command)
        return await future


def _not_supported(request: RemotingCommand) -> RemotingCommand:
    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return answer(request, code, f"request type {request.code} not supported")


@dataclass
class ScriptedTopic:
    """A topic known to the name server, with its number of queues on each broker."""

    queues: dict[str, int]
    perm: int = 6
    order_topic_conf: str | None = None


@dataclass
class ScriptedCluster:
    """One name server, and brokers by name; a context manager.

    Brokers answer heartbeats, and unregistering clients; a test adds the other answers it needs
    to ``cluster.broker("broker-a").answers``. For slaves use ``broker(name, broker_id=1)``.
    """

    topics: dict[str, ScriptedTopic] = field(default_factory=dict)
    bare_keys: bool = False
    """Write broker ids without quotes, as name servers do for old clients."""

    def __post_init__(self) -> None:
        self.name_server = ScriptedServer(
            {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
                RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topic_list,
            }
        )
        self._brokers: dict[tuple[str, int], ScriptedServer] = {}
        self.registered: set[tuple[str, int]] = set()
        """The brokers known to the name server, by name and id."""

    def __enter__(self) -> ScriptedCluster:
        self.name_server.start()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self._brokers.values():
            broker.stop()
        self.name_server.stop()

    @property
    def namesrv_addr(self) -> str:
        return self.name_server.address

    def broker(self, name: str = "broker-a", broker_id: int = 0) -> ScriptedServer:
        """Return a broker; the first call starts and registers it."""
        key = (name, broker_id)
        if key not in self._brokers:
            answers: dict[int, Answer] = {
                RequestCode.HEART_BEAT: success,
                RequestCode.UNREGISTER_CLIENT: success,
            }
            self._brokers[key] = ScriptedServer(answers).start()
            self.registered.add(key)
        return self._brokers[key]

    def add_topic(self, topic: str, **settings: Any) -> None:
        """Make a topic known; by default one of four queues on ``broker-a``."""
        settings.setdefault("queues", {"broker-a": 4})
        for name in settings["queues"]:
            self.broker(name)
        self.topics[topic] = ScriptedTopic(**settings)

    def _route(self, request: RemotingCommand) -> RemotingCommand:
        name = request.ext_fields["topic"]
        topic = self.topics.get(name)
        if topic is None:
            remark = f"No topic route info in name server for the topic: {name}"
            return answer(request, ResponseCode.TOPIC_NOT_EXIST, remark)
        names = [name for name in topic.queues if self._ids(name)]
        queue_datas = [
            {
                "brokerName": name,
                "perm": topic.perm,
                "readQueueNums": topic.queues[name],
                "writeQueueNums": topic.queues[name],
                "topicSysFlag": 0,
            }
            for name in names
        ]
        route = {
            "brokerDatas": [self._broker_data(name) for name in names],
            "filterServerTable": {},
            "queueDatas": queue_datas,
        }
        if topic.order_topic_conf is not None:
            route["orderTopicConf"] = topic.order_topic_conf
        return success(request, self._json(route))

    def _cluster_info(self, request: RemotingCommand) -> RemotingCommand:
        names = sorted({name for name, _ in self.registered})
        info = {
            "brokerAddrTable": {name: self._broker_data(name) for name in names},
            "clusterAddrTable": {"DefaultCluster": names},
        }
        return success(request, self._json(info))

    def _topic_list(self, request: RemotingCommand) -> RemotingCommand:
        return success(request, json.dumps({"topicList": sorted(self.topics)}).encode())

    def _ids(self, name: str) -> list[int]:
        return sorted(broker_id for known, broker_id in self.registered if known == name)

    def _broker_data(self, name: str) -> dict[str, Any]:
        addresses = {str(each): self._brokers[name, each].address for each in self._ids(name)}
        return {"brokerAddrs": addresses, "brokerName": name, "cluster": "DefaultCluster"}

    def _json(self, data: dict[str, Any]) -> bytes:
        text = json.dumps(data, separators=(",", ":"))
        if self.bare_keys:
            for broker_id in range(10):
                text = text.replace(f'"{broker_id}":', f"{broker_id}:")
        return text.encode()
