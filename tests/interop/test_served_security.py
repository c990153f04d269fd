# SPDX-License-Identifier: Apache-2.0
"""Accounts, certificates and figures of ``serve``, as RocketMQ's own clients see them.

A broker of 4.9.7 has the same accounts: both get the same requests, and must give the same answers.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqnet.namesrv.name_server import NameServer
from rmqnet.namesrv.name_server_config import NameServerConfig
from tests.interop.client_node import ClientNode, numbered_key, wait_until
from tests.interop.java_cluster import RELEASES
from tests.interop.live_cluster import BROKER, LiveCluster, unique
from tests.interop.python_server import OURS
from tests.interop.secured import make_certificates
from tests.rmqsource.cli.serving import Serving

pytestmark = pytest.mark.interop
parser = pytest.importorskip("prometheus_client.parser")

_ACCOUNTS = """
globalWhiteRemoteAddresses: [10.1.2.*]
accounts:
- accessKey: operator
  secretKey: secret-of-operator
  admin: true
- accessKey: till-one
  secretKey: secret-of-till
  topicPerms: [orders=PUB|SUB, returns=PUB, menus=SUB, wages=DENY]
  groupPerms: [cooks=SUB, waiters4=SUB, waiters5=SUB, banned=DENY]
- accessKey: broad-one
  secretKey: secret-of-broad
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms: [wages=DENY]
  groupPerms: [banned=DENY]
- {accessKey: trusted, secretKey: secret-of-trusted, whiteRemoteAddress: 127.0.0.*}
- {accessKey: elsewhere, secretKey: secret-of-elsewhere, whiteRemoteAddress: 10.1.2.3}
"""
_CALLERS: dict[str, Sequence[str]] = {
    "operator": ("operator", "secret-of-operator"),
    "till": ("till-one", "secret-of-till"),
    "broad": ("broad-one", "secret-of-broad"),
    "wrong secret": ("till-one", "secret-of-another"),
    "unknown": ("nobody-known", "secret-of-till"),
    "nobody": (),
    "trusted": ("trusted", "secret-of-another"),
    "elsewhere": ("elsewhere", "secret-of-another"),
}
_ADMINS = ("operator", "till", "wrong secret")
_TOPICS = ("orders", "returns", "menus", "wages")
_NODE_SECONDS = 300
_DIFFERENT = {("till", "batch to wages"), ("broad", "batch to wages")}
"""Requests that 4.9.7 does not check; see docs/differences.md."""


class Asked(NamedTuple):
    """A broker, and the address at which clients find it."""

    namesrv_addr: str
    outcomes: dict[tuple[str, str], str]


class Asker:
    """RocketMQ's clients of one release, which act as one caller after the other."""

    def __init__(self, node: ClientNode) -> None:
        self.node = node

    def become(self, namesrv_addr: str, caller: str, **more: Any) -> None:
        names = ("access_key", "secret_key")
        given = dict(zip(names, _CALLERS[caller]))
        self.node.ask("connect", namesrv_addr=namesrv_addr, **given, **more)

    def outcome(self, do: str, **arguments: Any) -> str:
        """Return ``ok``, or the caller's error without the parts that differ between brokers."""
        answer = self.node.exchange(json.dumps({"do": do, **arguments}))
        if "error" in answer:
            return _told(answer["error"])
        found = answer["answer"]
        failed = found.get("failed") if isinstance(found, dict) else None
        return _told(failed[0]["error"]) if failed else "ok"

    def try_all(self, namesrv_addr: str) -> dict[tuple[str, str], str]:
        """Let each caller try everything."""
        found = {}
        for caller in _CALLERS:
            self.become(namesrv_addr, caller)
            if caller == "operator":
                for topic in _TOPICS:
                    self.node.create_topic(topic, 1)
            # One producer for all, which is not closed: closing a new 5.x client takes 3 s.
            name = unique("sender")
            self.node.start_producer(name, "tills", transactional=True, timeout_ms=3000)
            for what, how in _SENDS.items():
                found[caller, what] = self.outcome(**how, name=name)
            for what, how in _READS.items():
                found[caller, what] = self.outcome(**how)
            if caller in _ADMINS:
                for what, how in _CHANGES.items():
                    found[caller, what] = self.outcome(**how)
        return found


