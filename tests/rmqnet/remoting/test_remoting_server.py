# SPDX-License-Identifier: Apache-2.0
"""A server's treatment of clients, friendly and hostile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from rmqnet.errors import (
    ClientError,
    RemotingConnectError,
    RemotingFormatError,
    RemotingTimeoutError,
)
from rmqnet.remoting.codes import RequestCode, ResponseCode, SerializeType
from rmqnet.remoting.frame_codec import encode_frame
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.remoting_server import RemotingServer, RemotingServerConfig
from rmqnet.remoting.server_connection import ServerConnection
from rmqnet.remoting.tls import ServerTls, TlsConfig
from rmqnet.remoting.worker_pool import WorkerPool
from tests.rmqnet.remoting.raw_client import RawClient
from tests.rmqnet.scripted_cluster import wait_until

ECHO, WORK, HELD, WATCHED, BROKEN = 10, 11, 12, 13, 33
CERTIFICATES = Path(__file__).parent / "certificates"
CA, CLIENT, CLIENT_KEY, SERVER, SERVER_KEY = (
    str(CERTIFICATES / name)
    for name in ("ca.pem", "client.pem", "client.key", "server.pem", "server.key")
)


def echo(_: ServerConnection, request: RemotingCommand) -> RemotingCommand:
    response = RemotingCommand.response_to(request, ResponseCode.SUCCESS, body=request.body)
    response.ext_fields = request.ext_fields
    return response


class Held:
    """Keeps requests unanswered until a test answers them."""

    def __init__(self) -> None:
        self.requests: list[tuple[ServerConnection, RemotingCommand]] = []

    def __call__(self, connection: ServerConnection, request: RemotingCommand) -> None:
        self.requests.append((connection, request))

    @property
    def connection(self) -> ServerConnection:
        return self.requests[-1][0]


class Gate:
    """Work that waits until the gate is opened."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self._may_go = threading.Event()

    def open(self) -> None:
        self._may_go.set()

    def __call__(self, connection: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        self.begun.release()
        assert self._may_go.wait(10)
        return echo(connection, request)


class Served:
    """A server that echoes code 10, and leaves code 12 unanswered until the test answers."""

    def __init__(self, tls: ssl.SSLContext | None = None, **limits: Any) -> None:
        self.server = RemotingServer("test", RemotingServerConfig(**limits), tls)
        self.held = Held()
        self.ended: list[ServerConnection] = []
        self.server.register([ECHO], echo)
        self.server.register([HELD], self.held)
        self.server.on_close(self.ended.append)
        self.pools: list[WorkerPool] = []
        self.port = 0

    def pool(
        self, code: int, handler: Callable[..., Any], threads: int = 1, capacity: int = 10
    ) -> WorkerPool:
        pool = WorkerPool(f"pool-{code}", threads, capacity)
        self.pools.append(pool)
        self.server.register([code], handler, pool)
        pool.start()
        return pool

    def __enter__(self) -> Served:
        self.port = self.server.start("127.0.0.1", 0)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        for pool in self.pools:
            pool.shutdown()

    def client(self, **options: Any) -> RawClient:
        return RawClient(self.port, **options)

    def wait_ended(self, count: int) -> None:
        wait_until(lambda: len(self.ended) >= count, f"{count} connections end")

    def wait_connections(self, count: int) -> None:
        wait_until(lambda: self.server.connections == count, f"{count} connections are open")


@contextlib.contextmanager
def echoing(**limits: Any) -> Iterator[tuple[Served, RawClient]]:
    """A server, and a friendly client that must be served whatever others do."""
    with Served(**limits) as served, served.client() as friend:
        assert works(friend)
        yield served, friend
        assert works(friend)


def works(client: RawClient) -> bool:
    answer = client.request(ECHO, b"hello")
    return answer.code == ResponseCode.SUCCESS and answer.body == b"hello"


def oneway(code: int, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(code, body=body, flag=2)


# Requests and answers.


@pytest.mark.parametrize("form", list(SerializeType))
def test_an_answer_has_the_number_and_the_form_of_its_request(form: SerializeType) -> None:
    with Served() as served, served.client() as client:
        request = RemotingCommand(ECHO, {"a": "b"}, b"body", serialize_type=form)
        client.send(request)
        answer = client.receive()
        assert (answer.opaque, answer.is_response) == (request.opaque, True)
        assert (answer.ext_fields, answer.body) == ({"a": "b"}, b"body")
        assert answer.serialize_type is form


def test_many_requests_in_one_piece_are_answered_in_order() -> None:
    with Served() as served, served.client() as client:
        commands = [RemotingCommand(ECHO, body=b"%d" % i, opaque=i) for i in range(1000)]
        client.send_bytes(b"".join(map(encode_frame, commands)))
        assert [client.receive().opaque for _ in commands] == list(range(1000))


def test_a_request_may_come_byte_by_byte() -> None:
    with Served() as served, served.client() as client:
        for byte in encode_frame(RemotingCommand(ECHO, body=b"slow")):
            client.send_bytes(bytes([byte]))
        assert client.receive().body == b"slow"


def test_an_unknown_code_is_named() -> None:
    with Served() as served, served.client() as client:
        for code, name in ((200050, "POP_MESSAGE"), (9999, "unknown")):
            answer = client.request(code)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark == f"request type {code} ({name}) not supported"


def test_whatever_goes_wrong_in_a_handler_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: ServerConnection, request: RemotingCommand) -> None:
        if request.body:
            raise RemotingFormatError("the field topic is missing")
        raise KeyError("bug")

    with Served() as served, served.client() as client:
        served.server.register([BROKEN], fail)
        served.pool(WORK, fail)
        for code in (BROKEN, WORK):
            answer = client.request(code, b"x")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == "the field topic is missing"
            assert "bug" not in caplog.text
        for code in (BROKEN, WORK):
            answer = client.request(code)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "KeyError: 'bug'")
            assert works(client)
    assert "cannot process a request" in caplog.text


