# SPDX-License-Identifier: Apache-2.0
"""A broker stops soon, whatever others do, and with everything it has acknowledged."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import pytest

from rmqnet import (
    Admin,
    BrokerError,
    ClientInstance,
    LocalTransactionState,
    Message,
    MessageQueue,
    Producer,
    SendStatus,
    TransactionProducer,
    serve,
)
from rmqnet.broker.roles.slave import MasterCalls
from rmqnet.errors import ClientError, RemotingError
from rmqnet.remoting.codes import RequestCode
from store_core import MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.config.config_files import (
    load_consumer_offsets,
    load_subscription_groups,
    load_topics,
)
from store_core.files.store_directory import StoreDirectory
from tests.rmqnet.scripted_cluster import ScriptedServer, success, wait_until
from tests.store_core.snapshot.golden_snapshot import scanned_columns

SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000}
STOP_SECONDS = 10.0
PATIENCE_S = 60.0


@contextmanager
def soon():
    """Check that the block takes no longer than a stop may."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < STOP_SECONDS


@contextmanager
def full_server():
    """A port that drops all packets of clients, because its queue of connections is full."""
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
        except OSError:  # as expected: it is full
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for probe in waiting:
                probe.close()


@pytest.fixture
def name_server():
    """A name server that answers until its answers are taken away."""
    answers = dict.fromkeys((RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER), success)
    with ScriptedServer(answers) as server:
        yield server


def fall_silent(name_server):
    name_server.answers = dict.fromkeys(name_server.answers, lambda _: None)


def test_a_name_server_that_is_silent_delays_no_stop(tmp_path, name_server):
    """The stop waits neither for the unregistration nor for a pending registration."""
    broker = serve(tmp_path, namesrv_addr=name_server.address, settings=SIZES).start()
    registered = len(name_server.asked(RequestCode.REGISTER_BROKER))
    fall_silent(name_server)
    registration = broker.controller.registration
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(registration.run_once)  # as the thread that created a topic does
        name_server.wait_for(RequestCode.REGISTER_BROKER, registered + 1)
        with soon():
            broker.shutdown()
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
            broker.shutdown()
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
            broker.shutdown()
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
        with pytest.raises(ClientError, match="the broker is stopping"):
            asking.result(PATIENCE_S)
        with pytest.raises(ClientError, match="the broker is stopping"):
            calls.table(master.address, code)


class Committing:
    """All local transactions succeed."""

    def execute_local_transaction(self, message, argument):
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message):
        return LocalTransactionState.COMMIT_MESSAGE


