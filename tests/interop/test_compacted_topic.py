# SPDX-License-Identifier: Apache-2.0
"""A compacted topic of a running broker: read during compaction, and against a real client."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqsource.scan.store_versions import open_snapshots
from tests.golden_compacted import as_received, by_queue
from tests.golden_store import tree_state
from tests.interop.client_node import ClientNode, wait_until
from tests.interop.compacted_topic import (
    QUEUES,
    SETTINGS,
    TOPIC,
    count_units,
    create_topics,
    is_settled,
    receive_all,
    send,
    wait_settled,
)
from tests.interop.live_cluster import BROKER, LiveCluster
from tests.rmqsource.metadata.support import rows_of
from tests.rmqsource.reading import parsed, read_rows
from tests.store_core.tools.check.support import all_kinds, checked

pytestmark = pytest.mark.interop

_COLUMNS = ("queue_offset", "keys", "body")
_KEYS = 15
_SENT = 300
_AT_ONCE = 10
_SOON = {"compactionScheduleInternal": 100}
_TIMEOUT_S = 90


def rows_of_topic(store: Path, **options):
    return read_rows(store, access="compaction", topic=TOPIC, **options)


def keep_sending(client: ClientNode, store: Path) -> Iterator[None]:
    """Send to queue 0, and yield repeatedly in between; message i has key i modulo `_KEYS`.

    The next few messages, at most one of which begins a file, wait until the broker has compacted.
    RocketMQ 5.3.3 loses the first message of a file that it begins while it replaces others
    (``CompactionLog.replaceFiles`` and ``asyncPutMessage`` use different locks).
    """
    messages = [{"keys": f"key-{i % _KEYS}", "body": f"number {i}"} for i in range(_SENT)]
    queue = {"topic": TOPIC, "broker": BROKER, "queue_id": 0}
    for stop in range(_AT_ONCE, _SENT + 1, _AT_ONCE):
        given = {"topic": TOPIC, "messages": messages[stop - _AT_ONCE : stop], "queue": queue}
        client.ask("start_sending", name="producer", **given, rate=150)
        deadline = time.monotonic() + _TIMEOUT_S
        while not is_settled(store, {0: stop}):
            assert time.monotonic() < deadline, f"the broker has not compacted up to {stop}"
            yield
        client.ask("join_sending", name="producer")


def check_consistent(rows) -> int:
    """Check that a read has only right rows and each key's newest message; return the end."""
    offsets = [row["queue_offset"] for row in rows]
    assert offsets == sorted(set(offsets))
    for row in rows:
        number = row["queue_offset"]
        assert row["keys"] == [f"key-{number % _KEYS}"]
        assert row["body"] == f"number {number}".encode()
    end = max(offsets, default=-1)
    newest = set(range(max(end - _KEYS + 1, 0), end + 1))
    assert newest <= set(offsets)
    return end


def test_reads_of_a_broker_that_compacts_and_what_its_client_receives(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, settings={**SETTINGS, **_SOON}) as cluster:
        store = cluster.store()
        with ClientNode(tmp_path / "client", "5.3.3", cluster.namesrv_addr) as client:
            create_topics(client)
            ends, counts = [], []
            for _ in keep_sending(client, store):
                if not (store / "compaction" / "compactionLog" / TOPIC).exists():
                    continue
                rows = rows_of_topic(store, columns=_COLUMNS, queueId=0)
                ends.append(check_consistent(rows))
                assert_nothing_lost(store)
                counts.append(len(rows))
            assert max(ends) > _SENT // 2
            assert max(counts) < _SENT // 2, "nothing was compacted meanwhile"
            send(client, [f"item-{i % 9}" for i in range(18)], "last")  # one file begins at most
            wait_settled(store)
            count = count_units(store)
            received = by_queue(receive_all(client, "all_of_it", count))
            assert as_received(rows_of_topic(store)) == received
            assert len(received) == count < 200
            _compare_tables(store, client, received)
        cluster.kill_broker()
        before = tree_state(store)
        assert as_received(rows_of_topic(store)) == received
        assert_nothing_lost(store)
        assert tree_state(store) == before


def assert_nothing_lost(store: Path) -> None:
    """Fail if `check` reports that the broker lost a message that its consumers should get."""
    texts = {key: str(value) for key, value in SETTINGS.items()}
    assert "COMPACTED_LOST" not in all_kinds(checked(store, texts))


def _compare_tables(store: Path, client: ClientNode, received) -> None:
    stats = {row["queue_id"]: row for row in client.ask("topic_stats", topic=TOPIC)}
    (snapshot,) = open_snapshots(parsed(store))
    with snapshot:
        rows = rows_of(snapshot, "queues", topics=(TOPIC,))
    assert len(rows) == QUEUES
    for row in rows:
        told = stats[row["queue_id"]]
        assert (row["min_offset"], row["max_offset"]) == (told["min_offset"], told["max_offset"])
        offsets = [r["queue_offset"] for r in received if r["queue_id"] == row["queue_id"]]
        assert row["compacted_messages"] == len(offsets)
        assert row["compacted_min_offset"] == offsets[0]
        assert row["compacted_max_offset"] == offsets[-1] + 1


def test_a_broker_does_not_make_a_lost_compacted_log_anew(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, settings=SETTINGS) as cluster:
        store = cluster.store()
        with ClientNode(tmp_path / "client", "5.3.3", cluster.namesrv_addr) as client:
            create_topics(client)
            send(client, ["lost"], "before")
            one_each = dict.fromkeys(range(QUEUES), 1)
            assert wait_until(lambda: is_settled(store, one_each), _TIMEOUT_S)
            assert len(rows_of_topic(store)) == QUEUES
        cluster.stop_broker()
        shutil.rmtree(store / "compaction")
        cluster.start_broker()
        with ClientNode(tmp_path / "again", "5.3.3", cluster.namesrv_addr) as client:
            client.start_producer("producer", "producers")
            send(client, ["kept"], "after")
            received = receive_all(client, "all_of_it", QUEUES)
            assert [row["keys"] for row in received] == ["kept"] * QUEUES
            assert as_received(rows_of_topic(store)) == by_queue(received)
            assert len(read_rows(store, topic=TOPIC)) == 2 * QUEUES