def test_an_answer_that_is_too_long_becomes_an_error() -> None:
    with Served(max_frame_bytes=10_000) as served, served.client() as client:
        served.pool(WORK, lambda _, request: RemotingCommand.response_to(request, 0, "x" * 20_000))
        answer = client.request(WORK)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "at most 10000" in answer.remark


def test_who_sends_thousands_of_requests_at_once_does_not_hold_up_others() -> None:
    seen: list[int] = []
    others_sent = threading.Event()

    def look(_: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        seen.append(request.opaque)
        assert others_sent.wait(10)  # so that both are there when the loop goes on
        return RemotingCommand.response_to(request, 0)

    flood = b"".join(
        encode_frame(RemotingCommand(BROKEN, opaque=number)) for number in range(1, 1_501)
    )
    with Served() as served, served.client() as greedy, served.client() as other:
        served.server.register([BROKEN], look)
        served.server.register([WORK], lambda _, request: answer_with(request, len(seen)))
        greedy.send_bytes(flood)
        wait_until(lambda: seen, "the first request")
        other.send(RemotingCommand(WORK))
        others_sent.set()
        before = int(other.receive().remark or "")
        assert before < 1_000
        wait_until(lambda: len(seen) == 1_500, "all requests")
        assert seen == list(range(1, 1_501))


def answer_with(request: RemotingCommand, number: int) -> RemotingCommand:
    return RemotingCommand.response_to(request, 0, str(number))


def test_one_way_requests_are_worked_on_and_not_answered() -> None:
    worked = threading.Semaphore(0)

    def work(_: ServerConnection, request: RemotingCommand) -> RemotingCommand | None:
        worked.release()
        return RemotingCommand.response_to(request, 0) if request.body else None

    with Served(max_under_way=2) as served, served.client() as client:
        served.pool(WORK, work, capacity=100)
        for i in range(20):  # far more than may be in progress: each is counted out again
            client.send(oneway(WORK, b"x" * (i % 2)))
            client.send(oneway(ECHO))
            client.send(oneway(9999))
        assert works(client)
        for _ in range(20):
            assert worked.acquire(timeout=5)


def test_answers_may_come_later_from_any_thread() -> None:
    with Served() as served, served.client() as client:
        for i in range(50):
            client.send(RemotingCommand(HELD, body=b"%d" % i))
        wait_until(lambda: len(served.held.requests) == 50, "all are held")
        threads = [
            threading.Thread(target=served.server.answer, args=(each, request, echo(each, request)))
            for each, request in served.held.requests
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {client.receive().body for _ in range(50)} == {b"%d" % i for i in range(50)}


def test_a_gate_refuses_requests_before_they_are_worked_on() -> None:
    def gate(_: ServerConnection, request: RemotingCommand) -> RemotingCommand | None:
        if request.body == b"bug":
            raise ValueError("no signature")
        if request.body == b"closed":
            return RemotingCommand.response_to(request, ResponseCode.NO_PERMISSION, "not you")
        return None

    with Served() as served, served.client() as client:
        served.server.use_gate(gate)
        answer = client.request(ECHO, b"closed")
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "not you")
        assert client.request(ECHO, b"bug").code == ResponseCode.SYSTEM_ERROR
        assert works(client)
        served.server.use_gate(None)
        assert client.request(ECHO, b"closed").code == ResponseCode.SUCCESS


# Pools.


def test_a_full_pool_is_busy_and_another_goes_on() -> None:
    gate = Gate()
    with echoing() as (served, friend), served.client() as client:
        pool = served.pool(WORK, gate, threads=1, capacity=2)
        served.pool(BROKEN, echo)
        client.send(RemotingCommand(WORK))
        assert gate.begun.acquire(timeout=5)
        client.send(RemotingCommand(WORK))
        client.send(RemotingCommand(WORK))
        wait_until(lambda: pool.waiting == 2, "two wait")
        answer = friend.request(WORK)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark == f"2 requests wait for pool-{WORK}: try again"
        assert friend.request(BROKEN).code == ResponseCode.SUCCESS
        friend.send(oneway(WORK))  # dropped, without an answer
        assert works(friend)
        gate.open()
        assert [client.receive().code for _ in range(3)] == [0, 0, 0]


def test_others_do_not_wait_for_what_a_client_left_that_is_gone() -> None:
    """Its one-way requests are executed nevertheless."""
    gate, worked = Gate(), []

    def work(connection: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        worked.append(request.body)
        return gate(connection, request)

    with echoing(max_under_way_bytes=100_000) as (served, friend):
        pool = served.pool(WORK, work, capacity=100)
        with served.client() as client:
            client.send(RemotingCommand(WORK, body=b"first"))
            assert gate.begun.acquire(timeout=5)
            for _ in range(9):
                client.send(RemotingCommand(WORK, body=b"left" * 2500))
            client.send(oneway(WORK, b"one-way"))
            wait_until(lambda: pool.waiting == 10, "all wait")
        served.wait_ended(1)
        gate.open()
        assert friend.request(WORK, b"friend").code == ResponseCode.SUCCESS
        assert worked == [b"first", b"one-way", b"friend"]
        big = b"x" * 90_000  # there is room: the leftovers no longer count
        assert friend.request(WORK, big).code == ResponseCode.SUCCESS
        assert friend.request(WORK).code == ResponseCode.SUCCESS


def test_a_pool_that_was_stopped_is_busy() -> None:
    with Served() as served, served.client() as client:
        served.pool(WORK, echo).shutdown()
        assert client.request(WORK).code == ResponseCode.SYSTEM_BUSY


# Hostile clients.


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),  # the begin of TLS
        struct.pack(">iI", -1, 0),
        struct.pack(">iI", 1 << 24, 0),
        struct.pack(">iI", 10, 100),
        struct.pack(">iI", 8, 4) + b"{no}",
        struct.pack(">iI", 8, 5 << 24 | 4) + b"none",
        struct.pack(">iI", 8, 1 << 24 | 4) + b"none",
    ],
)
def test_garbage_ends_its_connection_only(garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with echoing() as (served, _), served.client() as client:
        client.send_bytes(garbage)
        client.wait_end()
        served.wait_ended(1)
        assert [each.address for each in served.ended] == [client.address]
        warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert len(warnings) == 1
        assert client.address in warnings[0].getMessage()


def test_a_flood_of_garbage_does_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    with echoing() as (served, friend):
        for _ in range(100):
            with served.client() as client:
                client.send_bytes(b"\xff" * 1000)
            assert works(friend)
        served.wait_ended(100)
        served.wait_connections(1)
    assert caplog.text.count("is not a frame") == 1


def half_a_frame(held_bytes: int) -> bytes:
    return encode_frame(RemotingCommand(ECHO, body=bytes(held_bytes)))[:-1]


def test_half_frames_of_many_clients_are_bounded_and_the_largest_goes() -> None:
    with echoing(max_held_bytes=1_000_000) as (served, friend), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(served.client()) for _ in range(9)]
        for client in clients[1:]:
            client.send_bytes(half_a_frame(80_000))
        clients[0].send_bytes(half_a_frame(600_000))
        clients[0].wait_end()
        served.wait_ended(1)
        assert works(friend)
        for client in clients[1:]:  # the half frame is completed
            client.send_bytes(b"\0")
            assert len(client.receive().body) == 80_000
        clients[1].send_bytes(half_a_frame(900_000))  # there is room again
        clients[1].send_bytes(b"\0")
        assert len(clients[1].receive().body) == 900_000


