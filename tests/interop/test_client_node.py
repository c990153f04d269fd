"""RocketMQ's own clients obey: what they send they also receive, and admin says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.client_node import (
    ClientNode,
    body_of,
    numbered_body,
    numbered_key,
    queue_of,
    wait_until,
)
from tests.interop.live_cluster import LiveCluster, unique

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("live_cluster", ["5.3.3"], indirect=True)  # others use both
def test_java_talks_to_itself(live_cluster: LiveCluster, tmp_path: Path) -> None:
    topic, group = unique("topic"), unique("group")
    with ClientNode(tmp_path / "jvm", live_cluster.release, live_cluster.namesrv_addr) as java:
        java.create_topic(topic)
        java.start_producer("p", group)
        keys = {numbered_key(seed, i) for seed in (1, 2, 3) for i in range(20)}
        java.send("p", topic, 20, seed=1, tags=["a", "b"])
        java.send("p", topic, 20, seed=2, mode="async", size=5000)
        java.send("p", topic, 20, seed=3, mode="batch", batch_size=7)
        pulled = java.pull_all(topic)
        assert {row["keys"] for row in pulled} == keys
        assert {row["keys"] for row in java.pull_all(topic, expression="b")} == {
            numbered_key(1, i) for i in range(1, 20, 2)
        }
        assert all(
            body_of(row) == numbered_body(2, int(row["properties"]["number"]), 5000)
            for row in pulled
            if row["keys"].startswith("K2-")
        )
        java.start_consumer("c1", group, {topic: "*"}, fail_first=1)
        java.start_consumer("c2", group, {topic: "*"}, fail_first=1)
        assert wait_until(
            lambda: (
                {row["keys"] for name in ("c1", "c2") for row in java.received(name) if row["ok"]}
                == keys
            )
        )
        assert wait_until(
            lambda: len([*java.allocation("c1"), *java.allocation("c2")]) == 4 + 1  # %RETRY%
        )
        assert wait_until(lambda: sum(java.consumer_offsets(group, topic).values()) == len(keys))
        assert {queue_of(row) for row in java.ask("topic_stats", topic=topic)} == {
            queue_of(row) for row in pulled
        }
        java.start_producer("tx", unique("tx"), transactional=True)
        answers = ["commit", "rollback", "unknown"]
        messages = [
            {
                "body": "t",
                "keys": f"T{local}-{later}",
                "properties": {"local": local, "answer": later},
            }
            for local in answers
            for later in answers[:2]
        ]
        java.send("tx", topic, messages=messages, mode="transaction")
        assert wait_until(lambda: len(java.pull_all(topic)) == len(keys) + 3)
        assert {row["keys"] for row in java.ask("checks", name="tx")} == {
            "Tunknown-commit",
            "Tunknown-rollback",
        }
