# SPDX-License-Identifier: Apache-2.0
"""Servers that require signatures and TLS: right keys work, wrong ones are reported, none leaks."""

from __future__ import annotations

import logging
import pickle
import re
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from rmqnet import (
    AclCredentials,
    Admin,
    BrokerError,
    ClientConfig,
    ClientInstance,
    ConsumeFromWhere,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    RemotingConnectError,
    TlsConfig,
)
from rmqsource.exit_codes import NOT_DONE
from tests.interop.client_node import ClientNode, body_of, wait_until
from tests.interop.java_cluster import RELEASES
from tests.interop.live_cluster import BROKER, LiveCluster, unique
from tests.interop.secured import (
    ACCESS_KEY,
    DENIED_TOPIC,
    LIMITED_KEY,
    LIMITED_SECRET,
    SECRET_KEY,
    secured_cluster,
    secured_judge,
)
from tests.rmqsource.conftest import run  # noqa: F401 (a fixture)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.rmqsource.cli.command_line import Run

pytestmark = pytest.mark.interop

_CERTIFICATES = Path(__file__).parents[1] / "rmqnet" / "remoting" / "certificates"
_WRONG_SECRET = "wrongSecret-5d2a8"
_SECRETS = (ACCESS_KEY, SECRET_KEY, LIMITED_KEY, LIMITED_SECRET, _WRONG_SECRET)


class Secured(NamedTuple):
    """A cluster, RocketMQ's clients for it, and the right configuration."""

    cluster: LiveCluster
    judge: ClientNode
    config: ClientConfig
    certificates: Path


@pytest.fixture(scope="module", params=RELEASES)
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    certificates = directory / "certificates"
    with secured_cluster(directory, request.param) as cluster:
        config = ClientConfig(
            cluster.namesrv_addr,
            credentials=AclCredentials(ACCESS_KEY, SECRET_KEY),
            tls=TlsConfig(ca_file=str(certificates / "ca.pem")),
        )
        with secured_judge(directory / "judge", cluster, certificates) as judge:
            yield Secured(cluster, judge, config, certificates)


def _max_offset(config: ClientConfig, cluster: LiveCluster, topic: str) -> int:
    """Send the broker a request that it answers only to those who may see it."""
    queue = MessageQueue(topic, BROKER, 0)
    with ClientInstance(config) as client:
        client.call(client.route(topic))
        return client.call(client.broker.max_offset(cluster.address(), queue))


def _send(config: ClientConfig, topic: str) -> None:
    with Producer("signers", config) as producer:
        producer.send(Message(topic, b"signed"), timeout_s=30)


def _everything_said(err: BaseException, records: list[logging.LogRecord]) -> str:
    logged = [f"{record.getMessage()} {record.args!r} {record.exc_info}" for record in records]
    return "\n".join([*traceback.format_exception(err), repr(err), repr(err.args), *logged])


def _assert_no_secret(text: str) -> None:
    assert not [secret for secret in _SECRETS if secret in text]


def test_right_keys_and_authority_work(secured: Secured) -> None:
    topic = unique("secured")
    secured.judge.create_topic(topic, 1)
    secured.judge.start_producer(topic, topic)
    secured.judge.send(topic, topic, 3, seed=1)
    assert _max_offset(secured.config, secured.cluster, topic) == 3
    assert _max_offset(pickle.loads(pickle.dumps(secured.config)), secured.cluster, topic) == 3


def test_producers_and_consumers_sign_what_they_ask(secured: Secured) -> None:
    topic, group = unique("secured"), unique("group")
    secured.judge.create_topic(topic, 2)
    _send(secured.config, topic)
    assert [body_of(row) for row in secured.judge.pull_all(topic)] == [b"signed"]
    received: list[bytes] = []
    options = PushConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer(
        group,
        secured.config,
        lambda messages, _: received.extend(message.body for message in messages),
        orderly=True,  # requests for locks too
        options=options,
    )
    consumer.subscribe(topic)
    with consumer:
        assert wait_until(lambda: received, 60)
    assert received == [b"signed"]
    assert wait_until(lambda: sum(secured.judge.consumer_offsets(group, topic).values()) == 1)