def test_headers_without_their_bodies_are_bounded_too() -> None:
    fields = {f"name{i}": "" for i in range(2_000)}  # 0.4 MB of memory
    frame = encode_frame(RemotingCommand(ECHO, fields, b"body"))[:-1]
    with echoing(max_held_bytes=1_000_000) as (served, _), contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(served.client()).send_bytes(frame)
        served.wait_ended(3)
        served.wait_connections(3)


def test_bytes_of_clients_that_go_are_not_counted() -> None:
    with echoing(max_held_bytes=100_000) as (served, _):
        for number in range(1, 6):
            with served.client() as client:
                client.send_bytes(half_a_frame(80_000))
                served.wait_connections(2)
            served.wait_ended(number)


def test_a_client_that_does_not_read_its_answers_is_read_no_more() -> None:
    taken = 0

    def long_answer(_: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        nonlocal taken
        taken += 1
        return RemotingCommand.response_to(request, 0, body=bytes(1 << 20))

    with echoing() as (served, friend), served.client(receive_buffer=4096) as client:
        served.server.register([BROKEN], long_answer)
        frame = encode_frame(RemotingCommand(BROKEN, body=bytes(100_000)))
        client.send_bytes(frame)
        assert _sent_until_full(client, frame) < 500
        assert works(friend)
        before = taken
        assert before < 60
        for _ in range(before + 1):  # the client reads again, and is read again
            assert len(client.receive().body) == 1 << 20


def _sent_until_full(client: RawClient, frame: bytes) -> int:
    sent = 0
    client._socket.settimeout(0.3)
    with contextlib.suppress(socket.timeout):
        while sent < 500:
            client.send_bytes(frame)
            sent += 1
    client._socket.settimeout(10)
    return sent


def test_a_client_that_leaves_too_many_answers_is_disconnected() -> None:
    limits = {"max_unread_bytes": 5 << 20}
    with echoing(**limits) as (served, _), served.client(receive_buffer=4096) as client:
        for _ in range(40):
            client.send(RemotingCommand(HELD))
        wait_until(lambda: len(served.held.requests) == 40, "all are held")
        for connection, request in served.held.requests:
            response = RemotingCommand.response_to(request, 0, body=bytes(1 << 20))
            served.server.answer(connection, request, response)
        served.wait_ended(1)
        assert served.ended[0].reason == "it does not read its answers"


def test_answers_that_many_clients_leave_are_bounded_and_the_largest_goes() -> None:
    limits = {"max_all_unread_bytes": 16 << 20}
    with echoing(**limits) as (served, _), contextlib.ExitStack() as stack:
        for number in range(6):
            stack.enter_context(served.client(receive_buffer=4096)).send(RemotingCommand(HELD))
            wait_until(lambda n=number: len(served.held.requests) > n, "it is held")  # type: ignore[misc]
        for each in (14, 6, 6, 6, 6, 6):
            connection, request = served.held.requests.pop(0)
            for _ in range(each):  # bytes that the system takes are not counted
                response = RemotingCommand.response_to(request, 0, body=bytes(1 << 20))
                served.server.answer(connection, request, response)
                served.server.notify(connection, RemotingCommand(40))
        served.wait_ended(1)
        wait_until(lambda: served.server.connections < 7, "some are gone")
        assert {each.reason for each in served.ended} == {"it does not read its answers"}
        assert len(served.ended) < 6


def test_too_many_clients_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    with echoing(max_connections=3) as (served, friend):
        with served.client() as second, served.client() as third:
            assert works(second)
            assert works(third)
            for _ in range(5):
                with served.client() as late:
                    late.wait_end()
            assert works(friend)
            assert works(second)
        served.wait_connections(1)
        with served.client() as client:
            assert works(client)
    assert caplog.text.count("more are refused") == 1


def test_requests_beyond_those_under_way_wait_in_the_network() -> None:
    with echoing(max_under_way=10) as (served, _), served.client() as client:
        commands = [RemotingCommand(HELD, body=bytes(100_000)) for _ in range(100)]
        sender = threading.Thread(target=lambda: [client.send(each) for each in commands])
        sender.start()
        wait_until(lambda: len(served.held.requests) >= 10, "ten are held")
        with contextlib.suppress(AssertionError):
            wait_until(lambda: len(served.held.requests) > 15, "more than a few", timeout_s=0.1)
        assert len(served.held.requests) <= 15  # those that came in one piece with the tenth
        for number in range(100):
            wait_until(lambda n=number: len(served.held.requests) > n, "the next is read")  # type: ignore[misc]
            connection, request = served.held.requests[number]
            served.server.answer(connection, request, RemotingCommand.response_to(request, 0))
        assert {client.receive().code for _ in range(100)} == {0}
        sender.join()


def test_bytes_of_requests_under_way_are_bounded() -> None:
    with echoing(max_under_way_bytes=1_000_000) as (served, _), served.client() as client:
        for _ in range(4):
            client.send(RemotingCommand(HELD, body=bytes(400_000)))
        busy = [client.receive() for _ in range(2)]
        assert {each.code for each in busy} == {ResponseCode.SYSTEM_BUSY}
        assert busy[0].remark is not None
        assert "1000000 bytes" in busy[0].remark
        for connection, request in served.held.requests:
            served.server.answer(connection, request, RemotingCommand.response_to(request, 0))
        assert [client.receive().code for _ in range(2)] == [0, 0]
        assert works(client)


def test_an_idle_client_is_disconnected_and_a_busy_one_is_not() -> None:
    with Served(max_idle_s=0.15) as served, served.client() as idle, served.client() as busy:
        while served.server.connections == 2 or not served.ended:
            assert works(busy)
            time.sleep(0.01)
        idle.wait_end()
        assert [each.address for each in served.ended] == [idle.address]
        assert "0.15 s" in served.ended[0].reason


def test_an_idle_client_that_reads_nothing_is_disconnected_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rmqnet.remoting.server_connection._FLUSH_SECONDS", 0.05)
    with Served(max_idle_s=0.2) as served, served.client(receive_buffer=4096) as client:
        client.send(RemotingCommand(HELD))
        wait_until(lambda: served.held.requests, "it is held")
        connection, request = served.held.requests[0]
        response = RemotingCommand.response_to(request, 0, body=bytes(15 << 20))
        served.server.answer(connection, request, response)
        served.wait_ended(1)


def test_a_client_that_dies_is_forgotten_and_its_answers_go_nowhere() -> None:
    with echoing() as (served, _):
        client = served.client()
        client.send(RemotingCommand(HELD, body=b"x"))
        wait_until(lambda: served.held.requests, "it is held")
        connection, request = served.held.requests[0]
        linger = struct.pack("ii", 1, 0)
        client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # the client resets
        client.close()
        served.wait_ended(1)
        assert served.ended == [connection]
        assert not connection.is_open
        served.server.answer(connection, request, echo(connection, request))
        served.server.notify(connection, RemotingCommand(40))
        served.server.disconnect(connection, "gone")


def test_a_listener_that_fails_does_not_keep_others_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: ServerConnection) -> None:
        raise ValueError("bug")

    with Served() as served:
        heard: list[ServerConnection] = []
        served.server.on_close(fail)
        served.server.on_close(heard.append)
        with served.client() as client:
            assert works(client)
        wait_until(lambda: heard, "the second hears")
    assert "for the end of the connection" in caplog.text


