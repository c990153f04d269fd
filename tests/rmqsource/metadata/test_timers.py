# SPDX-License-Identifier: Apache-2.0
"""Table ``timers`` of stores of real brokers, compared with messages their clients received."""

from __future__ import annotations

import json
import shutil

import pytest

from rmqsource.scan.store_versions import open_snapshots
from store_core.errors import StoreFormatError
from store_core.layout import TIMER_CHECKPOINT, TIMER_LOG_UNIT
from tests.golden_store import GOLDEN_DIR, golden, tree_state, unpack
from tests.rmqsource.metadata.support import rows_of
from tests.rmqsource.reading import parsed, read_rows

STORES = ["stopped-5x", "killed-5x"]
EACH = 4
STATES = {
    "near": "delivered",
    "round": "delivered",
    "far": "pending",
    "cancelled-near": "cancelled",
    "cancelled-far": "cancelled",
    "last": "pending",
}


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    unpack(GOLDEN_DIR / "timers" / request.param / "store.tar.gz", tmp_path)
    return tmp_path / "store"


def timers(root, **options):
    (snapshot,) = open_snapshots(parsed(root))
    with snapshot:
        return rows_of(snapshot, "timers", **options)


def states(rows):
    """Return the states of each message by its key, in the order of its rows."""
    found = {}
    for row in rows:
        found.setdefault(row["keys"][0], []).append(row["state"])
    return found


def test_states_are_what_became_of_the_messages(store):
    before = tree_state(store)
    rows = timers(store)
    found = states(rows)
    assert {name: of[-1] for name, of in found.items()} == {
        f"{kind}-{number}": state for kind, state in STATES.items() for number in range(EACH)
    }
    for name, of in found.items():
        assert set(of[:-1]) <= {"rolled"}
        assert (len(of) > 1) == (name.split("-")[-2] in {"round", "far"})
    assert tree_state(store) == before


def test_delivered_is_what_a_client_received(store, request):
    name = request.node.callspec.params["store"]
    lines = (GOLDEN_DIR / "timers" / name / "received.jsonl").read_text().splitlines()
    received = {json.loads(line)["keys"] for line in lines}
    rows = {row["keys"][0]: row for row in timers(store) if row["state"] == "delivered"}
    assert rows.keys() == received
    in_topic = {row["keys"][0]: row for row in read_rows(store, topic="alarms")}
    assert in_topic.keys() == rows.keys()
    for key, row in rows.items():
        assert row["real_topic"] == "alarms"
        assert row["unique_key"] == in_topic[key]["unique_key"]
        assert row["real_queue_id"] == in_topic[key]["queue_id"]
        stored = in_topic[key]["store_timestamp"].timestamp() * 1000
        assert row["deliver_timestamp"] <= stored < row["deliver_timestamp"] + 5000
        properties = dict(in_topic[key]["properties"])
        assert str(row["roll_times"]) == properties.get("TIMER_ROLL_TIMES", "0")


def test_rows_of_a_whole_broker_with_pop():
    store = golden("cluster-5x")
    (snapshot,) = open_snapshots(parsed(store.root, **store.options))
    with snapshot:
        rows = rows_of(snapshot, "timers")
    found = {row["keys"][0]: row["state"] for row in rows if row["real_topic"] == "timers"}
    assert found == {f"W{n}": "pending" if n % 3 == 2 else "delivered" for n in range(9)}
    assert len(rows) == 24


def test_without_a_checkpoint_all_wait_as_a_broker_would_deliver_them(store):
    (store / "config" / "timercheck").unlink()
    assert {row["state"] for row in timers(store)} == {"pending", "cancelled"}


def test_without_the_timer_log_what_was_enqueued_and_is_not_due_is_not_known(store):
    shutil.rmtree(store / "timerlog")
    found = states(timers(store))
    assert found["near-0"] == ["delivered"]
    assert found["last-0"] == ["unknown"]
    assert found["far-0"][-1] == "unknown"


def test_what_the_checkpoint_does_not_cover_is_pending(store):
    checkpoint = store / "config" / "timercheck"
    fields = TIMER_CHECKPOINT.unpack(checkpoint.read_bytes())
    last = min(row["queue_offset"] for row in timers(store) if row["keys"][0] == "last-0")
    fields = fields._replace(last_timer_queue_offset=last)
    checkpoint.write_bytes(TIMER_CHECKPOINT.pack(**fields._asdict()).ljust(4096, b"\0"))
    shutil.rmtree(store / "timerlog")
    found = states(timers(store))
    assert found["last-0"] == ["pending"]


def test_a_damaged_unit_ends_its_file(store):
    files = sorted((store / "timerlog").iterdir())
    with files[-1].open("r+b") as file:
        file.write(bytes(TIMER_LOG_UNIT.size))
    found = {row["state"] for row in timers(store)}
    assert "unknown" in found


def test_a_directory_in_place_of_a_file_is_told(store):
    name = sorted((store / "timerlog").iterdir())[0].name
    (store / "timerlog" / name).unlink()
    (store / "timerlog" / name).mkdir()
    with pytest.raises(StoreFormatError, match="is a directory"):
        timers(store)
    assert timers(store, mode="PERMISSIVE")


@pytest.mark.parametrize("name", ["classic-4x", "classic-5x", "empty-5x"])
def test_stores_without_timers_have_no_rows(name):
    store = golden(name)
    (snapshot,) = open_snapshots(parsed(store.root, **store.options))
    with snapshot:
        assert rows_of(snapshot, "timers") == []
