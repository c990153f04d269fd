# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
import shutil
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreNotFoundError, StoreReadError
from store_core.layout import MESSAGE_MAGIC_CODE
from store_core.log import log_scan
from store_core.log.log_scan import Gap
from store_core.snapshot import store_snapshot
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_store import golden
from tests.store_core.damage import Sweep, read_everything, scan
from tests.store_core.remote import RemoteDirectory
from tests.store_factory import small_store

SEGMENT = 2048
_DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture
def sweep(tmp_path):
    return Sweep(small_store(tmp_path / "store", 36, segment_bytes=SEGMENT))


def test_what_is_no_store_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "photo.png").write_bytes(b"")
    cases = [
        ("none", "does not exist"),
        ("file", "is a file"),
        ("empty", "nothing"),
        ("other", "photo"),
    ]
    for name, text in cases:
        with pytest.raises(StoreNotFoundError, match=text):
            StoreSnapshot(tmp_path / name)


def test_a_given_end_is_taken(tmp_path):
    store = small_store(tmp_path / "store", 36, segment_bytes=SEGMENT)
    end = store.records[20].commit_log_offset
    with StoreSnapshot(store.write(), end_offset=end) as view:
        assert (view.end_offset, view.end_reason) == (end, "given")
        parts = list(scan(view))
        assert sum(len(part) for part in parts if not isinstance(part, Gap)) == 20
        assert view.last_dispatched()[1] <= end


def test_a_process_remembers_the_ends_of_so_many_logs_only(tmp_path, monkeypatch):
    monkeypatch.setattr(store_snapshot, "_MOST_PROVEN_STARTS", 2)
    monkeypatch.setattr(store_snapshot, "_proven_starts", {})
    for name in ("a", "b", "c"):
        store = small_store(tmp_path / name, 36, segment_bytes=SEGMENT)
        with StoreSnapshot(store.write()) as view:
            end = view.end_offset
    assert end > 0
    assert [str(tmp_path / "a") in str(key) for key in store_snapshot._proven_starts] == [False] * 2


@pytest.mark.parametrize("name", ["crashed-5x", "expired-5x"])
def test_a_remote_store_reads_as_a_local_one(name, monkeypatch):
    monkeypatch.setattr(log_scan, "WINDOW_BYTES", 3000)
    root = str(golden(name).root)
    local = read_everything(root)
    remote = read_everything(root, directory=RemoteDirectory(root))
    strip = [[gap[:2] for gap in gaps] for _, gaps, _ in (local, remote)]
    assert remote[0] == local[0]
    assert strip[0] == strip[1]
    assert (local[2], remote[2]) == (None, None)


def test_cut_segments_lose_only_what_was_cut(sweep):
    chance = random.Random(1)
    for path in sweep.segments():
        for length in [0, 1, 7, 8, 90, SEGMENT - 1, *chance.sample(range(SEGMENT), 4)]:
            sweep.truncate_segment(path, length)
    assert sweep.cases == 10 * len(sweep.segments())


def test_changed_bytes_cost_their_record_only(sweep):
    chance = random.Random(2)
    for path in sweep.segments():
        for at in chance.sample(range(SEGMENT), 12):
            sweep.change_segment(path, at, bytes([sweep.files[path][at] ^ 0xFF]))
    assert sweep.errors["none"] == 12 * len(sweep.segments())
    # Fields that the format does not check; lengths, magic code and own offset are never so.
    checked = {"total_size", "magic_code", "commit_log_offset", "body_length", "topic_length"}
    assert not checked & sweep.undetected.keys()


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, 91, SEGMENT + 1, 1 << 20])
def test_impossible_sizes_end_in_a_gap(sweep, size):
    for path in sweep.segments():
        sweep.change_segment(path, 0, struct.pack(">ii", size, MESSAGE_MAGIC_CODE))


def test_segments_of_garbage(sweep):
    chance = random.Random(3)
    magic = struct.pack(">i", MESSAGE_MAGIC_CODE)
    for path in sweep.segments():
        sweep.change_segment(path, 0, chance.randbytes(SEGMENT))
        sweep.change_segment(path, 0, magic * (SEGMENT // 4))
        sweep.change_segment(path, 0, bytes(SEGMENT))
        sweep.change_segment(path, 0, b"\xff" * SEGMENT)


def test_other_files_may_be_damaged(sweep):
    chance = random.Random(4)
    for path in sweep.others():
        content = sweep.files[path]
        sweep.change_other(path, b"")
        sweep.change_other(path, chance.randbytes(len(content)))
        sweep.change_other(path, b"\xff" * len(content))
        for at in chance.sample(range(len(content)), 2):
            sweep.change_other(path, content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
            sweep.change_other(path, content[:at])
    assert set(sweep.errors) <= {"none", "StoreFormatError", "CorruptRecordError"}


def test_chains_of_the_index_that_loop(sweep):
    for path in (p for p in sweep.others() if p.parent.name == "index"):
        content = bytearray(sweep.files[path])
        entries_at = len(content) - sweep.factory.entries * 20
        for entry in range(1, 20):
            struct.pack_into(">i", content, entries_at + entry * 20 + 16, entry + 1)
        sweep.change_other(path, bytes(content))


def test_a_missing_segment_is_a_gap(tmp_path):
    store = small_store(tmp_path / "store", 60, segment_bytes=SEGMENT)
    root = store.write()
    store.segment_path(SEGMENT).unlink()
    rows, gaps, error = read_everything(root)
    assert error is None
    lost = range(SEGMENT, 2 * SEGMENT)
    assert [row["commit_log_offset"] for row in rows] == [
        r.commit_log_offset for r in store.records if r.commit_log_offset not in lost
    ]
    assert [gap[:2] for gap in gaps] == [(SEGMENT, SEGMENT)]


def test_times_queues_and_topics_are_at_hand(tmp_path):
    store = small_store(tmp_path / "store", 36, segment_bytes=SEGMENT)
    with StoreSnapshot(store.write(), MessageStoreConfig()) as view:
        last = store.records[-1]
        assert view.store_timestamp_at(last.commit_log_offset) == last.store_timestamp
        assert view.store_timestamp_at(last.commit_log_offset + 1) is None
        assert (view.min_phy_offset, view.max_phy_offset) == (0, store.end_offset)
        assert set(view.queue_paths) == set(store.queues)
        for key, units in store.queues.items():
            assert view.queue_range(*key)[:2] == (0, len(units))
        assert view.queue_range("none", 0) == (0, 0, -1, 0)
        assert view.consume_queue("none", 0) is None
        assert view.batch_units("none", 0) is None
        assert view.last_dispatched() == (last.commit_log_offset, store.end_offset)
        assert set(view.topic_configs) == {"TopicA", "TopicB"}


def test_a_store_that_cannot_be_opened_leaves_no_file_open(tmp_path):
    root = small_store(tmp_path / "store").write(abort=b"1")
    shutil.rmtree(root / "index")
    (root / "index").symlink_to(tmp_path / "nowhere")
    before = set(_open_files(root))
    with pytest.raises(StoreReadError, match="which leads nowhere"):
        StoreSnapshot(root)
    assert set(_open_files(root)) == before


def _open_files(root):
    """Yield the open files below a root; files of other tests may be closed at any time."""
    for descriptor in _DESCRIPTORS.iterdir():
        with suppress(FileNotFoundError):
            path = descriptor.readlink()
            if path.is_relative_to(root):
                yield path