# Requests of the server.


def connection_of(served: Served, client: RawClient) -> ServerConnection:
    client.send(RemotingCommand(HELD))
    wait_until(lambda: served.held.requests, "it is held")
    return served.held.connection


def test_a_client_is_told_and_asked() -> None:
    with Served() as served, served.client() as client:
        connection = connection_of(served, client)
        served.server.notify(connection, RemotingCommand(40, {"consumerGroup": "g"}))
        told = client.receive()
        assert (told.code, told.is_oneway, told.ext_fields) == (40, True, {"consumerGroup": "g"})
        answers: list[RemotingCommand] = []
        ask = threading.Thread(
            target=lambda: answers.append(
                served.server.ask(connection, RemotingCommand(307, flag=2), 5)
            )
        )
        ask.start()
        asked = client.receive()
        assert (asked.code, asked.is_oneway, asked.is_response) == (307, False, False)
        assert asked.opaque != told.opaque
        wrong = RemotingCommand(0, body=b"of another", flag=1, opaque=asked.opaque + 7)
        client.send_bytes(encode_frame(wrong))  # an answer without a request
        client.send_bytes(encode_frame(RemotingCommand(0, {}, b"me", None, asked.opaque, 1)))
        ask.join()
        assert [each.body for each in answers] == [b"me"]


