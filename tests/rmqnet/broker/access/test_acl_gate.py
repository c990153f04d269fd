from __future__ import annotations

import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqnet.broker.access.acl_gate import AclGate
from rmqnet.errors import BrokerError
from rmqnet.remoting.acl import AclCredentials, sign
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.errors import StoreConfigError
from tests.rmqnet.scripted_cluster import wait_until

FILE = Path(__file__).with_name("plain_acl.yml")
CLIENT = SimpleNamespace(host="172.16.0.9")


@pytest.fixture
def file(tmp_path):
    return shutil.copy(FILE, tmp_path / "acl.yml")


def request(code=310, topic="topicB", secret="12345678"):
    command = RemotingCommand(code, {"b": topic})
    sign(command, AclCredentials("RocketMQ", secret))
    return command


def write(file, text):
    """Put a file in place of another, as editors and Kubernetes do."""
    other = file.with_name("new")
    other.write_text(text)
    other.replace(file)


def test_a_refusal_is_the_answer_that_clients_know(file):
    gate = AclGate(str(file))
    assert gate.look(CLIENT, request()) is None
    answer = gate.look(CLIENT, request(topic="topicA"))
    said = BrokerError(answer.code, answer.remark, "b:1", "SEND_MESSAGE_V2")
    assert (said.code, said.is_access_refused) == (1, True)
    assert answer.remark.endswith("AclException: No default permission for topic: topicA")


def test_the_file_is_read_again_when_it_changes(file):
    gate = AclGate(str(file))
    assert gate.run_once() is False
    write(file, FILE.read_text().replace("secretKey: 12345678", "secretKey: 23456789"))
    assert gate.look(CLIENT, request()) is None
    assert gate.run_once() is True
    assert "Check signature failed" in gate.look(CLIENT, request()).remark
    assert gate.look(CLIENT, request(secret="23456789")) is None
    assert gate.run_once() is False


def test_a_file_that_became_unusable_changes_nothing(file, caplog):
    gate = AclGate(str(file))
    for text in ("accounts: [{accessKey: RocketMQ, secretKey: s3cr3t", None):
        if text is None:
            file.unlink()
        else:
            write(file, text)
        for _ in range(3):
            assert gate.run_once() is False
        assert gate.look(CLIENT, request()) is None
        (record,) = caplog.records
        assert record.getMessage().startswith(f"the accounts stay as they were: {file}")
        assert "s3cr3t" not in caplog.text
        caplog.clear()
    write(file, "accounts: []")
    assert gate.run_once() is True
    assert "No acl config for RocketMQ" in gate.look(CLIENT, request()).remark


def test_its_thread_reads_the_file(file):
    gate = AclGate(str(file))
    gate.start()
    try:
        write(file, "accounts: []")
        wait_until(lambda: gate.look(CLIENT, request()) is not None, "a refusal")
    finally:
        gate.shutdown()


def test_a_host_that_is_refused_is_logged_once(file, caplog):
    gate = AclGate(str(file))
    for _ in range(5):
        gate.look(CLIENT, request(topic="topicA"))
    gate.look(SimpleNamespace(host="172.16.0.10"), RemotingCommand(17))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "172.16.0.9 may not do SEND_MESSAGE_V2: No default permission" in caplog.text
    assert "172.16.0.10 may not do UPDATE_AND_CREATE_TOPIC: No accessKey" in caplog.text


def test_a_broker_does_not_start_with_a_bad_file(tmp_path):
    with pytest.raises(StoreConfigError, match="No such file"):
        AclGate(str(tmp_path / "none.yml"))
