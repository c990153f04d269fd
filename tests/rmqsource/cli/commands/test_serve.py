# SPDX-License-Identifier: Apache-2.0
"""``serve``: a store on the network, from the command line."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqsource.exit_codes import GOOD, NOT_DONE
from store_core import Message, MessageStore, MessageStoreConfig
from tests.rmqsource.cli.command_line import Answer, Run
from tests.rmqsource.cli.serving import DEADLINE_S, Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.importorskip("typer")
from rmqnet import (
    Admin,
    BrokerError,
    ClientError,
    ConsumeFromWhere,
    Producer,
    PullConsumer,
    PullConsumerOptions,
    RemotingError,
)
from rmqnet.remoting.acl import AclCredentials
from rmqnet.remoting.tls import ServerTls
from rmqnet.served_store import ServedState
from rmqsource.cli.commands.serve import Rates

SIZES = ("--option", "mappedFileSizeCommitLog=65536", "--option", "mappedFileSizeConsumeQueue=2000")
ANY = ("--port", "0", "--with-namesrv", "0")


def send(namesrv: str, count: int = 3) -> None:
    with Producer("tills", namesrv) as producer:
        for _ in range(count):
            producer.send(Message("orders", b"one tea"))


def read(namesrv: str, count: int) -> list[bytes]:
    # Without a seek: messages pulled before a seek would be pulled, and counted, again.
    begin = PullConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    with PullConsumer("cooks", namesrv, options=begin) as consumer:
        consumer.assign(consumer.queues_of("orders"))
        found: list[bytes] = []
        while len(found) < count:
            found += [message.body or b"" for message in consumer.poll(count, timeout_s=DEADLINE_S)]
        return found


def test_clients_use_it_until_a_signal(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Serving(store, *SIZES, *ANY, "--metrics", "0") as serving:
        first = serving.first
        assert first["store"] == str(store)
        send(first["namesrv"])
        assert read(first["namesrv"], 3) == [b"one tea"] * 3
        with urllib.request.urlopen(f"http://{first['metrics']}/metrics", timeout=10) as answer:
            assert b"rocketmq_messages_in_total{" in answer.read()
        code, lines, err = serving.stop()
    assert (code, lines[-1]["messages_in"], lines[-1]["messages_out"]) == (GOOD, 3, 3)
    assert set(first) == {*("time", "store", "broker", "namesrv", "metrics"), *ServedState._fields}
    assert "stopped; received 3 messages, sent 3; the log ends at " in err
    assert f"at {first['broker']}" in err
    assert f"namesrvAddr={first['namesrv']}" in err
    assert not (store / "abort").exists()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system knows no affinity")
def test_it_keeps_to_one_core_unless_it_is_a_slave(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    with Serving(tmp_path / "store", *SIZES, *ANY, "--ha-port", "0") as serving:
        assert len(os.sched_getaffinity(serving.process.pid)) == 1
        master = serving.first["broker"]
        with Serving(tmp_path / "slave", *SIZES, *ANY, "--replica-of", master) as slave:
            assert os.sched_getaffinity(slave.process.pid) == before


def test_a_store_that_is_open_is_refused(run: Run, tmp_path: Path) -> None:
    with MessageStore(MessageStoreConfig(store_path_root_dir=str(tmp_path / "store"))):
        answer = run("serve", tmp_path / "store", *ANY)
    assert answer.code == NOT_DONE
    assert f"{tmp_path / 'store'}" in answer.err
    assert re.search(r"(open|in use|lock)", answer.err)
    assert "ready" not in answer.err


class Meanwhile(threading.Thread):
    """Runs a function while the command runs in this process, then ends the command by a signal."""

    def __init__(self, work: Callable[[str], object]) -> None:
        super().__init__()
        self._work = work
        self.ports = [free_port(), free_port()]
        self.names = f"127.0.0.1:{self.ports[1]}"
        self.error: BaseException | None = None
        self.is_over = threading.Event()

    @property
    def flags(self) -> tuple[object, ...]:
        return "--port", self.ports[0], "--with-namesrv", self.ports[1]

    def run(self) -> None:
        try:
            self._until_it_answers()
            self._work(self.names)
        except BaseException as err:
            self.error = err
        if not self.is_over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    def _until_it_answers(self) -> None:
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end and not self.is_over.wait(0.02):
            with suppress(RemotingError, BrokerError), Admin(self.names) as admin:
                if admin.cluster().brokers:
                    return
        raise AssertionError("it did not come up")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def serve_while(run: Run, work: Callable[[str], object], *arguments: object) -> Answer:
    """Serve while a function runs, and return the command's output."""
    meanwhile = Meanwhile(work)
    # A signal before the command handles signals must not end the tests.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        meanwhile.start()
        answer = run("serve", *arguments, *SIZES, *meanwhile.flags)
    finally:
        meanwhile.is_over.set()
        meanwhile.join()
        signal.signal(signal.SIGTERM, before)
    if meanwhile.error is not None:
        raise meanwhile.error
    return answer


