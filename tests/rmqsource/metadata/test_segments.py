# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from store_core.errors import CorruptRecordError, StoreFormatError
from store_core.files.byte_source import ByteSource
from store_core.files.store_directory import StoreDirectory
from tests.golden_store import RECOVERED_NAMES, GoldenStore, golden
from tests.rmqsource.metadata.support import open_snapshot, rows_of, rows_of_store, snapshot_of

KINDS = {"consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "timerlog"}


def numbered_files(store: GoldenStore) -> dict[str, int]:
    log = store.config.get("commitlog_dirs", ["commitlog"])
    return {
        str(path): path.stat().st_size
        for root in (*log, *KINDS)
        for path in (store.root / root).rglob("*")
        if path.is_file() and path.stat().st_size
    }


def test_every_file_is_listed_once(golden_store: GoldenStore) -> None:
    rows = rows_of_store(golden_store, "segments")
    assert {row["path"]: row["file_size"] for row in rows} == numbered_files(golden_store)
    assert len({row["path"] for row in rows}) == len(rows)
    for row in rows:
        name = Path(row["path"]).name
        assert row["from_offset"] == (None if row["kind"] == "index" else int(name))
        assert row["used_bytes"] is None or 0 <= row["used_bytes"] <= row["file_size"]


def test_segments_of_the_log(plain_golden_store: GoldenStore) -> None:
    if plain_golden_store.name in RECOVERED_NAMES:
        plain_golden_store = golden(plain_golden_store.name, recovered=True)
    times = {
        m["commit_log_offset"]: m["store_timestamp"] for m in plain_golden_store.dump("messages")
    }
    end = plain_golden_store.meta["max_phy_offset"]
    rows = [r for r in rows_of_store(plain_golden_store, "segments") if r["kind"] == "commitlog"]
    for row in rows:
        used = min(max(end - row["from_offset"], 0), row["file_size"])
        assert row["used_bytes"] == used
        assert row["first_store_timestamp"] == times.get(row["from_offset"])
        assert (row["last_store_timestamp"], row["messages"]) == (None, None)
    assert sum(row["used_bytes"] for row in rows) == end - max(
        plain_golden_store.meta["min_phy_offset"], 0
    )


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "batch-5x", "expired-5x"])
def test_files_of_queues_hold_what_the_queues_hold(name: str) -> None:
    store = golden(name)
    with snapshot_of(store) as snapshot:
        rows = [row for row in rows_of(snapshot, "segments") if "consumequeue" in row["kind"]]
        queues = rows_of(snapshot, "queues")
    for queue in queues:
        folder = f"/{queue['topic']}/{queue['queue_id']}/"
        files = [row for row in rows if folder in row["path"]]
        assert sum(file["messages"] for file in files) == queue["messages"]
        filled = [file for file in files if file["messages"]]
        if filled:
            assert filled[0]["first_store_timestamp"] == queue["min_store_timestamp"]
            assert filled[-1]["last_store_timestamp"] == queue["max_store_timestamp"]
        unit_bytes = 46 if files[0]["kind"] == "batchconsumequeue" else 20
        assert all(file["used_bytes"] % unit_bytes == 0 for file in files)
        assert all(file["used_bytes"] == file["file_size"] for file in files[:-1])


def test_index_files_tell_their_times() -> None:
    store = golden("classic-5x")
    with snapshot_of(store) as snapshot:
        rows = [row for row in rows_of(snapshot, "segments") if row["kind"] == "index"]
        headers = {file.path: file.header for file in snapshot.index.files}
    assert len(rows) == len(headers) > 1
    for row in rows:
        header = headers[row["path"]]
        assert row["first_store_timestamp"] == header.begin_timestamp
        assert row["last_store_timestamp"] == header.end_timestamp
        assert row["used_bytes"] == 40 + 4 * 100 + 20 * header.index_count


def test_a_file_of_the_log_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[str] = Counter()
    original = StoreDirectory.open

    def counting(self: StoreDirectory, path: str) -> ByteSource:
        opened[path] += 1
        return original(self, path)

    monkeypatch.setattr("store_core.log.commit_log._OPEN_SEGMENTS", 1)
    with snapshot_of(golden("classic-5x")) as snapshot:
        for queue in snapshot.queue_paths:
            snapshot.queue_range(*queue)
        _ = snapshot.index
        monkeypatch.setattr(StoreDirectory, "open", counting)
        rows = rows_of(snapshot, "segments")
    kinds = Counter(row["kind"] for row in rows if opened[row["path"]])
    assert kinds["commitlog"] > 5
    assert kinds["index"] == 0
    assert set(opened.values()) == {1}


def test_damaged_parts_are_listed_without_facts(tmp_path: Path) -> None:
    store = golden("batch-5x")
    root = store.copy_to(tmp_path)
    lost = root / "consumequeue" / "BatchSource" / "0" / f"{9000:020}"
    lost.write_bytes(lost.read_bytes()[:30])
    index = min((root / "index").iterdir())
    with open_snapshot(root, store.options) as snapshot:
        before = {row["path"]: row for row in rows_of(snapshot, "segments", mode="PERMISSIVE")}
    index.write_bytes(bytes(10))
    queue = root / "consumequeue" / "FanOut" / "1"
    (queue / f"{77:020}").write_bytes(bytes(40))
    with open_snapshot(root, store.options) as snapshot:
        with pytest.raises((CorruptRecordError, StoreFormatError)):
            rows_of(snapshot, "segments")
        after = {row["path"]: row for row in rows_of(snapshot, "segments", mode="PERMISSIVE")}
    changed = {path for path in before if before[path] != after[path]}
    assert changed == {str(index), *(str(p) for p in queue.iterdir() if p.name != f"{77:020}")}
    assert after[str(index)]["file_size"] == 10
    assert all(after[path]["used_bytes"] is None for path in changed)
    assert after[str(queue / f"{77:020}")]["from_offset"] == 77
