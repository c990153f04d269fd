# SPDX-License-Identifier: Apache-2.0
"""``messages`` of a running cluster shows the same rows as for the broker's files."""

from __future__ import annotations

import pytest

from rmqsource.exit_codes import FOUND, GOOD
from tests.golden_store import golden
from tests.rmqsource.live.recorded_broker import RecordedCluster

pytest.importorskip("typer")

STORE = golden("cluster-5x")
FILES = (STORE.root, "--config", STORE.config_file)
ORDERS = ("--topic", "orders")
JSON = ("--format", "json")


@pytest.fixture(scope="module")
def cluster():
    with RecordedCluster() as running:
        running.served = running.serve(STORE)
        yield running


@pytest.fixture
def ask(run, cluster):
    return lambda *more: run("messages", "--namesrv", cluster.namesrv_addr, *more)


def by_place(rows):
    return sorted(
        ({**row, "store": ""} for row in rows),
        key=lambda row: (row["topic"], row["queue_id"], row["queue_offset"]),
    )


@pytest.mark.parametrize(
    "selection",
    [
        (),
        ("--queue", "1,3"),
        ("--tag", "TagA,TagD"),
        ("--sql", "color = 'red'"),
        ("--since", "2026-11-21T12:26:33Z"),
        ("--until", "2026-11-21T12:26:33Z"),
        ("--where", "queue_id = 2 AND tags = 'TagB'"),
        ("--grep", "KEYS=K1"),
        ("--key", "K155"),
        ("--key", "K155,K117", "--queue", "2"),
        ("--key", "K155", "--option", "access=consumequeue"),
    ],
    ids=str,
)
def test_selected_as_from_files(ask, run, cluster, selection):
    found = ask(*ORDERS, *selection, *JSON)
    files = run("messages", *FILES, *ORDERS, *selection, *JSON)
    assert found.code == files.code == GOOD, found.err
    assert by_place(found.rows) == by_place(files.rows)
    assert {row["store"] for row in found.rows} == {f"broker-a@{cluster.broker().address}"}
    times = [row["store_timestamp"] for row in found.rows]
    assert times == sorted(times)


def test_the_oldest_of_all_queues_come_first(ask, run):
    oldest = [row["message_id"] for row in run("messages", *FILES, *ORDERS, *JSON).rows[:5]]
    found = ask(*ORDERS, "--limit", 5, *JSON)
    assert [row["message_id"] for row in found.rows] == oldest
    assert "only the first 5 rows are shown: --limit 0 shows all" in found.err
    table = ask(*ORDERS)
    assert len(table.out.splitlines()) == 2 + 20
    assert "only the first 20 rows are shown" in table.err


def test_more_queues_than_are_read_side_by_side(ask, run, monkeypatch):
    monkeypatch.setattr("rmqsource.cli.rows.cluster_rows._MOST_MERGED", 2)
    found, files = ask(*ORDERS, *JSON), run("messages", *FILES, *ORDERS, *JSON)
    assert by_place(found.rows) == by_place(files.rows)
    queues = [row["queue_id"] for row in found.rows]
    assert queues == sorted(queues)


def test_offset_message_id(ask, cluster, run):
    (row,) = run("messages", *FILES, *ORDERS, "--key", "K155", *JSON).rows
    host, port = cluster.broker().address.split(":")
    address = bytes(map(int, host.split("."))) + int(port).to_bytes(4, "big")
    place = row["commit_log_offset"].to_bytes(8, "big")
    found = ask("--id", (address + place).hex(), *JSON)
    assert found.code == GOOD
    assert found.err == "found by offset message id\n"
    assert by_place(found.rows) == by_place([row])
    other = ask("--id", (address + bytes(7) + b"\x01").hex())
    assert other.code == FOUND
    assert (
        "names no message of this cluster; to find a client message id, give --topic" in other.err
    )


def test_unique_key(ask, run):
    (row,) = run("messages", *FILES, *ORDERS, "--key", "K155", *JSON).rows
    found = ask(*ORDERS, "--id", row["unique_key"], *JSON)
    assert (found.code, found.err) == (GOOD, "found by unique key\n")
    assert by_place(found.rows) == by_place([row])
    in_full = ask(*ORDERS, "--id", row["unique_key"])
    assert f"unique_key                   {row['unique_key']}\n" in in_full.out
    none = ask(*ORDERS, "--id", f"{row['unique_key']},NONE", *JSON)
    assert none.code == FOUND
    assert len(none.rows) == 1
    assert "id 'NONE' was not found, neither as unique key nor as offset message id" in none.err


def test_nothing_matches(ask):
    found = ask(*ORDERS, "--key", "none")
    assert (found.code, found.err) == (FOUND, "no message matches\n")


def test_expired_offsets_are_an_error_or_told(ask, cluster):
    queue = cluster.served.queues["orders", 0]
    queue.min_offset = 5
    try:
        begin = ("--option", 'startingOffsets={"orders":{"0":0}}')
        lost = ask(*ORDERS, *begin, *JSON)
        assert lost.code == FOUND
        assert "here with --option failOnDataLoss=false" in lost.err
        told = ask(*ORDERS, *begin, "--option", "failOnDataLoss=false", "--queue", 0, *JSON)
        assert told.code == GOOD
        assert "offsets 0 to 4 of queue 0" in told.err
        assert min(row["queue_offset"] for row in told.rows) == 5
    finally:
        queue.min_offset = 0
