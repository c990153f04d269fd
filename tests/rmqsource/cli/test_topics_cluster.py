# SPDX-License-Identifier: Apache-2.0
"""``topics`` and ``lag`` of a running cluster, and the ways to name the cluster."""

from __future__ import annotations

import pytest

from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqsource.exit_codes import FOUND, GOOD, NOT_DONE
from tests.golden_store import golden
from tests.rmqnet.scripted_cluster import answer
from tests.rmqsource.live.recorded_broker import RecordedCluster

pytest.importorskip("typer")

STORE = golden("cluster-5x")
JSON = ("--format", "json")


@pytest.fixture
def cluster():
    with RecordedCluster() as running:
        running.served = running.serve(STORE)
        yield running


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch):
    for name in ("ACCESS_KEY", "SECRET_KEY", "SECURITY_TOKEN", "TLS_KEY_PASSWORD"):
        monkeypatch.delenv(f"ROCKETMQ_{name}", raising=False)


@pytest.fixture
def ask(run, cluster):
    return lambda command, *more: run(command, "--namesrv", cluster.namesrv_addr, *more)


def test_topics_are_those_of_the_files(ask, run):
    files = {row["topic"]: row for row in run("topics", STORE.root, *JSON).rows}
    found = ask("topics", *JSON)
    assert found.code == GOOD, found.err
    assert found.rows == sorted(found.rows, key=lambda row: (-row["messages"], row["topic"]))
    held = [row for row in found.rows if row["messages"]]
    assert {row["topic"] for row in held} == {t for t, row in files.items() if row["messages"]}
    for row in held:
        of_files = files[row["topic"]]
        assert row["messages"] == of_files["messages"]
        assert row["max_store_timestamp"] == of_files["max_store_timestamp"]
        assert row["brokers"] == ["broker-a"]
        assert row["min_offset"] < row["max_offset"]


def test_a_topic_of_two_brokers_has_one_row(ask, cluster):
    cluster.serve(STORE, "broker-b")
    (row,) = ask("topics", "--topic", "orders", *JSON).rows
    queues = [q for (topic, _), q in cluster.served.queues.items() if topic == "orders"]
    assert (row["queues"], row["brokers"]) == (2 * len(queues), ["broker-a", "broker-b"])
    assert row["messages"] == 2 * sum(q.max_offset - q.min_offset for q in queues)


def test_a_table_for_people(ask):
    shown = ask("topics", "--topic", "orders")
    assert shown.code == GOOD
    head, _, row = shown.out.splitlines()
    assert head.split()[:4] == ["topic", "kind", "queues", "messages"]
    assert row.split()[:3] == ["orders", "normal", "4"]
    assert row.endswith("broker-a")


def test_unknown_topic_is_told_with_the_nearest(ask):
    for command in ("topics", "lag", "messages", "tail"):
        found = ask(command, "--topic", "order")
        assert found.code == FOUND, command
        assert "knows no topic 'order', did you mean 'orders'?" in found.err
    assert len(ask("topics", "--topic", "orders,order", *JSON).rows) == 1


def test_a_broker_that_refuses_is_told(ask, cluster):
    cluster.served.server.answers[RequestCode.GET_TOPIC_STATS_INFO] = lambda request: answer(
        request, ResponseCode.NO_PERMISSION, "no"
    )
    found = ask("topics", "--topic", "orders", *JSON)
    assert found.code == NOT_DONE
    assert "topic 'orders' on broker broker-a: " in found.err
    assert "code 16: no" in found.err


def test_a_broker_that_cannot_be_reached_is_told_with_its_origin(ask, cluster):
    cluster.served.server.stop()
    found = ask("lag", "--option", "retryTimeout=100ms")
    assert found.code == NOT_DONE
    assert f"cannot connect to {cluster.served.server.address}" in found.err
    found = ask("topics", "--topic", "orders")
    assert found.code == NOT_DONE
    assert "set the broker's brokerIP1 to an address that it can reach" in found.err


def test_name_servers_that_do_not_answer(run):
    for command in ("topics", "lag", "tail --topic orders", "messages --topic orders"):
        found = run(*command.split(), "--namesrv", "127.0.0.1:1", "--option", "retryTimeout=1ms")
        assert found.code == NOT_DONE, command
        assert "no name server answers (127.0.0.1:1: cannot connect" in found.err


def test_lag_is_that_of_the_files(ask, run, cluster):
    files = {
        (row["group"], row["topic"], row["queue_id"]): row
        for row in run("lag", STORE.root, *JSON).rows
    }
    for key, row in files.items():
        cluster.served.committed[key] = row["consumer_offset"]
    known = {topic for topic, _ in cluster.served.queues}
    found = ask("lag", *JSON)
    assert found.code == GOOD, found.err
    assert len(found.rows) == len(files)
    for row in found.rows:
        key = (row["group"], row["topic"], row["queue_id"])
        if row["topic"] in known:
            assert {**row, "store": ""} == {**files[key], "store": ""}


