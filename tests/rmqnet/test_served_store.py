# SPDX-License-Identifier: Apache-2.0
"""A store on the network: who may listen where, and access control by accounts and certificates."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rmqnet import (
    AclCredentials,
    Admin,
    BrokerError,
    ClientConfig,
    Message,
    Producer,
    PullConsumer,
    TlsConfig,
    serve,
)
from rmqnet.errors import ClientError, RemotingError
from rmqnet.namesrv.name_server import NameServer
from rmqnet.namesrv.name_server_config import NameServerConfig
from rmqnet.remoting.acl import sign
from rmqnet.remoting.codes import RequestCode
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.tls import ServerTls
from store_core.errors import HAError, StoreConfigError, StoreLockedError, StoreWriteError
from tests.rmqnet.remoting.raw_client import RawClient
from tests.rmqnet.scripted_cluster import wait_until

FILES = Path(__file__).parent / "remoting" / "certificates"
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000}
ACCOUNTS = """
accounts:
- {accessKey: till-one, secretKey: s3cr3t-till, topicPerms: [orders=PUB]}
- {accessKey: kitchen, secretKey: s3cr3t-kitchen, topicPerms: [orders=SUB], groupPerms: [cooks=SUB]}
- {accessKey: operator, secretKey: s3cr3t-operator, admin: true}
"""
DOCS = Path(__file__).parents[2] / "docs" / "serve.md"
ROOT = Path(__file__).parent.parent.parent
CODE = """
import sys

import rmqnet
from rmqnet import Message, Producer, PullConsumer


def check(when):
    loaded = {"pandas", "pyarrow", "pyspark"} & set(sys.modules)
    assert not loaded, (when, loaded)


with rmqnet.serve(sys.argv[1]) as cluster:
    check("at the start")
    with Producer("g", cluster.namesrv_addr) as producer:
        queue = producer.send(Message("orders", b"one espresso", tags="paid", keys="k1")).queue
    with PullConsumer("h", cluster.namesrv_addr) as consumer:
        consumer.assign([queue])
        consumer.seek_to_begin()
        assert [message.body for message in consumer.poll(timeout_s=30)] == [b"one espresso"]
    assert cluster.controller.broker.store.wait_for_dispatch()
    check("when a message came and was consumed")
