# SPDX-License-Identifier: Apache-2.0
"""Accounts of a ``plain_acl.yml``; the checks of RocketMQ 4.9.7 are expected with its results."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqnet.broker.access.acl_gate import AclGate
from rmqnet.broker.access.plain_acl import AccessDeniedError, PlainAcl, load_plain_acl
from rmqnet.errors import BrokerError
from rmqnet.remoting.acl import AclCredentials, sign, signature_of
from rmqnet.remoting.codes import RequestCode
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.errors import StoreConfigError
from tests.rmqnet.scripted_cluster import wait_until

FILE = str(Path(__file__).with_name("plain_acl.yml"))
SECRETS = {
    "RocketMQ": "12345678",
    "rocketmq2": "87654321",
    "operator": "keeps-the-topics",
    "auditor": "reads-all-topics",
    "all-but-one": "may-do-nearly-all",
    "nobody-special": "has-no-rights",
}
ELSEWHERE = "172.16.0.9"
CLIENT = SimpleNamespace(host="172.16.0.9")


@pytest.fixture(scope="module")
def acl():
    return load_plain_acl(FILE)


def signed(who, code, fields=None, body=b""):
    command = RemotingCommand(int(code), dict(fields or {}), body)
    sign(command, AclCredentials(who, SECRETS[who]))
    return command


def refusal(acl, command, host=ELSEWHERE):
    """Return why a request is refused; None if it is not."""
    try:
        acl.check(host, command)
    except AccessDeniedError as err:
        text = str(err)
        assert not any(secret in text for secret in SECRETS.values())
        assert command.ext_fields.get("Signature", "none") not in text
        return text
    return None


def heartbeat(group, *topics):
    subscriptions = [{"topic": topic, "subString": "*"} for topic in topics]
    consumers = [{"groupName": group, "subscriptionDataSet": subscriptions}]
    return json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()


SENDS = [(10, "topic"), (310, "b"), (320, "b"), (324, "topic"), (325, "b"), (370, "topic")]


@pytest.mark.parametrize(("code", "field"), SENDS)
@pytest.mark.parametrize(
    ("topic", "is_allowed"),
    [
        *(("topicA", False), ("topicB", True), ("topicC", False), ("topicP", True)),
        *(("other", False), ("", False), ("%RETRY%groupC", True), ("%RETRY%groupA", False)),
        ("%RETRY%other", True),  # the default of groups
    ],
)
def test_a_send_needs_its_topic(acl, code, field, topic, is_allowed):
    found = refusal(acl, signed("RocketMQ", code, {field: topic}))
    assert (found is None) == is_allowed
    if not is_allowed:
        kind, _, name = ("group", "", "groupA") if "%" in topic else ("topic", "", topic)
        assert found == f"No default permission for {kind}: {name}"


@pytest.mark.parametrize("code", [11, 361, 15])
@pytest.mark.parametrize(
    ("topic", "group", "is_allowed"),
    [
        *(("topicC", "groupC", True), ("topicB", "other", True), ("topicP", "groupC", False)),
        *(("topicC", "groupA", False), ("topicA", "groupC", False), ("topicC", "groupP", False)),
    ],
)
def test_a_read_needs_topic_and_group(acl, code, topic, group, is_allowed):
    command = signed("RocketMQ", code, {"topic": topic, "consumerGroup": group})
    assert (refusal(acl, command) is None) == is_allowed


@pytest.mark.parametrize(
    ("code", "field"),
    [(36, "group"), (35, "consumerGroup"), (38, "consumerGroup"), (307, "consumerGroup")],
)
def test_what_members_of_a_group_ask_needs_the_group(acl, code, field):
    assert refusal(acl, signed("RocketMQ", code, {field: "groupC"})) is None
    assert refusal(acl, signed("RocketMQ", code, {field: "groupA"})) is not None


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
def test_locks_need_the_group(acl, code):
    def body(group):
        return json.dumps({"consumerGroup": group, "clientId": "c", "mqSet": []}).encode()

    assert refusal(acl, signed("RocketMQ", code, {}, body("groupB"))) is None
    assert refusal(acl, signed("RocketMQ", code, {}, body("groupA"))) is not None
    assert "cannot be understood" in str(refusal(acl, signed("RocketMQ", code, {}, b"[")))


def test_a_query_by_key_needs_the_topic(acl):
    assert refusal(acl, signed("RocketMQ", 12, {"topic": "topicC", "key": "k"})) is None
    assert refusal(acl, signed("RocketMQ", 12, {"topic": "topicP", "key": "k"})) is not None
    assert refusal(acl, signed("RocketMQ", 12, {"key": "k"})) is not None


def test_a_heartbeat_needs_all_that_it_names(acl):
    allowed = heartbeat("groupC", "topicC", "%RETRY%groupC")
    assert refusal(acl, signed("RocketMQ", 34, {}, allowed)) is None
    for body in (heartbeat("groupA", "topicC"), heartbeat("groupC", "topicC", "topicA")):
        assert refusal(acl, signed("RocketMQ", 34, {}, body)) is not None


def test_a_heartbeat_is_read_as_the_broker_reads_it(acl):
    twice = b'{"consumerDataSet":[],"clientID":"c",' + heartbeat("groupA", "topicC")[1:]
    assert (
        refusal(acl, signed("RocketMQ", 34, {}, twice)) == "No default permission for group: groupA"
    )
    for hostile in (b"", b"{}", b'{"consumerDataSet":7,"clientID":"c"}', b"[" * 100_000, b"\xff"):
        assert "cannot be understood" in str(refusal(acl, signed("RocketMQ", 34, {}, hostile)))


ADMIN = [17, 25, 215, 200, 207, 18, 225, 222, 314, 306, 316, 329, 353]
OF_NAME_SERVERS = [100, 102, 103, 104, 904, 205, 327, 216, 217, 318]


@pytest.mark.parametrize("code", ADMIN + OF_NAME_SERVERS)
def test_what_changes_a_server_needs_an_admin(acl, code):
    assert refusal(acl, signed("auditor", code)) == (
        f"Need admin permission for request code={code}, but accessKey=auditor is not"
    )
    assert refusal(acl, signed("rocketmq2", code)) is None
    assert refusal(acl, signed("operator", code)) is None


def test_an_admin_with_permissions_has_only_those(acl):
    assert refusal(acl, signed("rocketmq2", 310, {"b": "anything"})) is None
    assert refusal(acl, signed("operator", 310, {"b": "anything"})) is not None
    read = {"topic": "secrets", "consumerGroup": "g"}
    assert refusal(acl, signed("operator", 12, read)) is not None
    assert refusal(acl, signed("operator", 12, {"topic": "anything"})) is None


@pytest.mark.parametrize(
    ("who", "is_allowed"),
    [("rocketmq2", True), ("auditor", True), ("operator", False), ("RocketMQ", False)],
)
def test_a_message_by_its_place_needs_the_right_to_read_all(acl, who, is_allowed):
    found = refusal(acl, signed(who, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}))
    assert (found is None) == is_allowed
    own = {"consumerGroup": "groupC", "msgId": "0" * 32}  # brought to an own consumer
    found = refusal(acl, signed(who, RequestCode.CONSUME_MESSAGE_DIRECTLY, own))
    if who != "operator":  # who may not use the group either
        assert (found is None) == is_allowed


@pytest.mark.parametrize(
    "topic",
    [
        *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"),
        "TRANS_CHECK_MAX_TIME_TOPIC",
    ],
)
def test_topics_that_hold_messages_of_others_need_the_right_to_all(acl, topic):
    """Otherwise a denied topic could be read and written through the topics where messages wait."""
    read = {"topic": topic, "consumerGroup": "groupC"}
    for code in (11, 361, 12):
        assert refusal(acl, signed("all-but-one", code, read)) is not None
        assert refusal(acl, signed("auditor", code, read)) is None
        assert refusal(acl, signed("rocketmq2", code, read)) is None
    assert refusal(acl, signed("all-but-one", 310, {"b": topic})) is not None
    assert refusal(acl, signed("all-but-one", 310, {"b": "any"})) is None


def test_a_topic_that_holds_messages_of_others_may_be_allowed_by_name():
    account = {"accessKey": "watchman", "secretKey": "of-the-timer"}
    perms = {"topicPerms": ["rmq_sys_wheel_timer=SUB"], "defaultGroupPerm": "SUB"}
    acl = PlainAcl({"accounts": [{**account, **perms}]}, "acl")
    fields = {"topic": "rmq_sys_wheel_timer", "consumerGroup": "g"}
    command = RemotingCommand(11, fields)
    sign(command, AclCredentials(*account.values()))
    assert refusal(acl, command) is None


@pytest.mark.parametrize("code", [105, 14, 29, 30, 21, 28, 106, 37])
def test_the_rest_needs_an_account_and_no_right(acl, code):
    assert refusal(acl, signed("nobody-special", code, {"topic": "topicA"})) is None
    assert refusal(acl, RemotingCommand(code)) == "No accessKey is configured"


def test_everybody_may_tell_traces(acl):
    assert refusal(acl, signed("nobody-special", 310, {"b": "RMQ_SYS_TRACE_TOPIC"})) is None
    read = {"topic": "RMQ_SYS_TRACE_TOPIC", "consumerGroup": "g"}
    assert refusal(acl, signed("nobody-special", 11, read)) is not None


def test_a_signature_that_is_no_text_is_refused(acl):
    command = signed("RocketMQ", 310, {"b": "topicB"})
    command.ext_fields["Signature"] = "\ud800"
    assert "Check signature failed" in str(refusal(acl, command))


def test_who_signs_wrongly_is_refused(acl):
    command = RemotingCommand(310, {"b": "topicB", "AccessKey": "unknown-one"})
    assert refusal(acl, command) == "No acl config for unknown-one"
    command = signed("RocketMQ", 310, {"b": "topicB"}, b"body")
    command.body = b"BODY"
    assert refusal(acl, command) == "Check signature failed for accessKey=RocketMQ"
    command = signed("RocketMQ", 310, {"b": "topicB"})
    command.ext_fields["b"] = "topicP"
    assert refusal(acl, command) == "Check signature failed for accessKey=RocketMQ"
    del command.ext_fields["Signature"]
    assert refusal(acl, command) == "Check signature failed for accessKey=RocketMQ"
    command.ext_fields["Signature"] = "ünsigned"
    assert refusal(acl, command) == "Check signature failed for accessKey=RocketMQ"
    sign(command, AclCredentials("RocketMQ", SECRETS["rocketmq2"]))
    assert refusal(acl, command) == "Check signature failed for accessKey=RocketMQ"


def test_queries_by_key_are_signed_with_or_without_one_field(acl):
    fields = {"topic": "topicC", "key": "k", "_UNIQUE_KEY_QUERY": "true"}
    for counted in (fields, {name: fields[name] for name in ("topic", "key")}):
        command = RemotingCommand(12, {**fields, "AccessKey": "RocketMQ"})
        text = signature_of({**counted, "AccessKey": "RocketMQ"}, b"", SECRETS["RocketMQ"])
        command.ext_fields["Signature"] = text
        assert refusal(acl, command) is None
        command.ext_fields["key"] = "other"
        assert refusal(acl, command) == "Check signature failed for accessKey=RocketMQ"


@pytest.mark.parametrize(
    ("host", "is_trusted"),
    [
        *(("10.10.103.7", True), ("10.10.104.7", False), ("192.168.0.2", True)),
        *(("192.168.0.3", False), ("::ffff:10.10.103.7", True)),
        *(("fe80::1:2:3:4", True), ("fe80::2:2:3:4", False), ("::1", False)),
    ],
)
def test_trusted_addresses_need_no_account(acl, host, is_trusted):
    assert (refusal(acl, RemotingCommand(17), host) is None) == is_trusted


def test_an_address_of_an_account_needs_its_name_only(acl):
    command = RemotingCommand(17, {"AccessKey": "rocketmq2"})
    assert refusal(acl, command, "192.168.1.200") is None
    assert refusal(acl, command) == "Check signature failed for accessKey=rocketmq2"


BAD = {
    "accounts: {a: b}": "accounts: a list was expected",
    "accounts:\n- name": "an entry of accounts: expected the keys accessKey",
    "": "the file: expected the keys globalWhiteRemoteAddresses, accounts",
    "- a": "the file: expected the keys",
    "acounts: []": "unknown key 'acounts'",
    "accounts:\n- {accessKey: short, secretKey: s3cr3t-s3cr3t}": "'short': accessKey and secretKey",
    "accounts:\n- {accessKey: long-enough, secretKey: s3cr3}": "have at least 7 characters",
    "accounts:\n- {accessKey: long-enough}": "have at least 7 characters",
    "accounts:\n- {accessKey: account1, secretKey: s3cr3t-s3cr3t, topicPerm: []}": (
        "unknown key 'topicPerm'"
    ),
    "accounts:\n- {accessKey: account1, secretKey: s3cr3t-s3cr3t, topicPerms: [a=ALL]}": (
        "account 'account1': topicPerms: 'ALL' is not a permission; expected one of DENY, PUB, SUB"
    ),
    "accounts:\n- {accessKey: account1, secretKey: s3cr3t-s3cr3t, groupPerms: [a]}": (
        "account 'account1': groupPerms: expected NAME=PERMISSION; found 'a'"
    ),
    "accounts:\n- {accessKey: account1, secretKey: s3cr3t-s3cr3t, topicPerms: a=SUB}": (
        "account 'account1': topicPerms: a list was expected"
    ),
    "accounts:\n- {accessKey: account1, secretKey: s3cr3t-s3cr3t, defaultTopicPerm: SBU}": (
        "defaultTopicPerm: 'SBU' is not a permission"
    ),
    "accounts:\n- {accessKey: account1, secretKey: s3cr3t-s3cr3t, whiteRemoteAddress: 1.2}": (
        "account 'account1': '1.2' is not a pattern of addresses"
    ),
    "globalWhiteRemoteAddresses: [300.1.*.*]": "'300.1.*.*' is not a pattern of addresses",
    "globalWhiteRemoteAddresses: '*'": "globalWhiteRemoteAddresses: a list was expected",
    "accounts:\n" + 2 * "- {accessKey: account1, secretKey: s3cr3t-s3cr3t}\n": (
        "account 'account1' is listed twice"
    ),
    "accounts:\n- accessKey: account1\n  secretKey: s3cr3t: s3cr3t\n": (
        "is not valid YAML: there is an error in line 3, column"
    ),
    "a: \x00": "is not valid YAML",
    "a: !!python/object/apply:os.system [true]": "is not valid YAML",
    "[" * 2000: "is not valid YAML",
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_bad_files_are_explained_and_tell_no_secret(tmp_path, text):
    file = tmp_path / "acl.yml"
    file.write_text(text)
    with pytest.raises(StoreConfigError) as caught:
        load_plain_acl(str(file))
    said = str(caught.value)
    assert said.startswith(str(file))
    assert BAD[text] in said
    assert "s3cr3" not in said
    assert caught.value.__cause__ is None or "s3cr3" not in str(caught.value.__cause__)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(StoreConfigError, match="No such file"):
        load_plain_acl(str(tmp_path / "none.yml"))
    (tmp_path / "latin.yml").write_bytes(b"a: \xe4")
    with pytest.raises(StoreConfigError, match="expected text in UTF-8"):
        load_plain_acl(str(tmp_path / "latin.yml"))


def test_nothing_shows_the_secrets(acl):
    shown = repr(acl) + repr(acl._accounts)
    assert not any(secret in shown for secret in SECRETS.values())


def test_a_file_without_accounts_trusts_addresses_only():
    acl = PlainAcl({"globalWhiteRemoteAddresses": ["127.0.0.1"], "accounts": None}, "f")
    assert refusal(acl, RemotingCommand(17), "127.0.0.1") is None
    assert refusal(acl, RemotingCommand(17)) == "No accessKey is configured"


@pytest.fixture
def file(tmp_path):
    return shutil.copy(FILE, tmp_path / "acl.yml")


def request(code=310, topic="topicB", secret="12345678"):
    command = RemotingCommand(code, {"b": topic})
    sign(command, AclCredentials("RocketMQ", secret))
    return command


def write(file, text):
    """Replace a file by another, as editors and Kubernetes do."""
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
    write(file, Path(FILE).read_text().replace("secretKey: 12345678", "secretKey: 23456789"))
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
        assert record.getMessage().startswith(f"the accounts are unchanged: {file}")
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
