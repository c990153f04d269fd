# SPDX-License-Identifier: Apache-2.0
import asyncio
import logging
import time
from unittest.mock import Mock

import pytest

from rmqnet.errors import (
    RemotingConnectError,
    RemotingFormatError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from rmqnet.remoting.acl import AclCredentials, sign
from rmqnet.remoting.codes import RequestCode, ResponseCode, SerializeType
from rmqnet.remoting.remoting_client import RemotingClient, RemotingClientConfig
from rmqnet.remoting.remoting_command import RemotingCommand
from tests.rmqnet.remoting.scripted_server import Peer, ScriptedServer, in_loop, until

QUICK = RemotingClientConfig(min_reconnect_pause_s=0.05, max_reconnect_pause_s=0.2)


def request(number=0, body=b""):
    return RemotingCommand(RequestCode.GET_MIN_OFFSET, {"number": str(number)}, body)


async def ask(client, server, number=0, timeout_s=5.0):
    response = await client.invoke(server.address, request(number), timeout_s)
    return response.ext_fields["number"]


def sent(client, server):
    """Return how many sent requests wait for an answer."""
    connection = client._connections.get(server.address)
    return 0 if connection is None else len(connection.waiting)


class Client(RemotingClient):
    """A client that closes with its block."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()


# One connection, many requests


@in_loop
async def test_first_requests_at_once_share_one_connection():
    async with ScriptedServer() as server, Client() as client:
        answers = await asyncio.gather(*[ask(client, server, n) for n in range(100)])
        assert answers == [str(n) for n in range(100)]
        assert len(server.peers) == 1


@in_loop
async def test_each_address_has_its_own_connection():
    async with ScriptedServer() as one, ScriptedServer() as other, Client() as client:
        assert await ask(client, one, 1) == "1"
        assert await ask(client, other, 2) == "2"
        assert (len(one.peers), len(other.peers)) == (1, 1)


@in_loop
async def test_answers_may_come_in_any_order():
    async def backwards(peer):
        requests = [await peer.read() for _ in range(20)]
        for each in reversed(requests):
            peer.answer(each)
        await peer.wait_end()

    async with ScriptedServer(backwards) as server, Client() as client:
        answers = await asyncio.gather(*[ask(client, server, n) for n in range(20)])
        assert answers == [str(n) for n in range(20)]


@in_loop
async def test_the_answer_may_come_in_any_form_and_with_any_code():
    async def script(peer):
        asked = await peer.read()
        response = RemotingCommand.response_to(asked, ResponseCode.SYSTEM_BUSY, "not now")
        response.serialize_type = SerializeType.ROCKETMQ
        peer.send(response)
        await peer.wait_end()

    async with ScriptedServer(script) as server, Client() as client:
        response = await client.invoke(server.address, request(), 5)
        assert (response.code, response.remark) == (ResponseCode.SYSTEM_BUSY, "not now")


@in_loop
async def test_bodies_of_megabytes_go_both_ways():
    body = bytes(range(256)) * 32_768  # 8 MiB
    async with ScriptedServer() as server, Client() as client:
        work = [client.invoke(server.address, request(n, body), 5) for n in range(3)]
        responses = await asyncio.gather(*work)
        assert [r.ext_fields["number"] for r in responses] == ["0", "1", "2"]
        assert all(r.body == body for r in responses)


@in_loop
async def test_an_oneway_request_is_sent_and_not_waited_for():
    got = []

    async def script(peer):
        got.append(await peer.read())
        await peer.answer_all()

    async with ScriptedServer(script) as server, Client() as client:
        await client.invoke_oneway(server.address, request(1), 5)
        assert await ask(client, server, 2) == "2"
        assert got[0].is_oneway
        assert got[0].ext_fields == {"number": "1"}


@in_loop
async def test_frames_of_one_turn_are_joined():
    """All requests arrive in their order, whether written alone or together."""
    got = []

    async def script(peer):
        got.extend([(await peer.read()).ext_fields["number"] for _ in range(30)])
        await peer.wait_end()

    async with ScriptedServer(script) as server, Client() as client:
        for n in range(30):
            await client.invoke_oneway(server.address, request(n), 5)
        await until(lambda: len(got) == 30)
        assert got == [str(n) for n in range(30)]


# Requests of the server


def server_request(code, opaque=77, oneway=False):
    return RemotingCommand(code, {"asked": "x"}, b"q", opaque=opaque, flag=2 if oneway else 0)


@in_loop
async def test_a_request_of_the_server_may_come_before_the_answer():
    told = []

    async def script(peer):
        asked = await peer.read()
        # The server's numbers are its own: this one is also a number of the client.
        peer.send(server_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, asked.opaque, True))
        peer.answer(asked)
        await peer.wait_end()

    async def note(address, command):
        told.append((address, command.code, command.ext_fields, command.body))

    async with ScriptedServer(script) as server, Client() as client:
        client.register_processor(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, note)
        assert await ask(client, server, 5) == "5"
        await until(lambda: told)
        assert told == [(server.address, 40, {"asked": "x"}, b"q")]


async def asked_by_server(command, processor):
    """Return a client's answer to a server's request; an own request of the client follows."""
    answers = []

    async def script(peer):
        first = await peer.read()
        peer.send(command)
        answers.append(await peer.read())
        peer.answer(first)
        await peer.wait_end()

    async with ScriptedServer(script) as server, Client() as client:
        if processor is not None:
            client.register_processor(command.code, processor)
        task = asyncio.ensure_future(ask(client, server, 1))
        if command.is_oneway:
            await until(lambda: sent(client, server) == 1)
            await client.invoke_oneway(server.address, request(2), 5)
        await task
    return answers


@in_loop
async def test_a_processor_answers():
    async def answer(_, command):
        return RemotingCommand.response_to(command, ResponseCode.SUCCESS, body=b"here")

    (response,) = await asked_by_server(server_request(307), answer)
    assert (response.code, response.opaque, response.body) == (0, 77, b"here")
    assert response.is_response


@in_loop
async def test_a_processor_that_makes_a_new_command_answers_as_well():
    async def answer(_, __):
        return RemotingCommand(ResponseCode.SUCCESS, body=b"here")

    (response,) = await asked_by_server(server_request(307), answer)
    assert (response.opaque, response.is_response) == (77, True)


@in_loop
async def test_an_unknown_request_of_the_server_is_refused():
    (response,) = await asked_by_server(server_request(9999), None)
    assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (response.opaque, response.remark) == (77, "request type 9999 not supported")


@in_loop
async def test_a_processor_that_fails_says_so(caplog):
    async def fail(_, __):
        raise LookupError("no such consumer")

    (response,) = await asked_by_server(server_request(307), fail)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == "LookupError: no such consumer"
    assert "cannot process a request" in caplog.text


@pytest.mark.parametrize("is_known", [True, False])
def test_an_oneway_request_of_the_server_is_never_answered(is_known):
    async def answer(_, command):
        return RemotingCommand.response_to(command, ResponseCode.SUCCESS)

    @in_loop
    async def run():
        command = server_request(307, oneway=True)
        (following,) = await asked_by_server(command, answer if is_known else None)
        assert following.ext_fields == {"number": "2"}  # not the answer

    run()


@in_loop
async def test_a_slow_processor_holds_nothing_up():
    release = asyncio.Event()

    async def wait(_, command):
        await release.wait()
        return RemotingCommand.response_to(command, ResponseCode.SUCCESS)

    got = []

    async def script(peer):
        peer.answer(await peer.read())
        peer.send(server_request(307))
        peer.answer(await peer.read())
        got.append(await peer.read())
        await peer.wait_end()

    async with ScriptedServer(script) as server, Client() as client:
        client.register_processor(307, wait)
        assert [await ask(client, server, n) for n in range(2)] == ["0", "1"]
        release.set()
        await until(lambda: got)
        assert got[0].opaque == 77


@in_loop
async def test_a_server_that_asks_too_much_is_told_so():
    release = asyncio.Event()
    answers = []

    async def wait(_, command):
        await release.wait()
        return RemotingCommand.response_to(command, ResponseCode.SUCCESS)

    async def script(peer):
        peer.answer(await peer.read())
        for opaque in range(4):
            peer.send(server_request(307, opaque))
        answers.append(await peer.read())
        release.set()
        answers.extend([await peer.read() for _ in range(3)])
        await peer.wait_end()

    config = RemotingClientConfig(max_waiting_requests=3)
    async with ScriptedServer(script) as server, Client(config) as client:
        client.register_processor(307, wait)
        assert await ask(client, server) == "0"
        await until(lambda: len(answers) == 4)
    assert [(a.opaque, a.code) for a in answers] == [
        (3, ResponseCode.SYSTEM_BUSY),
        *[(opaque, ResponseCode.SUCCESS) for opaque in range(3)],
    ]


# Time


async def answer_once(peer):
    peer.answer(await peer.read())
    await peer.wait_end()


@in_loop
async def test_no_answer_in_time_is_an_error_that_names_all():
    async with ScriptedServer(answer_once) as server, Client() as client:
        assert await ask(client, server) == "0"
        waited = []
        asyncio.get_running_loop().call_later(0.04, waited.append, "0.04 s")
        with pytest.raises(RemotingTimeoutError) as caught:
            await ask(client, server, timeout_s=0.05)
        assert waited == ["0.04 s"]
        assert str(caught.value) == f"{server.address} did not answer GET_MIN_OFFSET within 0.05 s"


@in_loop
async def test_each_request_has_its_own_deadline():
    async with ScriptedServer(answer_once) as server, Client() as client:
        assert await ask(client, server) == "0"
        ended = []

        async def one(timeout_s):
            with pytest.raises(RemotingTimeoutError):
                await ask(client, server, timeout_s=timeout_s)
            ended.append(timeout_s)

        await asyncio.gather(*[one(t) for t in (0.09, 0.03, 0.06)])
        assert ended == [0.03, 0.06, 0.09]


@in_loop
async def test_late_answers_are_ignored():
    async def script(peer):
        peer.answer(await peer.read())
        first = await peer.read()
        second = await peer.read()
        peer.answer(first)
        peer.answer(second)
        await peer.answer_all()

    async with ScriptedServer(script) as server, Client() as client:
        assert await ask(client, server, 0) == "0"
        with pytest.raises(RemotingTimeoutError):
            await ask(client, server, 1, timeout_s=0.02)
        assert await ask(client, server, 2) == "2"
        assert await ask(client, server, 3) == "3"
        assert len(server.peers) == 1


@in_loop
async def test_a_server_that_is_silent_for_the_whole_time_is_connected_anew():
    async with ScriptedServer(answer_once, Peer.answer_all) as server, Client(QUICK) as client:
        assert await ask(client, server) == "0"
        with pytest.raises(RemotingTimeoutError):
            await ask(client, server, 1, timeout_s=1.1)
        await until(lambda: server.peers[0].ended)
        assert await ask(client, server, 2) == "2"
        assert len(server.peers) == 2


@in_loop
async def test_what_is_sent_again_at_once_takes_another_connection_than_the_silent_one():
    async with ScriptedServer(answer_once, Peer.answer_all) as server, Client(QUICK) as client:
        assert await ask(client, server) == "0"
        again = []

        def send_again(response, error):
            assert isinstance(error, RemotingTimeoutError)
            again.append(invoked(client, server.address, request(2), 5))

        client.invoke_then(server.address, request(1), 1.1, send_again, is_last=True)
        await until(lambda: again)
        assert (await again[0]).ext_fields["number"] == "2"
        assert len(server.peers) == 2


@in_loop
async def test_one_slow_answer_among_others_does_not_end_the_connection():
    async def script(peer):
        await peer.read()  # never answered
        await peer.answer_all()

    async with ScriptedServer(script) as server, Client() as client:
        slow = asyncio.ensure_future(ask(client, server, 0, timeout_s=1.2))
        await until(lambda: sent(client, server) == 1)
        while not slow.done():
            await ask(client, server, 1)
            await asyncio.sleep(0.01)
        with pytest.raises(RemotingTimeoutError):
            await slow
        assert len(server.peers) == 1


@in_loop
async def test_a_request_that_nobody_waits_for_any_more_harms_nothing():
    async with ScriptedServer() as server, Client() as client:
        await ask(client, server)
        task = asyncio.ensure_future(ask(client, server, 1))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await ask(client, server, 2) == "2"


@in_loop
async def test_one_command_may_be_under_way_twice():
    async def script(peer):
        await peer.read()
        await peer.answer_all()

    async with ScriptedServer(script) as server, Client() as client:
        command = request(1)
        first = asyncio.ensure_future(client.invoke(server.address, command, 0.2))
        await until(lambda: sent(client, server) == 1)
        response = await client.invoke(server.address, command, 5)
        assert response.ext_fields == {"number": "1"}
        with pytest.raises(RemotingTimeoutError):
            await first
        assert sent(client, server) == 0


@in_loop
async def test_a_command_that_was_sent_one_way_may_be_asked_afterwards():
    async with ScriptedServer() as server, Client() as client:
        command = request(1)
        await client.invoke_oneway(server.address, command, 5)
        response = await client.invoke(server.address, command, 5)
        assert response.ext_fields == {"number": "1"}


# Ends of connections


@in_loop
async def test_what_waits_fails_at_once_when_the_connection_ends():
    async def script(peer):
        for _ in range(3):
            await peer.read()

    async with ScriptedServer(script) as server, Client() as client:
        work = [ask(client, server, n, timeout_s=3600) for n in range(3)]
        for error in await asyncio.gather(*work, return_exceptions=True):
            assert isinstance(error, RemotingConnectError)
            assert str(error) == (
                f"the connection to {server.address} ended before GET_MIN_OFFSET was answered: "
                "the server closed it"
            )


@in_loop
async def test_half_an_answer_is_no_answer():
    async def script(peer):
        await peer.read()
        peer.writer.write(b"\x00\x00\x01\x00\x00\x00\x00\x80{")

    async with ScriptedServer(script) as server, Client() as client:
        with pytest.raises(RemotingConnectError, match="the server closed it"):
            await ask(client, server)


@in_loop
async def test_what_is_no_frame_ends_the_connection():
    async def script(peer):
        await peer.read()
        peer.writer.write(b"HTTP/1.1 400 Bad Request\r\n")
        await peer.wait_end()

    async with ScriptedServer(script, Peer.answer_all) as server, Client() as client:
        with pytest.raises(RemotingConnectError, match="that is not a frame, at byte 0"):
            await ask(client, server)
        assert await ask(client, server, 2) == "2"


@in_loop
async def test_ends_are_told():
    ended = []

    async def script(peer):
        peer.answer(await peer.read())

    async with ScriptedServer(script) as server, Client() as client:
        client.on_close(ended.append)
        await ask(client, server)
        await until(lambda: ended)
        assert ended == [server.address]


@in_loop
async def test_a_listener_that_fails_harms_nothing(caplog):
    ended = []

    async def script(peer):
        peer.answer(await peer.read())

    async with ScriptedServer(script) as server, Client() as client:
        client.on_close(lambda _: 1 // 0)
        client.on_close(ended.append)
        await ask(client, server)
        await until(lambda: ended)
    assert "ZeroDivisionError" in caplog.text


@in_loop
async def test_a_connection_that_ended_after_answers_is_made_again_at_once():
    async def once(peer):
        peer.answer(await peer.read())

    async with ScriptedServer(once) as server, Client() as client:
        for n in range(5):
            assert await ask(client, server, n) == str(n)
            await until(lambda: not client._connections)
        assert len(server.peers) == 5


@in_loop
async def test_a_dead_address_is_not_hammered():
    async with ScriptedServer() as server:
        address = server.address
    async with Client(QUICK) as client:
        with pytest.raises(RemotingConnectError, match=f"cannot connect to {address}: "):
            await client.invoke(address, request(), 1)
        with pytest.raises(RemotingConnectError, match=r"for another 0\.\d s after 1 failed"):
            await client.invoke(address, request(), 1)


@in_loop
async def test_a_server_that_comes_back_is_found_again():
    async with ScriptedServer() as server:
        port = server.port
    async with Client(QUICK) as client:
        attempts = 0
        begin = time.monotonic()
        while time.monotonic() - begin < 0.5:
            with pytest.raises(RemotingConnectError) as caught:
                await client.invoke(f"127.0.0.1:{port}", request(), 1)
            attempts += "cannot connect" in str(caught.value)
            await asyncio.sleep(0.001)
        assert 2 <= attempts <= 5  # at 0, 0.05, 0.15, 0.35, and not before 0.55
        async with ScriptedServer(port=port) as server:
            while True:
                try:
                    assert await ask(client, server, 4) == "4"
                    break
                except RemotingConnectError:
                    await asyncio.sleep(0.01)


@in_loop
async def test_a_server_that_closes_each_connection_without_an_answer_is_left_alone():
    async def nothing(peer):
        await peer.read()

    async with ScriptedServer(nothing) as server, Client(QUICK) as client:
        with pytest.raises(RemotingConnectError, match="the server closed it"):
            await ask(client, server)
        with pytest.raises(
            RemotingConnectError, match="it closed the connection without an answer"
        ):
            await ask(client, server)
        assert len(server.peers) == 1


@in_loop
async def test_an_idle_connection_is_closed_and_made_again():
    config = RemotingClientConfig(max_idle_s=0.05)
    async with ScriptedServer() as server, Client(config) as client:
        assert await ask(client, server, 1) == "1"
        await until(lambda: server.peers[0].ended)
        assert await ask(client, server, 2) == "2"
        assert len(server.peers) == 2


@in_loop
async def test_a_connection_with_a_waiting_request_is_not_idle():
    config = RemotingClientConfig(max_idle_s=0.03)

    async def script(peer):
        asked = await peer.read()
        await asyncio.sleep(0.15)
        peer.answer(asked)
        await peer.wait_end()

    async with ScriptedServer(script) as server, Client(config) as client:
        assert await ask(client, server, 1) == "1"


@in_loop
async def test_requests_at_the_moment_of_the_idle_close_are_answered():
    config = RemotingClientConfig(max_idle_s=0.004)
    async with ScriptedServer() as server, Client(config) as client:
        for n in range(60):
            assert await ask(client, server, n) == str(n)
            await asyncio.sleep(0.0005 * (n % 20))
        assert len(server.peers) > 1


# Servers that go away


@in_loop
async def test_a_refused_request_is_sent_again_by_a_new_connection():
    waiting = asyncio.Event()

    async def leaving(peer):
        slow = await peer.read()
        refused = await peer.read()
        peer.answer(refused, ResponseCode.GO_AWAY, "please go away")
        await waiting.wait()
        peer.answer(slow)
        await peer.wait_end()

    async with ScriptedServer(leaving, Peer.answer_all) as server, Client() as client:
        slow = asyncio.ensure_future(ask(client, server, 1))
        await until(lambda: sent(client, server) == 1)
        assert await ask(client, server, 2) == "2"
        assert len(server.peers) == 2
        assert not server.peers[0].ended  # a request waits there
        waiting.set()
        assert await slow == "1"
        await until(lambda: server.peers[0].ended)
        assert await ask(client, server, 3) == "3"
        assert len(server.peers) == 2


@in_loop
async def test_a_request_is_refused_twice_at_most():
    async def leaving(peer):
        peer.answer(await peer.read(), ResponseCode.GO_AWAY)
        await peer.wait_end()

    async with ScriptedServer(leaving) as server, Client() as client:
        with pytest.raises(RemotingConnectError, match="refused GET_MIN_OFFSET twice"):
            await ask(client, server)
        assert len(server.peers) == 2


# Limits


@in_loop
async def test_too_many_waiting_requests_are_refused():
    config = RemotingClientConfig(max_waiting_requests=3)
    async with ScriptedServer(Peer.wait_end) as server, Client(config) as client:
        work = [asyncio.ensure_future(ask(client, server, n, 1)) for n in range(3)]
        await until(lambda: sent(client, server) == 3)
        with pytest.raises(RemotingTooMuchRequestError, match="3 requests wait"):
            await ask(client, server)
        for task in work:
            task.cancel()


@in_loop
async def test_a_server_that_takes_nothing_does_not_fill_the_memory():
    async def deaf(peer):
        peer.writer.transport.pause_reading()
        await asyncio.Event().wait()

    async with ScriptedServer(deaf) as server, Client() as client:
        body = bytes(4 << 20)
        work = [client.invoke_oneway(server.address, request(body=body), 0.2) for _ in range(20)]
        results = await asyncio.gather(*work, return_exceptions=True)
        assert {type(result) for result in results} == {type(None), RemotingTooMuchRequestError}
        with pytest.raises(RemotingTooMuchRequestError, match="reads nothing"):
            await client.invoke(server.address, request(body=body), 0.05)


@in_loop
async def test_requests_stay_in_order_while_the_connection_is_made():
    seen = []
    async with ScriptedServer(noting(seen)) as server, Client() as client:
        work = [invoked(client, server.address, request(1), 5)]
        while server.address not in client._connections:
            await asyncio.sleep(0)
        work.append(invoked(client, server.address, request(2), 5))
        await asyncio.gather(*work)
        assert seen == ["1", "2"]


@in_loop
async def test_requests_stay_in_order_when_a_server_takes_some_again():
    go, seen = asyncio.Event(), []

    async def slow(peer):
        peer.writer.transport.pause_reading()
        await go.wait()
        peer.writer.transport.resume_reading()
        await noting(seen)(peer)

    async with ScriptedServer(slow) as server, Client() as client:
        body = bytes(4 << 20)
        work = [invoked(client, server.address, request(n, body), 9) for n in range(10)]
        await until(
            lambda: client._connections and not client._connections[server.address].is_writable
        )
        connection = client._connections[server.address]
        go.set()
        while not connection.is_writable:
            await asyncio.sleep(0)
        work.append(invoked(client, server.address, request(10), 9))
        await asyncio.gather(*work)
        assert seen == [str(n) for n in range(11)]


@in_loop
async def test_requests_of_a_turn_are_written_together_and_the_last_one_now():
    seen = []
    async with ScriptedServer(noting(seen)) as server, Client() as client:
        await client.invoke(server.address, request(0), 5)
        connection = client._connections[server.address]
        connection._transport = transport = Mock(wraps=connection._transport)
        work = [invoked(client, server.address, request(n), 5, is_last=False) for n in range(1, 4)]
        assert transport.write.call_count == 1  # the first is not kept waiting
        await asyncio.sleep(0)
        assert transport.write.call_count == 2
        work.append(invoked(client, server.address, request(4), 5, is_last=False))
        work.append(invoked(client, server.address, request(5), 5, is_last=False))
        work.append(invoked(client, server.address, request(6), 5))
        assert transport.write.call_count == 4
        await asyncio.gather(*work)
        assert transport.write.call_count == 4
        assert seen == [str(n) for n in range(7)]


@in_loop
async def test_the_end_of_a_request_without_a_coroutine_is_reported_once():
    ends = []

    def on_end(*end):
        ends.append(end)

    async with ScriptedServer(Peer.wait_end) as server, Client() as client:
        for timeout_s in (0.05, 5):
            client.invoke_then(server.address, request(), timeout_s, on_end, is_last=True)
        await until(lambda: len(ends) == 1)
    assert [type(error) for _, error in ends] == [RemotingTimeoutError, RemotingConnectError]
    assert [response for response, _ in ends] == [None, None]


def invoked(client, address, command, timeout_s, *, is_last=True):
    """Send a request without a coroutine; return a future of its answer."""
    future = asyncio.get_running_loop().create_future()

    def on_end(response, error):
        future.set_result(response) if error is None else future.set_exception(error)

    client.invoke_then(address, command, timeout_s, on_end, is_last=is_last)
    return future


def noting(seen):
    """Return a script that answers all requests, and records their order."""

    async def script(peer):
        try:
            while True:
                command = await peer.read()
                seen.append(command.ext_fields["number"])
                peer.answer(command)
        except (EOFError, ConnectionError):
            peer.ended = True

    return script


@in_loop
async def test_what_cannot_be_sent_is_an_error_whenever_it_happens(monkeypatch):
    async with ScriptedServer() as server, Client() as client:
        monkeypatch.setattr(client, "_frame", lambda _: 1 // 0)
        for _ in ("while it connects", "at once"):
            with pytest.raises(ZeroDivisionError):
                await client.invoke(server.address, request(), 5)


@in_loop
async def test_a_name_that_cannot_be_is_an_error():
    async with Client() as client:
        with pytest.raises(RemotingConnectError, match="cannot connect to"):
            await client.invoke("a" * 70 + ".example:1", request(), 5)


@in_loop
async def test_what_waits_for_a_server_to_take_it_goes_on():
    go = asyncio.Event()

    async def slow(peer):
        peer.writer.transport.pause_reading()
        await go.wait()
        peer.writer.transport.resume_reading()
        await peer.answer_all()

    async with ScriptedServer(slow) as server, Client() as client:
        body = bytes(4 << 20)
        work = [
            asyncio.ensure_future(client.invoke(server.address, request(n, body), 9))
            for n in range(10)
        ]
        await until(
            lambda: client._connections and not client._connections[server.address].is_writable
        )
        go.set()
        responses = await asyncio.gather(*work)
        assert [r.ext_fields["number"] for r in responses] == [str(n) for n in range(10)]


@in_loop
async def test_frames_are_limited_both_ways():
    config = RemotingClientConfig(max_frame_bytes=1000)

    async def script(peer):
        asked = await peer.read()
        asked.body = bytes(1000)
        peer.answer(asked)
        await peer.wait_end()

    async with ScriptedServer(script) as server, Client(config) as client:
        with pytest.raises(RemotingFormatError, match="at most 1000 are accepted"):
            await client.invoke(server.address, request(body=bytes(1000)), 5)
        with pytest.raises(RemotingFormatError, match="at most 1000 are accepted"):
            await client.invoke_oneway(server.address, request(body=bytes(1000)), 5)
        with pytest.raises(RemotingConnectError, match="at most 1000 are accepted"):
            await ask(client, server)


# Addresses


@pytest.mark.parametrize("address", ["localhost", "", ":1", "h:", "h:x", "h:-1", "h:65536", "h:²"])
def test_what_is_no_address_is_named(address):
    @in_loop
    async def run():
        async with Client() as client:
            with pytest.raises(RemotingConnectError, match="is not HOST:PORT"):
                await client.invoke(address, request(), 1)

    run()


@in_loop
async def test_a_name_that_does_not_exist_is_named():
    async with Client() as client:
        with pytest.raises(RemotingConnectError, match=r"cannot connect to no\.invalid:1: "):
            await client.invoke("no.invalid:1", request(), 5)


# Closing


@in_loop
async def test_closing_ends_what_waits_and_what_connects():
    async with ScriptedServer(Peer.wait_end) as server:
        client = RemotingClient()
        waiting = asyncio.ensure_future(ask(client, server))
        await until(lambda: sent(client, server) == 1)
        connecting = asyncio.ensure_future(client.invoke("127.0.0.2:1", request(), 5))
        await asyncio.sleep(0)
        await client.close()
        for task in (waiting, connecting):
            with pytest.raises(RemotingConnectError):
                await task
        await until(lambda: server.peers[0].ended)
        with pytest.raises(RemotingConnectError, match="the client was closed"):
            await ask(client, server)
        await client.close()
        assert len(asyncio.all_tasks()) <= 3  # this test, its watcher, the server's script


@in_loop
async def test_closing_at_any_moment_of_a_connection_leaves_nothing_open():
    async with ScriptedServer() as server:
        for turns in range(12):
            client = RemotingClient()
            task = asyncio.ensure_future(ask(client, server))
            for _ in range(turns):
                await asyncio.sleep(0)
            await client.close()
            result = await asyncio.gather(task, return_exceptions=True)
            assert result == ["0"] or isinstance(result[0], RemotingConnectError)
            assert not client._open
        await until(lambda: all(peer.ended for peer in server.peers))


@in_loop
async def test_closing_waits_for_no_processor():
    began = asyncio.Event()

    async def forever(_, __):
        began.set()
        await asyncio.Event().wait()

    async def script(peer):
        peer.answer(await peer.read())
        peer.send(server_request(307))
        await peer.wait_end()

    async with ScriptedServer(script) as server:
        client = RemotingClient()
        client.register_processor(307, forever)
        await ask(client, server)
        await began.wait()
        await client.close()


# Access control


@in_loop
async def test_all_requests_are_signed(caplog):
    caplog.set_level(logging.DEBUG)
    got = []

    async def script(peer):
        got.extend([await peer.read() for _ in range(2)])
        peer.answer(got[0])
        await peer.wait_end()

    credentials = AclCredentials("KEY-1", "SECRET-2", "TOKEN-3")
    async with ScriptedServer(script) as server, Client(None, credentials) as client:
        task = asyncio.ensure_future(client.invoke(server.address, request(1, b"body"), 5))
        await until(lambda: sent(client, server) == 1)
        await client.invoke_oneway(server.address, request(2, b"body"), 5)
        await task
    for number, command in enumerate(got, 1):
        expected = request(number, b"body")
        sign(expected, credentials)
        assert command.ext_fields == expected.ext_fields
    for secret in ["KEY-1", "SECRET-2", "TOKEN-3", got[0].ext_fields["Signature"]]:
        assert secret not in caplog.text


@in_loop
async def test_errors_do_not_show_what_was_signed():
    config = RemotingClientConfig(max_frame_bytes=100)
    credentials = AclCredentials("KEY-1", "SECRET-2", "TOKEN-3")
    async with ScriptedServer() as server, Client(config, credentials) as client:
        with pytest.raises(RemotingFormatError) as caught:
            await ask(client, server)
        for secret in ["KEY-1", "SECRET-2", "TOKEN-3"]:
            assert secret not in str(caught.value)