def test_a_client_that_does_not_answer_in_time_stays_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # After such a silence a client takes a server for gone; a server does not do so.
    monkeypatch.setattr("rmqnet.remoting.remoting_connection._MIN_SILENCE_SECONDS", 0.01)
    with Served() as served, served.client() as client:
        connection = connection_of(served, client)
        with pytest.raises(RemotingTimeoutError, match="did not answer GET_CONSUMER_RUNNING_INFO"):
            served.server.ask(connection, RemotingCommand(307), 0.05)
        late = client.receive()
        client.send_bytes(encode_frame(RemotingCommand(0, opaque=late.opaque, flag=1)))
        assert works(client)


def test_a_client_that_goes_fails_what_it_was_asked() -> None:
    with Served() as served:
        client = served.client()
        connection = connection_of(served, client)

        def go() -> None:
            client.receive()  # with bytes unread the system would call it a reset
            client.close()

        going = threading.Thread(target=go)
        going.start()
        with pytest.raises(
            RemotingConnectError,
            match="GET_CONSUMER_RUNNING_INFO was answered: the client closed it",
        ):
            served.server.ask(connection, RemotingCommand(307), 5)
        going.join()
        with pytest.raises(RemotingConnectError, match=f"{connection.address} is not connected"):
            served.server.ask(connection, RemotingCommand(307), 5)


