# SPDX-License-Identifier: Apache-2.0
"""The command line on real clusters: it shows messages sent by Java, and Java receives its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqsource.exit_codes import FOUND, GOOD, NOT_DONE
from tests.interop.client_node import ClientNode, body_of, queue_of, wait_until
from tests.interop.live_cluster import LiveCluster, unique
from tests.rmqsource.cli.command_line import Run
from tests.rmqsource.conftest import run  # noqa: F401 (a fixture)

pytestmark = pytest.mark.interop
pytest.importorskip("typer")

JSON = ("--format", "json")
COUNT = 60


def test_every_command(
    live_cluster: LiveCluster,
    tmp_path: Path,
    run: Run,  # noqa: F811 (the fixture)
) -> None:
    namesrv = live_cluster.namesrv_addr
    topic, group = unique("cli"), unique("cli_group")
    of_topic = ("--namesrv", namesrv, "--topic", topic)
    with ClientNode(tmp_path / "jvm", live_cluster.release, namesrv) as java:
        java.create_topic(topic)
        java.start_producer("p", unique("cli_producer"))
        sent = java.send("p", topic, COUNT, seed=1, tags=["a", "b"])
        rows = rows_of_java(run, namesrv, topic, {r["keys"]: r for r in java.pull_all(topic)})

        (row,) = run("topics", *of_topic, *JSON).rows
        assert (row["queues"], row["messages"], row["kind"]) == (4, COUNT, "normal")
        assert row["max_store_timestamp"] == max(r["store_timestamp"] for r in rows)
        assert topic in {row["topic"] for row in run("topics", "--namesrv", namesrv, *JSON).rows}
        near = run("topics", "--namesrv", namesrv, "--topic", topic + "x")
        assert (near.code, repr(topic) in near.err) == (FOUND, True)

        java.start_consumer("c", group, {topic: "*"})
        assert len(sent) == COUNT
        java.wait_received("c", COUNT)
        java.close_when_consumed("c", topic, COUNT)  # it reports its offsets
        lag = ("lag", "--namesrv", namesrv, "--group", group, "--topic", topic)
        assert wait_until(lambda: sum(java.consumer_offsets(group, topic).values()) == COUNT)
        behind = run(*lag, *JSON)
        assert {row["queue_id"]: row["consumer_offset"] for row in behind.rows} == {
            queue[2]: offset for queue, offset in java.consumer_offsets(group, topic).items()
        }
        assert {row["lag"] for row in behind.rows} == {0}

        words = ("--body", "größe", "--key", "cli-1", "--tag", "c", "--property", "region=eu")
        (result,) = run("send", *of_topic, *words, "--queue", "broker-a:2", *JSON).rows
        (arrived,) = java.pull_all(topic, expression="c")
        assert (body_of(arrived).decode(), arrived["keys"]) == ("größe", "cli-1")
        assert (queue_of(arrived)[2], arrived["queue_offset"]) == (2, result["queue_offset"])
        assert arrived["properties"]["region"] == "eu"
        alert = run(*lag, "--fail-above", "0", *JSON)
        assert (alert.code, sum(row["lag"] for row in alert.rows)) == (FOUND, 1)

        tail = run("tail", *of_topic, "--tag", "c", "--since", "10m", "--limit", 1, *JSON)
        assert [row["message_id"] for row in tail.rows] == [result["offset_message_id"]]
        refused = run("send", *of_topic, "--body", "x", "--property", "a=\x02")
        assert refused.code == NOT_DONE


def rows_of_java(ask: Run, namesrv: str, topic: str, pulled: dict[str, Any]) -> list[Any]:
    """Return all rows; first compare every way to read them with Java's pulls, by key."""
    of_topic = ("--namesrv", namesrv, "--topic", topic)
    found = ask("messages", *of_topic, "--limit", 0, *JSON)
    assert (found.code, found.err) == (GOOD, "")
    assert {row["keys"][0] for row in found.rows} == {f"K1-{i}" for i in range(COUNT)}
    times = [row["store_timestamp"] for row in found.rows]
    assert times == sorted(times)
    for row in found.rows:
        of_java = pulled[row["keys"][0]]
        assert (row["queue_id"], row["queue_offset"]) == (
            queue_of(of_java)[2],
            of_java["queue_offset"],
        )
        assert row["body_text"].encode() == body_of(of_java)

    by_tag = ask("messages", *of_topic, "--tag", "b", *JSON)
    assert len(by_tag.rows) == COUNT // 2
    by_sql = ask("messages", *of_topic, "--sql", "TAGS = 'a'", *JSON)
    assert len(by_sql.rows) == COUNT // 2

    (wanted,) = [row for row in found.rows if row["keys"] == ["K1-7"]]
    assert ask("messages", *of_topic, "--key", "K1-7", *JSON).rows == [wanted]
    by_id = ask("messages", "--namesrv", namesrv, "--id", wanted["message_id"], *JSON)
    assert (by_id.rows, by_id.err) == ([wanted], "found by offset message id\n")
    by_key = ask("messages", *of_topic, "--id", wanted["unique_key"], *JSON)
    assert (by_key.rows, by_key.err) == ([wanted], "found by unique key\n")
    assert ask("messages", *of_topic, "--key", "none").code == FOUND
    return found.rows