class Acknowledged:
    """The requests that a broker acknowledged, and clients that send more until it stops."""

    def __init__(self, cluster, stack):
        self.messages = {}  # body: its queue and offset; None for half messages
        self.offsets, self.topics, self.groups = {}, set(), set()
        self.counts, self.ends, self.last_commit = {}, {}, -1
        self._numbers = itertools.count()
        address = cluster.namesrv_addr
        settings = {"send_msg_timeout_ms": 3000, "retry_times_when_send_failed": 0}
        settings["retry_times_when_send_async_failed"] = 0
        self._producer = stack.enter_context(Producer("tills", address, **settings))
        self._transactions = stack.enter_context(
            TransactionProducer("checked-tills", address, Committing(), **settings)
        )
        self._admin = stack.enter_context(Admin(address))
        self._client = stack.enter_context(ClientInstance(address))
        self._address = cluster.address
        self._admin.create_topic("orders", 4)
        for number in range(3):
            self._admin.create_group(f"cooks-{number}")
        self._broker_name = cluster.controller.config.broker_name

    def ask_until_it_stops(self, kind):
        """Repeat one kind of request; the last one, at the stop, is not acknowledged."""
        act = getattr(self, kind)
        try:
            while True:
                act()
                self.counts[kind] = self.counts.get(kind, 0) + 1
        except (RemotingError, ClientError, BrokerError) as err:
            self.ends[kind] = err

    def has_begun(self, least):
        """Return whether so many requests of each kind were acknowledged."""
        assert not self.ends
        return all(self.counts.get(kind, 0) >= least for kind in _KINDS)

    def _message(self):
        return Message("orders", b"order %d" % next(self._numbers))

    def _note(self, bodies, result):
        if result.status is SendStatus.SEND_OK:
            for position, body in enumerate(bodies):
                place = result.queue.queue_id, result.queue_offset + position
                self.messages[body] = place

    def send(self):
        message = self._message()
        self._note([message.body], self._producer.send(message))

    def send_many(self):
        """Keep some messages in progress all the time."""
        messages = [self._message() for _ in range(20)]
        sent = [self._producer.send_async(message) for message in messages]
        failures = []
        for message, future in zip(messages, sent):
            try:
                self._note([message.body], future.result(PATIENCE_S))
            except (RemotingError, ClientError, BrokerError) as err:
                failures.append(err)
        if failures:
            raise failures[0]

    def send_batch(self):
        messages = [self._message() for _ in range(7)]
        self._note([each.body for each in messages], self._producer.send_batch(messages))

    def send_in_transaction(self):
        message = self._message()
        result = self._transactions.send_in_transaction(message)
        if result.status is SendStatus.SEND_OK:
            self.messages[message.body] = None

    def commit_offset(self):
        number = next(self._numbers)
        queue = MessageQueue("orders", self._broker_name, number % 4)
        group = f"cooks-{number % 3}"
        broker = self._client.broker
        self.last_commit = number
        self._client.call(
            broker.update_consumer_offset(self._address, group, queue, number, timeout_s=3)
        )
        self.offsets[group, queue.queue_id] = number

    def create_topic(self):
        name = f"topic-{next(self._numbers)}"
        self._admin.create_topic(name, 1)
        self.topics.add(name)

    def create_group(self):
        name = f"group-{next(self._numbers)}"
        self._admin.create_group(name)
        self.groups.add(name)


_KINDS = [
    *["send"] * 4,
    *["send_many"] * 2,
    *["send_batch"] * 2,
    *["send_in_transaction"] * 2,
    "commit_offset",
    "create_topic",
    "create_group",
]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("least", [3, 10])
def test_nothing_acknowledged_is_lost_by_a_stop(tmp_path, flush, least):
    settings = {**SIZES, "flushDiskType": flush}
    with ExitStack() as stack:
        cluster = serve(tmp_path, settings=settings).start()
        stack.callback(cluster.shutdown)
        said = Acknowledged(cluster, stack)
        pool = stack.enter_context(ThreadPoolExecutor(len(_KINDS)))
        asking = [pool.submit(said.ask_until_it_stops, kind) for kind in _KINDS]
        try:
            wait_until(lambda: said.has_begun(least), "all kinds")
        finally:
            with soon():
                cluster.shutdown()
        for each in asking:
            each.result(PATIENCE_S)
    assert_all_there(tmp_path, settings, said)


def assert_all_there(root, settings, said):
    config = MessageStoreConfig.from_properties({key: str(settings[key]) for key in settings})
    config = replace(config, store_path_root_dir=str(root))
    store = MessageStore(config)
    recovery = store.load()
    assert recovery.last_exit_ok
    store.shutdown()
    with closing(StoreSnapshot(root, config)) as snapshot:
        columns = scanned_columns(snapshot, unwrap=True)
        ends = [snapshot.queue_range("orders", number).max_offset for number in range(4)]
    rows = zip(*(columns[name] for name in ("body", "topic", "queue_id", "queue_offset")))
    places = {(body, topic): tuple(place) for body, topic, *place in rows}
    bodies = {body for body, _ in places}
    assert said.messages.keys() <= bodies
    for body, place in said.messages.items():
        if place is not None:
            assert places[body, "orders"] == place
            assert place[1] < ends[place[0]]
    directory = StoreDirectory(str(root))
    offsets = load_consumer_offsets(directory)
    for (group, queue_id), offset in said.offsets.items():
        # The answer to the last one may have been lost.
        assert offsets[group, "orders"][queue_id] in (offset, said.last_commit)
    assert said.topics <= load_topics(directory).keys()
    assert said.groups <= load_subscription_groups(directory).keys()