def test_what_is_too_long_for_a_client_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    with Served(max_frame_bytes=1000) as served, served.client() as client:
        connection = connection_of(served, client)
        served.server.notify(connection, RemotingCommand(40, body=bytes(2000)))
        with pytest.raises(RemotingFormatError):
            served.server.ask(connection, RemotingCommand(307, body=bytes(2000)), 1)
        assert works(client)
    assert f"cannot send to {connection.address}" in caplog.text


# Start and stop.


def test_stop_ends_connections_and_what_waits() -> None:
    gate = Gate()
    served = Served()
    served.pool(WORK, gate)
    with served, served.client() as client, served.client() as other:
        connection = connection_of(served, client)
        other.send(RemotingCommand(WORK))
        assert gate.begun.acquire(timeout=5)
        errors: list[Exception] = []

        def ask() -> None:
            try:
                served.server.ask(connection, RemotingCommand(307), 10)
            except RemotingConnectError as err:
                errors.append(err)

        asking = threading.Thread(target=ask)
        asking.start()
        assert client.receive().code == 307
        served.server.shutdown()
        asking.join()
        assert len(errors) == 1
        client.wait_end()
        other.wait_end()
        gate.open()  # its answer goes nowhere
        served.server.notify(connection, RemotingCommand(40))
        with pytest.raises(RemotingConnectError, match="not connected"):
            served.server.ask(connection, RemotingCommand(307), 1)
        served.server.shutdown()
        with pytest.raises(ConnectionRefusedError):
            served.client()