check("at the end")
"""


def account(who):
    return AclCredentials(who, f"s3cr3t-{who.partition('-')[0]}")


def client(cluster, who=None, tls=None):
    credentials = None if who is None else account(who)
    return ClientConfig(cluster.namesrv_addr, credentials=credentials, tls=tls)


def send(config, topic="orders"):
    with Producer("tills", config) as producer:
        return producer.send(Message(topic, b"one tea"))


def read(config, queue):
    with PullConsumer("cooks", config) as consumer:
        consumer.assign([queue])
        consumer.seek_to_begin()
        return [message.body for message in consumer.poll()]


def ask(address, who, code, **fields):
    """Send a broker or name server a request that no client sends in that way."""
    command = RemotingCommand(int(code), fields)
    sign(command, account(who))
    with RawClient(int(address.rpartition(":")[2])) as raw:
        raw.send(command)
        return raw.receive()


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture
def accounts(tmp_path):
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    return file


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1", "nowhere.invalid"])
def test_others_reach_it_only_with_accounts_or_when_told(tmp_path, accounts, host):
    with pytest.raises(StoreConfigError, match=r"lets everyone .*acl, .*insecure"):
        serve(tmp_path / "store", host=host, advertise="here")
    for more in ({"acl": accounts}, {"insecure": True}):
        serve(tmp_path / "store", host=host, advertise="here", settings=SIZES, **more)
    assert not (tmp_path / "store").exists()


def test_slaves_reach_it_only_when_told(tmp_path, accounts):
    options = {"host": "0.0.0.0", "advertise": "here", "acl": accounts, "ha_port": 0}
    with pytest.raises(StoreConfigError, match=r"slaves do not authenticate.*insecure"):
        serve(tmp_path / "store", **options)
    serve(tmp_path / "store", **options, insecure=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_this_machine_reaches_it(tmp_path, host):
    if ":" in host and not has_ipv6():
        pytest.skip("this machine knows no IPv6")
    with serve(tmp_path / "store", host=host, settings=SIZES) as cluster:
        told = f"[{host}]" if ":" in host else host
        assert cluster.address.rpartition(":")[0] == told
        assert cluster.namesrv_addr.rpartition(":")[0] == told
        assert send(client(cluster)).queue_offset == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "0", "0::0"])
def test_clients_must_be_told_an_address(tmp_path, host):
    with pytest.raises(StoreConfigError, match=r"clients should connect to \(advertise\)"):
        serve(tmp_path / "store", host=host, insecure=True)


def test_all_addresses_with_one_that_is_told(tmp_path):
    with serve(
        tmp_path / "store", host="0.0.0.0", advertise="localhost", insecure=True, settings=SIZES
    ) as cluster:
        assert cluster.namesrv_addr.startswith("localhost:")
        assert cluster.address.startswith("localhost:")
        assert send(client(cluster)).queue_offset == 0


def test_addresses_of_settings_do_not_count(tmp_path):
    settings = {"brokerIP1": "192.0.2.1", "listenPort": 1, "namesrvAddr": "192.0.2.1:9876"}
    with serve(tmp_path / "store", settings={**SIZES, **settings}) as cluster:
        assert cluster.address.startswith("127.0.0.1:")
        assert cluster.namesrv_addr.startswith("127.0.0.1:")
        assert send(client(cluster)).queue_offset == 0


def test_accounts_do_what_they_may(tmp_path, accounts):
    with serve(tmp_path / "store", acl=accounts, settings=SIZES) as cluster:
        with Admin(client(cluster, "operator")) as admin:
            admin.create_topic("orders", 1)
            admin.create_topic("secrets", 1)
        sent = send(client(cluster, "till-one"))
        assert read(client(cluster, "kitchen"), sent.queue) == [b"one tea"]
        with pytest.raises(BrokerError, match="No default permission for topic: secrets"):
            send(client(cluster, "till-one"), "secrets")
        with pytest.raises(BrokerError, match="No default permission for topic: orders"):
            send(client(cluster, "kitchen"))
        pull = {"topic": "orders", "consumerGroup": "cooks"}
        answer = ask(cluster.address, "till-one", RequestCode.PULL_MESSAGE, **pull)
        assert "No default permission for topic: orders" in answer.remark
        with Admin(client(cluster, "kitchen")) as admin, pytest.raises(BrokerError) as caught:
            admin.delete_topic("orders")
        assert "Need admin permission" in str(caught.value)
        assert "s3cr3t" not in str(caught.value)


def test_broker_and_name_server_know_nobody_without_an_account(tmp_path, accounts):
    with serve(tmp_path / "store", acl=accounts, settings=SIZES) as cluster:
        for address in (cluster.address, cluster.namesrv_addr):
            with RawClient(int(address.rpartition(":")[2])) as stranger:
                for code in (10, 11, 17, 28, 34, 103, 105, 206, 318, 9999):
                    answer = stranger.request(code, ext_fields={"topic": "orders"})
                    assert (answer.code, "No accessKey is configured" in answer.remark) == (1, True)


def test_the_name_server_lets_admins_change_it(tmp_path, accounts):
    with serve(tmp_path / "store", acl=accounts, settings=SIZES) as cluster:
        name = cluster.controller.config.broker_name
        wipe = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        refused = ask(cluster.namesrv_addr, "kitchen", wipe, brokerName=name)
        assert "Need admin permission" in refused.remark
        done = ask(cluster.namesrv_addr, "operator", wipe, brokerName=name)
        assert int(done.ext_fields["wipeTopicCount"]) > 0


@pytest.mark.parametrize("asks_clients", [False, True])
def test_certificates(tmp_path, asks_clients):
    ca = str(FILES / "ca.pem")
    tls = ServerTls(
        str(FILES / "server.pem"), str(FILES / "server.key"), ca_file=ca if asks_clients else None
    )
    plain = TlsConfig(ca_file=ca)
    known = TlsConfig(
        ca_file=ca,
        cert_file=str(FILES / "client.pem"),
        key_file=str(FILES / "client.key"),
        key_password="opensesame",
    )
    with serve(tmp_path / "store", tls=tls, settings=SIZES) as cluster:
        assert send(client(cluster, tls=known)).queue_offset == 0
        for strange in (None, *((plain,) if asks_clients else ())):
            with pytest.raises((ClientError, RemotingError)):
                send(client(cluster, tls=strange))
        if not asks_clients:
            assert send(client(cluster, tls=plain)).status.name == "SEND_OK"


@pytest.mark.parametrize("text", ["nowhere", "host:0", "host:99999", "a:1;b", "", ";"])
def test_what_is_no_name_server_is_refused_at_once(tmp_path, text):
    with pytest.raises(ClientError, match="host:port"):
        serve(tmp_path / "store", namesrv_addr=text)
    assert not (tmp_path / "store").exists()


def test_a_name_server_elsewhere_hears_of_it(tmp_path):
    with NameServer(NameServerConfig(port=0)) as names:
        with serve(tmp_path / "store", namesrv_addr=names.address, settings=SIZES) as cluster:
            assert cluster.name_server is None
            assert cluster.namesrv_addr == names.address
            assert send(client(cluster)).queue_offset == 0
        assert names.routes.topics_of_cluster("DefaultCluster") == []


def test_brokers_elsewhere_have_accounts_too(tmp_path, accounts):
    with serve(tmp_path / "master", acl=accounts, settings=SIZES, ha_port=0) as master:
        with pytest.raises(ClientError, match="No accessKey is configured"):
            serve(tmp_path / "slave", replica_of=master.address)
        operator = account("operator")
        with serve(tmp_path / "slave", replica_of=master.address, credentials=operator) as slave:
            name = slave.controller.config.broker_name
            assert master.name_server is not None
            assert dict(master.name_server.routes.broker_addresses(name)) == {
                0: master.address,
                1: slave.address,
            }
            with Admin(client(master, "operator")) as admin:
                admin.create_topic("orders", 1)
            send(client(master, "till-one"))
            end = master.state().log_end
            wait_until(lambda: slave.state().log_end == end, "the master's log")


def test_what_cannot_start_leaves_nothing_running(tmp_path, accounts):
    with serve(tmp_path / "store", settings=SIZES) as cluster:
        second = serve(tmp_path / "store", settings=SIZES)
        with pytest.raises(StoreLockedError):
            second.start()
        assert second.name_server is not None
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", second.name_server.port)).close()
        port = int(cluster.address.rpartition(":")[2])
        with pytest.raises(ClientError, match=str(port)):
            serve(tmp_path / "other", port=port, settings=SIZES).start()
        with pytest.raises(StoreConfigError, match="No such file"):
            serve(tmp_path / "other", acl=tmp_path / "none.yml")
        with pytest.raises(ClientError, match=r"none\.pem"):
            serve(tmp_path / "other", tls=ServerTls("none.pem"))
        assert send(client(cluster)).queue_offset == 0


def test_a_store_that_is_open_elsewhere_keeps_a_topics_file_that_cannot_be_read(tmp_path):
    torn = [tmp_path / "config" / name for name in ("topics.json", "topics.json.bak")]
    with serve(tmp_path, settings=SIZES):
        for path in torn:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b'{"topicConfigTable": {')
        with pytest.raises(StoreLockedError):
            serve(tmp_path, settings=SIZES).start()
        assert [path.stat().st_size for path in torn] == [22, 22]


def _threads():
    return {thread.name for thread in threading.enumerate()}


def test_what_does_not_start_whole_leaves_no_threads(tmp_path):
    before = _threads()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cluster = serve(tmp_path, settings=SIZES, ha_port=taken.getsockname()[1])
        with pytest.raises(HAError, match="cannot listen for slaves"):
            cluster.start()
    assert _threads() <= before


def in_threads(work, count=6):
    """Do the same in several threads in parallel; return the result of each."""
    barrier = threading.Barrier(count)

    def begin(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def test_threads_share_one(tmp_path):
    before = _threads()
    cluster = serve(tmp_path, settings=SIZES)
    for _ in range(2):
        assert in_threads(lambda _: cluster.start()) == [cluster] * 6
        offsets = in_threads(lambda _: [send(client(cluster)).queue_offset for _ in range(3)])
        assert len(offsets) == 6
        assert cluster.state().messages_in == 18
        in_threads(lambda _: cluster.shutdown())
        assert _threads() <= before
    in_threads(lambda number: cluster.start() if number % 2 else cluster.shutdown())
    cluster.shutdown()
    assert _threads() <= before


def test_two_side_by_side_then_one_again(tmp_path):
    one, other = (serve(tmp_path / name, settings=SIZES) for name in "ab")
    with one, other:
        assert len({one.address, other.address, one.namesrv_addr, other.namesrv_addr}) == 4
        in_threads(lambda number: send(client(other if number % 3 else one)))
        assert (one.state().messages_in, other.state().messages_in) == (2, 4)
        end = other.state().log_end
        with serve(tmp_path / "b", read_only=True, settings=SIZES) as reading:
            wait_until(lambda: reading.state().log_end == end, "the log")
    for _ in range(2):
        with serve(tmp_path / "b", settings=SIZES) as again:
            assert again.state().log_end == end


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_who_has_the_store_open_is_named(tmp_path):
    with serve(tmp_path, settings=SIZES):
        here = r"another store object of this process has it open; shut that one down first"
        with pytest.raises(StoreLockedError, match=here):
            serve(tmp_path, settings=SIZES).start()
        opener, read, write = os.getpid(), *os.pipe()
        child = os.fork()
        if child == 0:
            try:
                serve(tmp_path, settings=SIZES).start()
            except StoreLockedError as err:
                os.write(write, str(err).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with os.fdopen(read, "rb") as said:
            there = f"process {opener} has this store open; stop that broker first"
            assert there in said.read().decode()


def test_one_that_runs_may_be_started_again(tmp_path):
    with serve(tmp_path, settings=SIZES).start() as cluster:
        address = cluster.address, cluster.namesrv_addr
        assert cluster.controller.start() is cluster.controller.start()
        cluster.start()
        assert (cluster.address, cluster.namesrv_addr) == address
        assert send(client(cluster)).queue_offset == 0
    cluster.shutdown()
    with cluster:
        sent = send(client(cluster))
        assert read(client(cluster), sent.queue) == [b"one tea"] * (sent.queue_offset + 1)
        registered = []
        cluster.controller.registration.run_once = lambda: registered.append(1) or True
        cluster.controller.role.topics.touch()
        assert registered == [1]


def test_a_fixture_stops_what_it_started(tmp_path):
    cluster = serve(tmp_path, settings=SIZES).start()
    cluster.stop()
    assert not cluster.controller.is_running
    assert not (tmp_path / "abort").exists()


def test_a_full_disk_at_the_end_leaves_nothing_open(tmp_path):
    before = _threads()
    cluster = serve(tmp_path, settings=SIZES).start()
    send(client(cluster))
    cluster.controller.broker.offsets.commit("cooks", "orders", 0, 1)
    config = tmp_path / "config"
    shutil.move(config, tmp_path / "moved")
    config.write_text("no directory")
    with pytest.raises(StoreWriteError):
        cluster.shutdown()
    assert _threads() <= before
    config.unlink()
    shutil.move(tmp_path / "moved", config)
    with serve(tmp_path, settings=SIZES) as again:
        assert send(client(again)).queue_offset >= 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_forked_child_stops_nothing(tmp_path):
    with serve(tmp_path, settings=SIZES) as cluster:
        cluster.controller.broker.offsets.commit("cooks", "orders", 0, 1)
        child = os.fork()
        if child == 0:
            try:
                cluster.controller.broker.offsets.commit("cooks", "orders", 0, 7)
                cluster.shutdown()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not (tmp_path / "config" / "consumerOffset.json").exists()
        assert send(client(cluster)).queue_offset == 0


def test_settings_without_effect_are_named_in_one_line(tmp_path, caplog):
    settings = {**SIZES, "popPollingSize": 5, "debugLockEnable": "true", "brokerName": "b"}
    with serve(tmp_path, port=0, namesrv_port=0, settings=settings):
        pass
    (line,) = [text for text in caplog.messages if "no effect" in text]
    assert line == (
        f"settings of {tmp_path}: settings of RocketMQ that have no effect here: "
        "debugLockEnable, popPollingSize"
    )


# The page about ``serve`` names each request code that the broker does not answer.


def _codes(text):
    for first, last in re.findall(r"(?<![\d.])(\d{2,6})(?: to (\d{2,6}))?(?![\d.])", text):
        yield from range(int(first), int(last or first) + 1)


def test_each_code_that_is_not_there_is_named(tmp_path):
    with serve(tmp_path / "store") as cluster:
        answered = {
            *cluster.controller._server._routes,
            *cluster.name_server._server._routes,
        }
    section = DOCS.read_text(encoding="utf-8").split("## What is not there")[1]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")]
    said = {code for row in rows for code in _codes(row)}
    to_clients = set(_codes(section.split("are what brokers ask clients")[0].splitlines()[-1]))
    missing = {int(code) for code in RequestCode} - answered
    assert (said | to_clients) & {int(code) for code in RequestCode} == missing


# The modules that a broker with name server loads, which take most of its start.


def test_a_broker_without_much_to_do_does_not_load_arrow(tmp_path):
    command = [sys.executable, "-c", CODE, str(tmp_path / "store")]
    subprocess.run(command, check=True, cwd=ROOT)
