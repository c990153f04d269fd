# SPDX-License-Identifier: Apache-2.0
"""``send`` and ``tail``: sent messages are shown as they come."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqsource.exit_codes import FOUND, GOOD, NOT_DONE
from tests.conftest import ROOT
from tests.rmqnet.scripted_cluster import wait_until
from tests.rmqsource.live.recorded_broker import RecordedCluster
from tests.rmqsource.live.sending_broker import SendingBroker

pytest.importorskip("typer")

JSON = ("--format", "json")
DEADLINE_S = 30


@pytest.fixture
def cluster():
    with RecordedCluster() as running:
        running.add_topic("orders", queues={"broker-a": 2, "broker-b": 1})
        running.a = SendingBroker(running.broker("broker-a"))
        running.b = SendingBroker(running.broker("broker-b"))
        yield running


@pytest.fixture
def ask(run, cluster):
    return lambda command, *more: run(
        command, "--namesrv", cluster.namesrv_addr, "--topic", "orders", *more
    )


@pytest.fixture
def typed(monkeypatch):
    """Set the standard input."""

    def give(text: bytes) -> None:
        stream = SimpleNamespace(buffer=io.BytesIO(text), isatty=lambda: False)
        monkeypatch.setattr(sys, "stdin", stream)

    return give


def shown(ask) -> list[dict]:
    """Return the messages on the brokers."""
    return ask("messages", *JSON).rows


class TestSend:
    def test_all_that_can_be_said_of_a_message(self, ask):
        sent = ask(
            *("send", "--body", "größe", "--key", "a,b", "--key", "c", "--tag", "paid"),
            *("--property", "region=eu", "--property", "empty=", "--delay-level", 3, *JSON),
        )
        assert (sent.code, sent.err) == (GOOD, "")
        (result,) = sent.rows
        (row,) = shown(ask)
        assert result["status"] == "SEND_OK"
        for name in ("topic", "queue_id", "queue_offset"):
            assert result[name] == row[name]
        assert row["store"].startswith(result["broker"] + "@")
        assert row["unique_key"] == result["message_id"]
        assert (row["body_text"], row["tags"], row["keys"]) == ("größe", "paid", ["a", "b", "c"])
        assert (row["properties"]["region"], row["properties"]["DELAY"]) == ("eu", "3")

    def test_count_goes_to_all_queues(self, ask):
        sent = ask("send", "--body", "x", "--count", 6, *JSON)
        places = {(row["broker"], row["queue_id"]) for row in sent.rows}
        assert places == {("broker-a", 0), ("broker-a", 1), ("broker-b", 0)}
        assert len(sent.rows) == len(shown(ask)) == 6

    def test_one_queue(self, ask):
        sent = ask("send", "--body", "x", "--count", 3, "--queue", "broker-a:1", *JSON)
        assert {(row["broker"], row["queue_id"]) for row in sent.rows} == {("broker-a", 1)}
        assert [row["queue_offset"] for row in sent.rows] == [0, 1, 2]
        assert {
            row["queue_id"] for row in ask("send", "--body", "x", "--queue", 1, *JSON).rows
        } == {1}

    @pytest.mark.parametrize(
        ("queue", "said"),
        [
            ("0", "--queue 0: exists on several brokers; give one of broker-a:0, broker-b:0"),
            ("7", "there is no such queue to send to; queues are broker-a:0, broker-a:1"),
            ("broker-c:0", "there is no such queue to send to"),
        ],
    )
    def test_wrong_queue(self, ask, queue, said):
        found = ask("send", "--body", "x", "--queue", queue)
        assert found.code == NOT_DONE
        assert said in found.err
        assert shown(ask) == []

    def test_file(self, ask, tmp_path):
        (tmp_path / "body").write_bytes(b"\x00\xff\n")
        assert ask("send", "--body-file", tmp_path / "body").code == GOOD
        assert [row["body"] for row in shown(ask)] == ["AP8K"]

    def test_lines(self, ask, typed):
        typed("one\r\n\nzwei ü\n\nlast".encode())
        sent = ask("send", *JSON)
        assert (sent.code, sent.err) == (GOOD, "2 empty lines were skipped\n")
        assert sorted(row["body_text"] for row in shown(ask)) == ["last", "one", "zwei ü"]
        assert len(sent.out.splitlines()) == 3

    def test_table_has_one_heading(self, ask, typed):
        typed(b"a\nb\n")
        sent = ask("send")
        heading, _, *rows = sent.out.splitlines()
        assert heading.split()[:3] == ["status", "topic", "broker"]
        assert [row.split()[0] for row in rows] == ["SEND_OK", "SEND_OK"]

    def test_nothing_to_send(self, ask, typed):
        typed(b"\n")
        sent = ask("send")
        assert sent.code == FOUND
        assert "nothing was sent" in sent.err

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("--body", ""), "--body: is empty"),
            (("--body", "a", "--body-file", "f"), "cannot be given together"),
            (("--body", "a", "--property", "x"), "--property: expected NAME=VALUE; found 'x'"),
            (("--body", "a", "--property", "TAGS=x"), "--property TAGS: is set by --tag"),
            (("--body", "a", "--property", "x=\x02"), "U+0001 or U+0002"),
            (("--body-file", "/none"), "/none: No such file"),
        ],
    )
    def test_wrong_use(self, ask, words, said):
        found = ask("send", *words)
        assert found.code == NOT_DONE
        assert said in found.err
        assert shown(ask) == []

    def test_unknown_topic_is_not_made(self, run, cluster):
        found = run("send", "--namesrv", cluster.namesrv_addr, "--topic", "order", "--body", "x")
        assert found.code == FOUND
        assert "knows no topic 'order', did you mean 'orders'?" in found.err
        assert "mqadmin updateTopic" in found.err

    def test_refused(self, ask, cluster):
        for broker in (cluster.a, cluster.b):
            broker.refusals = [ResponseCode.NO_PERMISSION] * 9
        found = ask("send", "--body", "x")
        assert found.code == NOT_DONE
        assert "told to refuse" in found.err


class TestTail:
    def test_since_until_shows_what_is_there(self, ask):
        ask("send", "--body", "old", "--tag", "paid", "--count", 3)
        ask("send", "--body", "other", "--tag", "open")
        found = ask("tail", "--since", "1h", "--until", "now", "--tag", "paid", *JSON)
        assert (found.code, found.err) == (GOOD, "")
        assert [row["body_text"] for row in found.rows] == ["old"] * 3
        times = [row["store_timestamp"] for row in found.rows]
        assert times == sorted(times)

    def test_nothing_came(self, ask):
        ask("send", "--body", "old")
        found = ask("tail", "--until", "now")
        assert (found.code, found.err) == (FOUND, "no message arrived\n")

    def test_limit_over_several_parts(self, ask):
        ask("send", "--body", "x", "--count", 9)
        parts = ("--option", "maxOffsetsPerTrigger=3")
        found = ask("tail", "--since", "1h", "--limit", 7, *parts, *JSON)
        assert (found.code, len(found.rows)) == (GOOD, 7)

    def test_a_broker_that_does_not_give_is_asked_again(self, ask, cluster):
        ask("send", "--body", "x", "--count", 6)
        cluster.a.failures = [ResponseCode.SYSTEM_BUSY] * 20
        quick = ("--option", "retryTimeout=50ms", "--option", "startingOffsets=earliest")
        found = ask("tail", "--limit", 6, *quick, *JSON)
        assert found.code == GOOD
        places = {(row["store"], row["queue_id"], row["queue_offset"]) for row in found.rows}
        assert len(places) == 6
        assert found.err.count("waiting: cluster ") == 1

    def test_a_broker_that_does_not_say_where_a_time_begins(self, ask, cluster):
        ask("send", "--body", "x", "--count", 6)
        cluster.a.failures = [ResponseCode.SYSTEM_BUSY] * 1000
        found = ask("tail", "--since", "1h", "--limit", 2, "--option", "retryTimeout=50ms")
        assert (found.code, found.out) == (NOT_DONE, "")
        assert "told to fail" in found.err

    def test_ends_where_messages_never_do(self, ask, cluster):
        ask("send", "--body", "x", "--count", 60, "--queue", "broker-a:0")
        queue, answers = cluster.a.queues["orders", 0], cluster.a.server.answers
        queue.hidden = 59
        say_end = answers[RequestCode.GET_MAX_OFFSET]

        def one_more(request):
            queue.hidden = max(queue.hidden - 1, 0)
            return say_end(request)

        answers[RequestCode.GET_MAX_OFFSET] = one_more
        found = ask("tail", "--since", "1h", "--until", "now", *JSON)
        assert found.code == GOOD
        assert 0 < len(found.rows) < 20

    def test_wrong_times(self, ask):
        found = ask("tail", "--since", "1m", "--until", "1h")
        assert (found.code, "are the two swapped?" in found.err) == (NOT_DONE, True)

    @pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
    def test_follows_until_a_signal(self, ask, cluster, end):
        ask("send", "--body", "before")
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        command = ("tail", "--namesrv", cluster.namesrv_addr, "--topic", "orders", *JSON)
        process = subprocess.Popen(
            [sys.executable, "-m", "rmqsource.cli", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        guard = threading.Timer(DEADLINE_S, process.kill)
        guard.start()
        try:
            wait_until(lambda: looked(cluster), "tail looks at the ends", DEADLINE_S)
            assert ask("send", "--body", "after").code == GOOD
            assert json.loads(process.stdout.readline())["body_text"] == "after"
            process.send_signal(end)
            out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            guard.cancel()
            process.kill()
            process.communicate()
        assert (process.returncode, out, err) == (GOOD, b"", b"")


def looked(cluster) -> bool:
    """Return whether the ends of all queues were requested twice."""
    asked = [broker.server.asked(RequestCode.GET_MAX_OFFSET) for broker in (cluster.a, cluster.b)]
    return len(asked[0]) >= 4 and len(asked[1]) >= 2
