# SPDX-License-Identifier: Apache-2.0
"""Timers and transactions that a 5.5.1 broker keeps in RocksDB, compared with its clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqsource.explore.message_trace import trace_messages
from store_core import MessageStore, MessageStoreConfig, TimerMessageStore
from store_core.database import message_database
from store_core.database.message_database import load_database_timers, load_open_halves
from store_core.errors import StoreKindError
from store_core.files.store_directory import StoreDirectory
from store_core.message import Message
from store_core.results import PutMessageStatus
from tests.golden_store import GoldenStore, golden, tree_state
from tests.rmqsource.metadata.support import rows_of_store
from tests.rmqsource.reading import parsed

NAME = "databases/messages-551"
NEVER_ANSWERED = "unknown_forever"


@pytest.fixture
def store() -> GoldenStore:
    return golden(NAME)


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_database, "databases_are_readable", lambda: False)


def test_transactions_end_as_their_producers_saw(store: GoldenStore) -> None:
    before = tree_state(store.root)
    rows = {row["transaction_id"]: row for row in rows_of_store(store, "transactions")}
    expected = list(store.dump("transactions"))
    assert len(rows) == len(expected) == 22
    for line in expected:
        row = rows[line["transaction_id"]]
        is_given_up = line["plan"] == NEVER_ANSWERED  # the broker just deletes its entry
        assert row["state"] == ("check_exceeded" if is_given_up else line["final_state"])
        assert row["commit_commit_log_offset"] == line["commit_commit_log_offset"]
        assert row["topic"] == line["topic"]
        if line["plan"] == "checked_left_open":
            assert row["checks"] == 1
    assert tree_state(store.root) == before


def test_timers_are_delivered_that_their_consumer_received(store: GoldenStore) -> None:
    states = {
        row["keys"][0]: row["state"]
        for row in rows_of_store(store, "timers")
        if row["real_topic"] == "wakeups"
    }
    received = {line["keys"] for line in store.dump("received")}
    sent = {line["keys"] for line in store.dump("sent")}
    assert len(sent) == 9
    assert received == {"W0", "W1", "W3", "W4", "W6", "W7"}
    assert states == {key: "delivered" if key in received else "pending" for key in sent}


def test_a_rollback_is_in_the_life_of_its_message(store: GoldenStore) -> None:
    line = next(t for t in store.dump("transactions") if t["final_state"] == "rolled_back")
    (life,) = trace_messages(parsed(store.root, **store.options), ids=[line["transaction_id"]])
    assert [event.event for event in life.events] == ["sent", "half", "rolled_back"]
    assert life.topic == line["topic"]


@pytest.mark.parametrize("table", ["timers", "transactions"])
@pytest.mark.usefixtures("without_library")
def test_the_extra_is_named_where_the_library_is_missing(store: GoldenStore, table: str) -> None:
    with pytest.raises(StoreKindError, match=r"rocksdbstore.*\(extra rocksdb\)"):
        rows_of_store(store, table)
    rows = rows_of_store(store, table, mode="PERMISSIVE")
    assert len(rows) == {"timers": 24, "transactions": 22}[table]


def test_a_database_that_holds_nothing_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every broker of 5.4 and later creates one."""
    monkeypatch.setattr(message_database, "ReadOnlyDatabase", None)
    (tmp_path / "rocksdbstore").mkdir()
    for name in ("CURRENT", "000004.log"):
        (tmp_path / "rocksdbstore" / name).write_bytes(b"MANIFEST-000005\n"[: name == "CURRENT"])
    directory = StoreDirectory(str(tmp_path))
    assert load_database_timers(directory) is None
    assert load_open_halves(directory) == {}


def test_nothing_is_delivered_that_the_database_waits_for(
    store: GoldenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.copy_to(tmp_path)
    _assert_refused(replace(store, root=tmp_path / "store"), "timerRocksDBEnable", caplog)


@pytest.mark.usefixtures("without_library")
def test_nothing_is_delivered_where_nobody_can_tell_what_was(
    store: GoldenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.copy_to(tmp_path)
    _assert_refused(replace(store, root=tmp_path / "store"), "extra rocksdb", caplog)


def _assert_refused(copy: GoldenStore, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    properties = {**copy.config_properties, "storePathRootDir": str(copy.root)}
    config = MessageStoreConfig.from_properties(properties)
    timed = Message("wakeups", b"late", properties={"TIMER_DELAY_SEC": "1"})
    with MessageStore(config, handle_timer_message=True) as store:
        end = store.max_phy_offset
        with TimerMessageStore(store) as timers:
            assert not timers.is_running
            assert not timers.run_once()
            assert reason in timers.refusal
            result = store.put_message(timed)
            assert result.status is PutMessageStatus.WHEEL_TIMER_NOT_ENABLE
            assert reason in result.reason
            with pytest.raises(StoreKindError, match=reason):
                _ = timers.waiting
        assert store.max_phy_offset == end
    assert any(reason in record.getMessage() for record in caplog.records)