def test_lag_of_groups_and_alerts(ask, cluster):
    cluster.served.committed.update({("billing", "orders", 0): 1, ("audit", "orders", 1): 2})
    found = ask("lag", "--group", "billing", *JSON)
    assert [(row["group"], row["consumer_offset"]) for row in found.rows] == [("billing", 1)]
    unknown = ask("lag", "--group", "biling")
    assert unknown.code == FOUND
    assert "no consumer group with an offset 'biling', did you mean 'billing'?" in unknown.err
    alert = ask("lag", "--topic", "orders", "--fail-above", "0")
    assert alert.code == FOUND
    assert "alert: group 'audit' is behind in topic 'orders' by " in alert.err


def test_an_offset_beyond_the_end_is_an_alert(ask, cluster):
    cluster.served.committed[("billing", "orders", 0)] = 999_999
    found = ask("lag", "--group", "billing", *JSON)
    assert (found.code, found.rows[0]["lag"] < 0) == (GOOD, True)
    assert "group 'billing' is 999," in found.err
    assert ask("lag", "--group", "billing", "--fail-above", "1000000000").code == FOUND


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("topics", "give either PATH (the files of a store) or --namesrv HOST:PORT"),
        ("topics {store} --namesrv h:1", "--namesrv: cannot be given together with PATH"),
        ("lag --namesrv h:1 --config broker.conf", "--config: applies only to files"),
        ("messages {store} --credentials f", "--credentials: applies only to --namesrv"),
        ("topics --namesrv h", "--namesrv: expected HOST:PORT"),
        ("topics --namesrv h:1 --option accessKey=a", "set ROCKETMQ_ACCESS_KEY"),
        ("topics --namesrv h:1 --option secretkey=s3cr3t", "set ROCKETMQ_SECRET_KEY"),
        ("topics --namesrv h:1 --option secretKey:s3cr3t", "set ROCKETMQ_SECRET_KEY"),
        ("topics --namesrv h:1 --option tlsCaFile=ca.pem", "--option tlsCaFile: has no effect"),
        ("topics --namesrv h:1 --option nothing=1", "--option nothing: "),
        ("messages --namesrv h:1", "--topic: is required"),
        ("messages --namesrv h:1 --topic a --follow", "rocketmq-store tail"),
        ("messages --namesrv h:1 --topic a --last 3", "--last: applies only to files"),
        ("tail --topic a", "--namesrv: is required"),
        ("tail --namesrv h:1", "--topic: is required"),
        ("send --topic a --body b", "--namesrv: is required"),
    ],
)
def test_wrong_use(run, words, said):
    found = run(*words.format(store=STORE.root).split())
    assert found.code == NOT_DONE
    assert said in found.err
    assert "s3cr3t" not in found.err


class TestCredentials:
    """Requests are signed with credentials of a file or the environment, which are never shown."""

    def signed_by(self, cluster) -> set[str | None]:
        asked = cluster.served.server.asked(RequestCode.GET_TOPIC_STATS_INFO)
        assert asked
        assert all("s3cr3t" not in str(request.ext_fields) for request in asked)
        return {
            request.ext_fields.get("AccessKey") if "Signature" in request.ext_fields else None
            for request in asked
        }

    def test_environment(self, ask, cluster, monkeypatch):
        monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "reader")
        monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "s3cr3t")
        assert ask("topics", "--topic", "orders").code == GOOD
        assert self.signed_by(cluster) == {"reader"}

    def test_file_as_tools_yml(self, ask, cluster, monkeypatch, tmp_path):
        monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "another")
        file = tmp_path / "tools.yml"
        file.write_text("# of mqadmin\naccessKey: reader\n\nsecretKey: 's3cr3t'\n")
        assert ask("topics", "--topic", "orders", "--credentials", file).code == GOOD
        assert self.signed_by(cluster) == {"reader"}

    def test_none(self, ask, cluster):
        assert ask("topics", "--topic", "orders").code == GOOD
        assert self.signed_by(cluster) == {None}

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("accesKey: s3cr3t", "line 1: expected 'KEY: VALUE'"),
            ("accesKey: s3cr3t", "did you mean 'accessKey'?"),
            ("\ns3cr3t", "line 2: expected"),
            ("# nothing", "has neither accessKey nor secretKey"),
            ("accessKey: s3cr3t", "requires 'secretKey'"),
        ],
    )
    def test_bad_file(self, ask, tmp_path, monkeypatch, text, said):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "credentials").write_text(text)
        found = ask("topics", "--credentials", "credentials")
        assert found.code == NOT_DONE
        assert said in found.err
        assert "s3cr3t" not in found.err

    def test_missing_or_binary_file(self, ask, tmp_path):
        assert ask("topics", "--credentials", tmp_path / "none").code == NOT_DONE
        (tmp_path / "binary").write_bytes(b"\xff\xfe")
        found = ask("topics", "--credentials", tmp_path / "binary")
        assert (found.code, "is not UTF-8 text" in found.err) == (NOT_DONE, True)

    def test_half_of_the_environment(self, ask, monkeypatch):
        monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "s3cr3t")
        found = ask("topics")
        assert found.code == NOT_DONE
        assert "$ROCKETMQ_SECRET_KEY: requires 'accessKey'; give both or neither" in found.err