def test_a_store_that_is_open_is_read_only(run: Run, tmp_path: Path) -> None:
    settings = MessageStoreConfig(
        store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=1 << 16
    )
    figures: list[bytes] = []
    metrics = free_port()

    def work(names: str) -> None:
        assert read(names, 1) == [b"one tea"]
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10) as answer:
            figures.append(answer.read())

    with MessageStore(settings) as store:
        store.put_message(Message("orders", b"one tea"))
        more = ("--read-only", "--offsets", tmp_path / "offsets.json", "--metrics", metrics)
        answer = serve_while(run, work, tmp_path / "store", *more)
    assert answer.code == GOOD, answer.err
    assert "nothing in it changes" in answer.err
    assert f"metrics are at http://127.0.0.1:{metrics}/metrics" in answer.err
    assert b'rocketmq_messages_out_total{cluster="' in figures[0]


def test_accounts(run: Run, tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(
        "globalWhiteRemoteAddresses: [127.0.0.1]\n"
        "accounts:\n- {accessKey: operator, secretKey: s3cr3t-one, admin: true}\n"
    )
    more = ("--acl", accounts, "--host", "0.0.0.0", "--advertise", "localhost")
    answer = serve_while(run, lambda names: send(names, 1), tmp_path / "store", *more)
    assert answer.code == GOOD, answer.err
    assert "received 1 messages" in answer.err
    assert f"permissions are read from {accounts}" in answer.err
    assert "namesrvAddr=localhost:" in answer.err
    assert "s3cr3t" not in answer.err


def test_what_a_broker_conf_says_but_for_addresses(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(
        "brokerName=till\nbrokerClusterName=shop\nlistenPort=1\nbrokerIP1=192.0.2.1\n"
        "namesrvAddr=192.0.2.1:9876\nautoCreateTopicEnable=false\n"
        "storePathRootDir=/data/store\nstorePathCommitLog=/data/store/log\n"
    )

    def work(names: str) -> None:
        with Admin(names) as admin:
            assert admin.broker_config("till")["autoCreateTopicEnable"] == "false"
            admin.create_topic("orders", 1)
        send(names)

    answer = serve_while(run, work, tmp_path / "store", "--config", config)
    assert answer.code == GOOD, answer.err
    assert "broker till of cluster shop serves" in answer.err
    assert "received 3 messages, sent 0;" in answer.err
    assert (tmp_path / "store" / "log" / "00000000000000000000").exists()


def test_every_flag_has_its_effect(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    (tmp_path / "tools.yml").write_text(
        "accessKey: slave-one\nsecretKey: s3cr3t-slave\ntlsKeyPassword: opensesame\n"
    )

    def refuse(path: str, **options: Any) -> None:
        given.update(options, path=path)
        raise ClientError("not today")

    monkeypatch.setattr("rmqnet.served_store.serve", refuse)
    words = (
        *("--port", "1", "--namesrv", "n:9876", "--host", "10.0.0.7", "--advertise", "here"),
        *("--insecure", "--read-only", "--acl", "acl.yml", "--metrics", "[::1]:5557"),
        *("--tls-cert", "c.pem", "--tls-key", "k.pem", "--tls-ca", "a.pem", "--offsets", "o.json"),
        *(
            "--credentials",
            str(tmp_path / "tools.yml"),
            "--replica-of",
            "m:10911",
            "--ha-port",
            "10912",
            "--option",
            "maxIndexNum=7",
        ),
    )
    answer = run("serve", tmp_path / "store", *words)
    assert (answer.code, "not today" in answer.err) == (NOT_DONE, True)
    assert given == {
        "path": str(tmp_path / "store"),
        "port": 1,
        "namesrv_addr": "n:9876",
        "namesrv_port": 9876,
        "host": "10.0.0.7",
        "advertise": "here",
        "insecure": True,
        "read_only": True,
        "acl": "acl.yml",
        "tls": ServerTls("c.pem", "k.pem", "opensesame", "a.pem"),
        "credentials": AclCredentials("slave-one", "s3cr3t-slave"),
        "metrics_host": "::1",
        "metrics_port": 5557,
        "offsets_file": "o.json",
        "replica_of": "m:10911",
        "ha_port": 10912,
        "settings": {"maxIndexNum": "7"},
    }


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


WRONG = [
    (("--host", "0.0.0.0", "--advertise", "here"), "insecure"),
    (("--host", "0.0.0.0", "--insecure"), "advertise"),
    (("--namesrv", "127.0.0.1:9876", "--with-namesrv", "9876"), "--namesrv: cannot be given"),
    (("--metrics", "many"), "--metrics: expected PORT or HOST:PORT; found 'many'"),
    (("--metrics", "70000"), "--metrics: expected"),
    (("--tls-key", "key.pem"), "--tls-key: requires --tls-cert"),
    (("--tls-ca", "ca.pem"), "--tls-ca: requires --tls-cert"),
    (("--tls-cert", "none.pem"), "none.pem"),
    (("--acl", "none.yml"), "none.yml cannot be read: No such file"),
    (("--config", "none.conf"), "none.conf"),
    (("--config", "elsewhere.conf"), "its log is in /ssd/log, which belongs to the store in"),
    (("--offsets", "file"), "read_only"),
    (("--credentials", "half.yml"), "--credentials: secretKey is missing"),
    (("--credentials", "bad.yml"), "--credentials bad.yml, line 1: expected 'KEY: VALUE'"),
    (("--read-only", "--replica-of", "127.0.0.1:10911"), "read_only, replica_of"),
    (("--option", "topics=a"), "did you mean"),
]


@pytest.mark.parametrize(("arguments", "expected"), WRONG, ids=range(len(WRONG)))
def test_wrong_use_makes_nothing(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere.conf").write_text(
        "storePathRootDir=/data/store\nstorePathCommitLog=/ssd/log\n"
    )
    (tmp_path / "half.yml").write_text("accessKey: slave-one\n")
    (tmp_path / "bad.yml").write_text("secret s3cr3t\n")
    answer = run("serve", "store", *arguments)
    assert "s3cr3t" not in answer.err
    assert (answer.code, answer.out) == (NOT_DONE, "")
    assert expected in answer.err
    assert not (tmp_path / "store").exists()


def test_a_folder_of_other_things_stays_as_it_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    answer = run("serve", tmp_path, *ANY)
    assert answer.code == NOT_DONE
    assert "the directory has other contents (letter.txt)" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_port_that_is_taken(run: Run, tmp_path: Path, taken: int) -> None:
    for more in (("--port", taken, *ANY[2:]), (*ANY[:2], "--with-namesrv", taken)):
        answer = run("serve", tmp_path / "store", *SIZES, *more)
        assert (answer.code, str(taken) in answer.err) == (NOT_DONE, True), answer.err


def test_a_person_sees_what_goes_on(tmp_path: Path) -> None:
    terminal = pytest.importorskip("tests.rmqsource.cli.test_interrupt")
    command = terminal.Command("serve", str(tmp_path / "store"), *SIZES, *ANY)
    shown = rb"in 0 msg/s 0.0 MB/s, out 0 msg/s 0.0 MB/s, 0 connections, 0 pulls wait"
    assert command.interrupt_when(re.compile(shown)) == GOOD, command.shown


def test_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    rates = Rates()
    now[0] += 2
    state = ServedState(4_000, 8_000_000, 2_000, 1_000_000, 3, 12_345, 9)
    assert rates.text(state) == (
        "in 2,000 msg/s 4.0 MB/s, out 1,000 msg/s 0.5 MB/s, 3 connections, 12,345 pulls wait"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_it_may_open_as_many_files_as_it_is_let(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(opened + 256, hard), hard))
    try:
        with Serving(tmp_path / "store", *SIZES, *ANY) as serving:
            limits = Path(f"/proc/{serving.process.pid}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found = re.search(r"^Max open files +(\S+) +(\S+)", limits, re.MULTILINE)
    assert found is not None
    assert found.group(1) == found.group(2)