def _told(error: str) -> str:
    first = re.split(r"\n|, org\.apache\.rocketmq\.acl\.|\s+BROKER: ", error)[0].strip()
    return re.sub(r"cost \[\d+\]ms", "cost", re.sub(r"(topic|group): ", r"\1:", first))


def _send(topic: str, **more: Any) -> dict[str, Any]:
    message = {"body": "one tea", "keys": "tea", "properties": {"local": "commit"}}
    return {"do": "send", "topic": topic, "messages": [message], "mode": "async", **more}


def _pull(topic: str, group: str) -> dict[str, Any]:
    place = {"broker": BROKER, "queue_id": 0, "offset": 0}
    return {"do": "pull", "topic": topic, "group": group, **place}


_SENDS = {
    **{f"send to {topic}": _send(topic) for topic in _TOPICS},
    "wait for orders": _send("orders", mode="sync"),
    "wait for wages": _send("wages", mode="sync"),
    "batch to wages": _send("wages", mode="batch"),
    "transaction of orders": _send("orders", mode="transaction"),
    "transaction of wages": _send("wages", mode="transaction"),
}
_READS = {
    "pull": _pull("orders", "cooks"),
    "pull for banned": _pull("orders", "banned"),
    "pull wages": _pull("wages", "cooks"),
    "pull returns": _pull("returns", "cooks"),
}
_WAGES = _READS["pull wages"]
_CHANGES: dict[str, dict[str, Any]] = {
    "create a topic": {"do": "create_topic", "topic": "new", "queues": 1},
    "create a group": {"do": "create_group", "group": "new"},
    "set": {"do": "update_broker_config", "settings": {"flushConsumerOffsetInterval": "900"}},
    "delete a topic": {"do": "delete_topic", "topic": "new"},
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served-security")


@pytest.fixture(scope="module")
def accounts(directory: Path) -> Path:
    home = directory / "home"
    (home / "conf" / "acl").mkdir(parents=True)
    file = home / "conf" / "plain_acl.yml"
    file.write_text(_ACCOUNTS)
    return file


@pytest.fixture(scope="module")
def certificates(directory: Path) -> Path:
    make_certificates(directory / "certificates", RELEASES[0])
    return directory / "certificates"


@pytest.fixture(scope="module")
def theirs(directory: Path, accounts: Path) -> Iterator[str]:
    """A broker of RocketMQ, whose name server has no accounts."""
    with LiveCluster(
        directory / "theirs",
        "4.9.7",
        releases={"name-server-0": OURS},
        settings={"aclEnable": "true"},
        properties=[f"rocketmq.home.dir={accounts.parent.parent}"],
    ) as cluster:
        yield cluster.namesrv_addr


@pytest.fixture(scope="module")
def config(directory: Path) -> Path:
    file = directory / "broker.conf"
    file.write_text(f"brokerName={BROKER}\nmappedFileSizeCommitLog=16777216\n")
    return file


@pytest.fixture(scope="module")
def ours(directory: Path, accounts: Path, config: Path) -> Iterator[str]:
    """A broker of ours with the same accounts; its name server has none either."""
    with NameServer(NameServerConfig(port=0)) as names:
        where = ("--port", 0, "--namesrv", names.address)
        more = ("--acl", accounts, "--config", config)
        with Serving(directory / "ours", *where, *more, deadline_s=_NODE_SECONDS):
            yield names.address


@pytest.fixture(scope="module")
def guarded(
    directory: Path, accounts: Path, config: Path, certificates: Path
) -> Iterator[dict[str, Any]]:
    """A broker and a name server of ours that require accounts, and client certificates."""
    server = certificates / "server"
    with Serving(
        directory / "guarded",
        *("--port", 0, "--with-namesrv", 0, "--config", config, "--acl", accounts),
        *("--tls-cert", f"{server}.pem", "--tls-key", f"{server}.key"),
        *("--tls-ca", certificates / "ca.pem", "--metrics", 0),
        deadline_s=_NODE_SECONDS,
    ) as serving:
        yield serving.first


@pytest.fixture(scope="module", params=RELEASES)
def asker(request: pytest.FixtureRequest, directory: Path, certificates: Path) -> Iterator[Asker]:
    client = certificates / "client"
    properties = [
        "tls.test.mode.enable=false",
        "tls.client.authServer=true",
        f"tls.client.trustCertPath={certificates / 'ca.pem'}",
        f"tls.client.certPath={client}.pem",
        f"tls.client.keyPath={client}.key",
        f"tls.config.file={directory / 'none'}",
    ]
    home = directory / f"clients-{request.param}"
    with ClientNode(home, request.param, "127.0.0.1:1", properties=properties) as node:
        yield Asker(node)


@pytest.fixture(scope="module")
def outcomes(asker: Asker, ours: str, theirs: str) -> tuple[dict[Any, str], dict[Any, str]]:
    """The answers of our broker, and of theirs."""
    return asker.try_all(ours), asker.try_all(theirs)


def test_a_broker_of_rocketmq_says_the_same(
    outcomes: tuple[dict[Any, str], dict[Any, str]],
) -> None:
    found, wanted = outcomes
    differences = {
        what: (said, wanted[what])
        for what, said in found.items()
        if said != wanted[what] and what not in _DIFFERENT
    }
    assert differences == {}
    for what in _DIFFERENT:
        assert wanted[what] == "ok"
        assert found[what] == wanted[what[0], "wait for wages"]


def test_each_may_do_what_its_account_says(
    outcomes: tuple[dict[Any, str], dict[Any, str]],
) -> None:
    found, _ = outcomes
    for caller in ("operator", "trusted"):
        assert {said for (who, _), said in found.items() if who == caller} == {"ok"}
    failed = "MQBrokerException: CODE: 1  DESC: org.apache.rocketmq.acl.common.AclException: "
    reasons = {
        "wrong secret": "Check signature failed for accessKey=till-one",
        "unknown": "No acl config for nobody-known",
        "nobody": "No accessKey is configured",
        "elsewhere": "Check signature failed for accessKey=elsewhere",
    }
    for caller, reason in reasons.items():
        assert found[caller, "pull"].endswith(failed + reason)
        assert found[caller, "send to orders"].endswith(failed + reason)
        assert "Send [3] times, still failed" in found[caller, "wait for orders"]
    refused = {what for (who, what), said in found.items() if who == "till" and said != "ok"}
    sends = {"send to menus", "send to wages", "wait for wages", "batch to wages"}
    reads = {"pull for banned", "pull wages", "pull returns"}
    assert refused == {*sends, "transaction of wages", *reads, *_CHANGES}
    assert found["till", "send to menus"].endswith("No default permission for topic:menus")
    assert found["till", "pull for banned"].endswith("No default permission for group:banned")
    code = "Need admin permission for request code=17, but accessKey=till-one is not"
    assert found["till", "create a topic"].endswith(code)


@pytest.mark.usefixtures("outcomes")
def test_a_group_that_is_denied_gets_nothing(asker: Asker, ours: str, theirs: str) -> None:
    node, group = asker.node, f"waiters{asker.node.release[0]}"
    for namesrv_addr in (ours, theirs):
        asker.become(namesrv_addr, "till")
        count = len(node.pull_all("orders", "cooks"))
        good, bad = unique("good"), unique("bad")
        node.start_consumer(bad, "banned_too", {"orders": "*"})
        node.start_consumer(good, group, {"orders": "*"})
        assert len(node.wait_received(good, count)) == count
        asker.become(namesrv_addr, "operator")
        said = {
            name: asker.outcome("consumer_connections", group=name)
            for name in (group, "banned_too")
        }
        assert said[group] == "ok", said
        nowhere = "No topic route info in name server for the topic:%RETRY%banned_too"
        assert said["banned_too"].endswith(nowhere), said
        assert node.close_consumer(bad) == []  # otherwise it gets in when accounts change


@pytest.mark.usefixtures("outcomes")
def test_accounts_that_change_count_at_once(asker: Asker, ours: str, accounts: Path) -> None:
    changes = {
        "till": ("wages=DENY", "wages=SUB", "No default permission for topic:wages"),
        "nobody": ("[10.1", "[127.0.0.1, 10.1", "No accessKey is configured"),
    }
    try:
        for caller, (old, new, refusal) in changes.items():
            asker.become(ours, caller)
            changed = _ACCOUNTS.replace(old, new, 1)
            for text, said in ((_ACCOUNTS, refusal), (changed, "ok"), (_ACCOUNTS, refusal)):
                accounts.write_text(text)
                assert wait_until(lambda: asker.outcome(**_WAGES).endswith(said), 10)  # noqa: B023
    finally:
        accounts.write_text(_ACCOUNTS)


def test_certificates_and_figures(
    asker: Asker, guarded: dict[str, Any], certificates: Path
) -> None:
    node, address = asker.node, guarded["namesrv"]
    known = {
        "tls": True,
        "trust": str(certificates / "ca.pem"),
        "certificate": str(certificates / "client.pem"),
        "key": str(certificates / "client.key"),
    }
    topic, group, sender = unique("orders"), unique("cooks"), unique("sender")
    asker.become(address, "operator", **known)
    node.create_topic(topic, 2)
    node.start_producer(sender, "tills")
    rows = node.send(sender, topic, 5, seed=1)
    rows += node.send(sender, topic, 6, seed=2, mode="batch", batch_size=3)
    consumer = unique("consumer")
    node.start_consumer(consumer, group, {topic: "*"})
    received = node.wait_received(consumer, len(rows))
    keys = sorted([numbered_key(1, n) for n in range(5)] + [numbered_key(2, n) for n in range(6)])
    assert sorted(row["keys"] for row in received) == keys
    consumers = _figures(guarded["metrics"], consumer_group=group)
    assert consumers["rocketmq_consumer_connections"] == 1
    node.close_consumer(consumer)
    _check_figures(guarded["metrics"], topic, group, received)
    node.send(sender, topic, 3, seed=3)
    lag = "rocketmq_consumer_lag_messages"
    assert wait_until(
        lambda: _figures(guarded["metrics"], topic=topic, consumer_group=group).get(lag) == 3
    )
    strangers = {
        "nobody's": {"certificate": "", "key": ""},
        "distrustful": {"trust": str(certificates / "other-ca.pem")},
        "plain": {"tls": False},
    }
    for name, strange in strangers.items():
        asker.become(address, "operator", **{**known, **strange})
        node.start_producer(name, "tills", retries=0, timeout_ms=3000)
        node.ask("start_sending", name=name, topic=topic, count=1, seed=4)
    for name in strangers:
        (failed,) = node.ask("join_sending", name=name)["failed"]
        assert re.search(r"No route info|Remoting\w+Exception", failed["error"]), name
    asker.become(address, "wrong secret", **known)
    said = asker.outcome("topics")
    assert said.endswith("Check signature failed for accessKey=till-one")


def _check_figures(address: str, topic: str, group: str, received: list[dict[str, Any]]) -> None:
    """Compare what Prometheus reads with what clients got."""
    count, size = len(received), sum(row["store_size"] for row in received)
    came = _figures(address, topic=topic)
    assert came["rocketmq_messages_in_total"] == count
    assert came["rocketmq_throughput_in_total"] == size
    left = _figures(address, topic=topic, consumer_group=group)
    assert left["rocketmq_messages_out_total"] == count
    assert left["rocketmq_throughput_out_total"] == size
    assert left["rocketmq_consumer_lag_messages"] == 0


def _figures(address: str, **labels: str) -> dict[str, float]:
    """Return the figures with certain labels, by name."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        sample.name: sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
        if labels.items() <= sample.labels.items()
    }