def test_stop_does_not_wait_for_clients_that_do_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqnet.remoting.remoting_server._CLOSE_SECONDS", 0.1)
    with Served() as served, served.client(receive_buffer=4096) as client:
        client.send(RemotingCommand(HELD))
        wait_until(lambda: served.held.requests, "it is held")
        connection, request = served.held.requests[0]
        response = RemotingCommand.response_to(request, 0, body=bytes(15 << 20))
        served.server.answer(connection, request, response)
        stopping = threading.Thread(target=served.server.shutdown)
        stopping.start()
        stopping.join(30)
        assert not stopping.is_alive()
        assert served.ended == [connection]


def test_answers_that_were_given_are_sent_before_the_end() -> None:
    with Served() as served, served.client() as client:
        for _ in range(20):
            client.send(RemotingCommand(HELD, body=b"x"))
        wait_until(lambda: len(served.held.requests) == 20, "all are held")
        for connection, request in served.held.requests:
            served.server.answer(connection, request, echo(connection, request))
        served.server.shutdown()
        assert [client.receive().body for _ in range(20)] == [b"x"] * 20
        client.wait_end()


def test_it_starts_again_after_a_stop() -> None:
    served = Served()
    with served, served.client() as client:
        connection = connection_of(served, client)
    _, request = served.held.requests[0]
    served.server.answer(connection, request, echo(connection, request))  # too late
    with served, served.client() as client:
        assert works(client)
        gate = Gate()
        gate.open()
        served.pool(WORK, gate)
        assert client.request(WORK, b"x").body == b"x"


@pytest.mark.parametrize("host", ["127.0.0.1", "256.1.1.1"])
def test_an_address_that_cannot_be_listened_at_is_named(host: str) -> None:
    with Served() as served:
        second = RemotingServer("second")
        with pytest.raises(ClientError, match=f"second cannot listen at {host}:{served.port}: "):
            second.start(host, served.port)
        second.shutdown()


# TLS.


def encrypted(ca_file: str | None = None, **limits: Any) -> Served:
    return Served(ServerTls(SERVER, SERVER_KEY, ca_file=ca_file).ssl_context(), **limits)


def test_tls_is_spoken() -> None:
    with encrypted() as served, served.client(tls=TlsConfig(CA).ssl_context()) as client:
        assert works(client)
        assert len(client.request(ECHO, bytes(5_000_000)).body) == 5_000_000


def test_certificates_of_clients_are_asked_for() -> None:
    known = TlsConfig(CA, CLIENT, CLIENT_KEY, "opensesame").ssl_context()
    with encrypted(CA) as served:
        with served.client(tls=known) as client:
            assert works(client)
        with (
            pytest.raises((ssl.SSLError, EOFError)),
            served.client(tls=TlsConfig(CA).ssl_context()) as stranger,
        ):
            works(stranger)


