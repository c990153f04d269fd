"""How a broker stops: soon, whatever others do, and with all that it has acknowledged."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from rmqnet import serve
from rmqnet.broker.roles.master_calls import MasterCalls
from rmqnet.errors import ClientError
from rmqnet.remoting.codes import RequestCode
from tests.rmqnet.scripted_cluster import ScriptedServer, success, wait_until

SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000}
STOP_SECONDS = 10.0
PATIENCE_S = 60.0


@contextmanager
def soon():
    """What is in here takes no longer than a stop may."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < STOP_SECONDS


@contextmanager
def full_server():
    """A port that drops all packets of clients: its queue of connections is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = []
        try:
            while True:
                probe = socket.socket()
                waiting.append(probe)
                probe.settimeout(0.2)
                probe.connect(listening.getsockname())
        except OSError:  # in time: it is full
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for probe in waiting:
                probe.close()


@pytest.fixture
def name_server():
    """One that answers until its answers are taken away."""
    answers = dict.fromkeys((RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER), success)
    with ScriptedServer(answers) as server:
        yield server


def fall_silent(name_server):
    name_server.answers = dict.fromkeys(name_server.answers, lambda _: None)


def test_a_name_server_that_is_silent_delays_no_stop(tmp_path, name_server):
    """Neither the farewell nor what waits to register is waited for."""
    broker = serve(tmp_path, namesrv_addr=name_server.address, settings=SIZES).start()
    registered = len(name_server.asked(RequestCode.REGISTER_BROKER))
    fall_silent(name_server)
    registration = broker.controller.registration
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(registration.run_once)  # as the thread that has made a topic
        name_server.wait_for(RequestCode.REGISTER_BROKER, registered + 1)
        with soon():
            broker.stop()
        assert waiting.result(0) is False
    assert not (tmp_path / "abort").exists()
    assert name_server.asked(RequestCode.UNREGISTER_BROKER)


def test_a_topic_made_while_the_name_server_is_silent_stays(tmp_path, name_server):
    with serve(tmp_path, namesrv_addr=name_server.address, settings=SIZES) as broker:
        fall_silent(name_server)
        registered = len(name_server.asked(RequestCode.REGISTER_BROKER))
        making = threading.Thread(target=broker.controller.role.topics.touch, daemon=True)
        making.start()
        name_server.wait_for(RequestCode.REGISTER_BROKER, registered + 1)
        with soon():
            broker.stop()
        making.join(PATIENCE_S)
        assert not making.is_alive()


@pytest.mark.parametrize("server", ["silent", "full"])
def test_one_that_never_answered_delays_no_stop(tmp_path, name_server, server):
    """The start waits for it, in another thread, until the broker is stopped."""
    fall_silent(name_server)
    with full_server() as full, ThreadPoolExecutor() as pool:
        address = name_server.address if server == "silent" else full
        broker = serve(tmp_path, namesrv_addr=address, settings=SIZES)
        starting = pool.submit(broker.start)
        calls = broker.controller.registration._calls
        wait_until(lambda: calls._under_way, "it registers")
        with soon():
            broker.stop()
        assert starting.result(PATIENCE_S) is broker
        assert not broker.controller.is_running


def test_it_registers_again_after_a_stop(tmp_path, name_server):
    broker = serve(tmp_path, namesrv_addr=name_server.address, settings=SIZES)
    for times in (1, 2):
        with broker:
            name_server.wait_for(RequestCode.REGISTER_BROKER, times)
            assert broker.controller.registration.run_once() is True
        name_server.wait_for(RequestCode.UNREGISTER_BROKER, times)


def test_a_silent_master_is_not_waited_for_at_the_end():
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    with (
        ScriptedServer({code: lambda _: None}) as master,
        MasterCalls() as calls,
        ThreadPoolExecutor() as pool,
    ):
        asking = pool.submit(calls.table, master.address, code)
        master.wait_for(code)
        calls.give_up()
        with pytest.raises(ClientError, match="the broker stops"):
            asking.result(PATIENCE_S)
        with pytest.raises(ClientError, match="the broker stops"):
            calls.table(master.address, code)