def test_messages_are_found_by_key_and_by_id(secured: Secured) -> None:
    topic = unique("secured")
    secured.judge.create_topic(topic, 1)
    # Half a surrogate pair is no text; a broker reads a question mark, and checks that signature.
    message = Message(topic, b"signed", keys=["k"], properties={"half": "\ud83d"})
    with Producer("signers", secured.config) as producer:
        result = producer.send(message, timeout_s=30)
    with Admin(secured.config) as admin:
        assert wait_until(lambda: admin.query_message(topic, "k"))
        (found,) = admin.query_message_by_unique_key(topic, result.message_id)
        assert found.message_id == result.offset_message_id
        assert found.properties["half"] == "?"


def test_a_client_shows_its_certificate(secured: Secured) -> None:
    own, unknown = secured.certificates / "client", _CERTIFICATES / "server"
    authority = str(secured.certificates / "ca.pem")

    def config(path: Path) -> ClientConfig:
        tls = TlsConfig(authority, f"{path}.pem", f"{path}.key")
        return replace(secured.config, tls=tls)

    assert _max_offset(config(own), secured.cluster, "TBW102") == 0
    with pytest.raises(RemotingConnectError):
        _max_offset(config(unknown), secured.cluster, "TBW102")


@pytest.mark.spark
def test_spark_reads_and_shows_no_key(
    spark: SparkSession, secured: Secured, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = unique("secured")
    secured.judge.create_topic(topic, 1)
    secured.judge.start_producer(topic, topic)
    secured.judge.send(topic, topic, 3, seed=1)
    options = {
        "namesrvAddr": secured.cluster.namesrv_addr,
        "topic": topic,
        "accessKey": ACCESS_KEY,
        "useTLS": "true",
        "retryTimeout": "2s",  # 4.9.7 answers with a failure of its own
        "tlsCaFile": str(secured.certificates / "ca.pem"),
    }
    read = spark.read.format("rocketmq").options(**options).option("secretKey", SECRET_KEY).load()
    assert read.count() == 3
    read.explain(True)
    wrong = spark.read.format("rocketmq").options(**options).option("secretKey", _WRONG_SECRET)
    with pytest.raises(Exception, match=r"(?i)signature") as raised:
        wrong.load().count()
    said = capfd.readouterr()
    text = "\n".join([*traceback.format_exception(raised.value), said.out, said.err])
    assert not [secret for secret in (SECRET_KEY, _WRONG_SECRET) if secret in text]


@pytest.mark.parametrize(
    "credentials",
    [
        AclCredentials(ACCESS_KEY, _WRONG_SECRET),
        AclCredentials("nobodyKnowsMe", SECRET_KEY),
        None,
    ],
    ids=["wrong secret", "unknown account", "none"],
)
def test_wrong_keys_are_refused(
    secured: Secured, credentials: AclCredentials | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    topic = unique("secured")
    secured.judge.create_topic(topic, 1)
    config = replace(secured.config, credentials=credentials)
    with pytest.raises(BrokerError) as raised:
        _max_offset(config, secured.cluster, topic)
    assert raised.value.address == secured.cluster.address()
    assert raised.value.request == "GET_MAX_OFFSET"
    assert re.search(r"(?i)signature|acl|auth|user", raised.value.remark)
    said = _everything_said(raised.value, caplog.records)
    _assert_no_secret(said.replace(raised.value.remark, ""))  # which names the account
    assert not [secret for secret in (SECRET_KEY, _WRONG_SECRET) if secret in said]


def test_denied_topic_is_refused(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    if not secured.cluster.release.startswith("4"):
        pytest.skip("permissions of single topics are 4.9.7's part")
    caplog.set_level(logging.DEBUG)
    allowed = unique("secured")
    for topic in (DENIED_TOPIC, allowed):
        secured.judge.create_topic(topic, 1)
    limited = replace(secured.config, credentials=AclCredentials(LIMITED_KEY, LIMITED_SECRET))
    _send(limited, allowed)
    assert [body_of(row) for row in secured.judge.pull_all(allowed)] == [b"signed"]
    with pytest.raises(BrokerError, match=f"topic:{DENIED_TOPIC}") as raised:
        _send(limited, DENIED_TOPIC)
    said = _everything_said(raised.value, caplog.records)
    assert LIMITED_SECRET not in said


def test_unknown_authority_is_refused(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    other = TlsConfig(ca_file=str(secured.certificates / "other-ca.pem"))
    with pytest.raises(RemotingConnectError, match=r"(?i)certificate") as raised:
        _max_offset(replace(secured.config, tls=other), secured.cluster, "TBW102")
    _assert_no_secret(_everything_said(raised.value, caplog.records))


def test_wrong_host_name_is_refused(secured: Secured) -> None:
    tls = TlsConfig(ca_file=str(secured.certificates / "ca.pem"), server_hostname="broker.example")
    with pytest.raises(RemotingConnectError, match=r"broker\.example"):
        _max_offset(replace(secured.config, tls=tls), secured.cluster, "TBW102")


def test_unchecked_certificates_are_taken(secured: Secured) -> None:
    unchecked = replace(secured.config, tls=TlsConfig(verify=False))
    assert _max_offset(unchecked, secured.cluster, "TBW102") == 0


def test_plain_connections_are_refused(secured: Secured) -> None:
    with pytest.raises(RemotingConnectError):
        _max_offset(replace(secured.config, tls=None), secured.cluster, "TBW102")


def test_nothing_shows_the_keys(secured: Secured) -> None:
    _assert_no_secret(f"{secured.config!r} {secured.config} {secured.config.credentials!r}")
    with ClientInstance(secured.config) as client:
        _assert_no_secret(f"{client!r} {vars(client)!r}")


def test_the_command_line_signs_and_shows_no_key(secured: Secured, run: Run) -> None:  # noqa: F811
    topic = unique("secured_cli")
    secured.judge.create_topic(topic, 1)
    file = secured.certificates.parent / f"{topic}.yml"
    file.write_text(f"accessKey: {ACCESS_KEY}\nsecretKey: {SECRET_KEY}\n")
    ca_file = secured.certificates / "ca.pem"
    where = ("--namesrv", secured.cluster.namesrv_addr, "--credentials", file)
    tls = ("--option", "useTLS=true", "--option", f"tlsCaFile={ca_file}")
    asked = [
        run("send", *where, *tls, "--topic", topic, "--body", "signed"),
        run("topics", *where, *tls, "--topic", topic),
        run("messages", *where, *tls, "--topic", topic),
        run("lag", *where, *tls, "--topic", topic),
        run("tail", *where, *tls, "--topic", topic, "--since", "10m", "--limit", 1),
    ]
    assert [(each.code, each.err) for each in asked if each.code] == []
    assert all("signed" in asked[number].out for number in (2, 4))
    file.write_text(f"accessKey: {ACCESS_KEY}\nsecretKey: {_WRONG_SECRET}\n")
    for command in (("send", "--body", "x"), ("topics",), ("messages",)):
        refused = run(*command, *where, *tls, "--topic", topic)
        assert refused.code == NOT_DONE, command
        asked.append(refused)
    said = "".join(each.out + each.err for each in asked)
    # A broker that refuses may name the account.
    assert not [secret for secret in (SECRET_KEY, _WRONG_SECRET) if secret in said]
    assert run("topics", *where, *tls[:2], "--topic", topic).code == NOT_DONE  # not trusted