def test_others_are_served_while_handshakes_hang_or_fail() -> None:
    known = TlsConfig(CA).ssl_context()
    with encrypted(handshake_timeout_s=0.2) as served, served.client(tls=known) as friend:
        with served.client() as silent, served.client() as plain:
            plain.send_bytes(encode_frame(RemotingCommand(ECHO)))
            plain.wait_end()
            assert works(friend)
            silent.wait_end()
        assert works(friend)
        assert served.server.connections == 1


@pytest.mark.parametrize("tls", [TlsConfig(CA), None])
def test_stop_while_clients_come_and_go(tls: TlsConfig | None) -> None:
    context = None if tls is None else tls.ssl_context()
    for _ in range(25):
        stopped = threading.Event()
        with encrypted() if tls else Served() as served:

            def come_and_go(served: Served = served, stopped: threading.Event = stopped) -> None:
                while not stopped.is_set():
                    with contextlib.suppress(OSError, EOFError), served.client(tls=context) as one:
                        works(one)

            clients = [threading.Thread(target=come_and_go) for _ in range(4)]
            for client in clients:
                client.start()
            wait_until(lambda: len(served.ended) >= 3, "some have come and gone")
            served.server.shutdown()
            stopped.set()
            for client in clients:
                client.join(10)
            assert served.server.connections == 0


def test_stop_while_a_handshake_hangs() -> None:
    with encrypted() as served, served.client() as silent:
        silent.send_bytes(b"\x16\x03\x01")
        time.sleep(0.05)  # whether the server begins or not, both must end well
        served.server.shutdown()
        silent.wait_end()


def test_a_client_leaves_while_its_connection_is_closed_here() -> None:
    """asyncio's TLS forgets which connection it belongs to if it is closed twice."""
    known = TlsConfig(CA).ssl_context()
    closed = threading.Event()

    def close_when_it_ends(connection: ServerConnection) -> None:
        transport = connection._transport
        if transport is not None and transport.is_closing():
            connection.close("too late")
            closed.set()
        elif transport is not None:
            asyncio.get_running_loop().call_soon(close_when_it_ends, connection)

    def watch(connection: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        close_when_it_ends(connection)
        return echo(connection, request)

    with encrypted() as served:
        served.server.register([WATCHED], watch)
        with served.client(tls=known) as client:
            client.request(WATCHED)
        served.wait_ended(1)
        assert closed.is_set()
        served.wait_connections(0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"cert_file": "none.pem"}, "none.pem"),
        ({"cert_file": SERVER}, "are not a certificate and its key"),
        ({"cert_file": SERVER, "key_file": CLIENT_KEY, "key_password": "wrong"}, "key_password"),
        ({"cert_file": SERVER, "key_file": SERVER_KEY, "ca_file": "none.pem"}, "ca_file none.pem"),
        ({"cert_file": SERVER, "key_file": SERVER_KEY, "ca_file": SERVER_KEY}, "ca_file"),
    ],
)
def test_files_that_cannot_be_used_are_named(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ClientError, match=named):
        ServerTls(**settings).ssl_context()


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(ServerTls(SERVER, key_password="secret"))


def test_codes_are_those_of_the_protocol() -> None:
    assert ECHO == RequestCode.SEND_MESSAGE
    assert BROKEN == RequestCode.VIEW_MESSAGE_BY_ID


def test_it_may_listen_at_the_port_less_two_as_well() -> None:
    server = RemotingServer("broker")
    server.register((ECHO,), echo)
    port = server.bind("127.0.0.1", 0, vip_channel=True)
    server.serve()
    for each in (port, port - 2):
        with RawClient(each) as client:
            assert client.request(ECHO, b"here").body == b"here"
    server.shutdown()
    for each in (port, port - 2):
        with pytest.raises(ConnectionRefusedError):
            RawClient(each)


def test_both_ports_have_to_be_free() -> None:
    first, second = RemotingServer("first"), RemotingServer("second")
    taken = first.start("127.0.0.1", 0)
    try:
        with pytest.raises(ClientError, match=str(taken)):
            second.bind("127.0.0.1", taken + 2, vip_channel=True)
        with pytest.raises(ConnectionRefusedError):
            RawClient(taken + 2)
    finally:
        first.shutdown()
