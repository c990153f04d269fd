# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from pathlib import Path

import pytest

from store_core.errors import CorruptRecordError, StoreFormatError
from store_core.index.index_file import key_hash
from store_core.layout import INDEX_ENTRY, index_file_bytes
from tests.golden_store import GoldenStore, golden
from tests.rmqsource.metadata.support import open_snapshot, rows_of, rows_of_store

ROLLBACK = 12


def expected_entries(store: GoldenStore) -> list[tuple[int, int]]:
    """Hash and place of RocketMQ's index entries: the unique key, then the words of KEYS."""
    entries = []
    for m in store.dump("messages"):
        if m["sys_flag"] & ROLLBACK == ROLLBACK:
            continue
        words = [word for word in (m["keys"] or "").split(" ") if word]
        unique = m["properties"].get("UNIQ_KEY")
        keys = ([unique] if unique else []) + words
        entries += [(key_hash(m["topic"], key), m["commit_log_offset"]) for key in keys]
    return entries


@pytest.mark.parametrize("name", ["onefile-5x", "classic-5x", "classic-4x", "multipath-5x"])
def test_entries_are_the_keys_of_the_messages(name: str) -> None:
    store = golden(name)
    rows = rows_of_store(store, "index")
    assert [(r["key_hash"], r["commit_log_offset"]) for r in rows] == expected_entries(store)
    slots = store.config["store"]["maxHashSlotNum"]
    times = {m["commit_log_offset"]: m["store_timestamp"] for m in store.dump("messages")}
    newest: dict[tuple[str, int], int] = {}
    for row in rows:
        assert row["slot"] == row["key_hash"] % slots
        slot = (row["index_file"], row["slot"])
        assert row["previous"] == newest.get(slot, 0)
        newest[slot] = row["entry"]
        assert 0 <= times[row["commit_log_offset"]] - row["store_timestamp"] < 1000
        assert row["time_diff_seconds"] >= 0
        if row["entry"] == 1:
            assert times[row["commit_log_offset"]] == row["store_timestamp"]
    assert {row["index_file"] for row in rows} == {p.name for p in store.root.glob("index/*")}


def test_entries_behind_the_end_of_the_log_are_no_data() -> None:
    store = golden("torn-5x", recovered=True)
    end = store.meta["max_phy_offset"]
    rows = rows_of_store(store, "index")
    assert rows
    assert max(row["commit_log_offset"] for row in rows) < end


def test_an_unusable_file_is_left_out_as_the_mode_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = golden("classic-5x")
    root = store.copy_to(tmp_path)
    victim = sorted((root / "index").iterdir())[3]
    victim.write_bytes(b"\xff" * victim.stat().st_size)
    with open_snapshot(root, store.options) as snapshot:
        with pytest.raises(StoreFormatError, match=victim.name):
            rows_of(snapshot, "index")
        with caplog.at_level(logging.WARNING):
            rows = rows_of(snapshot, "index", mode="DROPMALFORMED")
    assert victim.name in caplog.text
    everything = rows_of_store(store, "index")
    kept = [row for row in everything if row["index_file"] != victim.name]
    assert [{**row, "store": ""} for row in rows] == [{**row, "store": ""} for row in kept]


def test_an_impossible_entry_is_damage(tmp_path: Path) -> None:
    store = golden("classic-5x")
    root = store.copy_to(tmp_path)
    victim = min((root / "index").iterdir())
    position = index_file_bytes(store.config["store"]["maxHashSlotNum"], 5)
    with victim.open("r+b") as file:
        file.seek(position + INDEX_ENTRY.at("previous_entry"))
        file.write((6).to_bytes(4, "big"))
    with open_snapshot(root, store.options) as snapshot:
        with pytest.raises(CorruptRecordError, match="entry 5") as caught:
            rows_of(snapshot, "index")
        rows = rows_of(snapshot, "index", mode="PERMISSIVE")
    assert caught.value.position == position
    assert victim.name not in {row["index_file"] for row in rows}
    assert len(rows) > 1000
