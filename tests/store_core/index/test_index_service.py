# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import struct
from contextlib import closing
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import Message, MessageStore
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreConfigError, StoreReadError
from store_core.files.store_directory import StoreDirectory
from store_core.index.index_entries import opened_by_5_4, with_tag_index
from store_core.index.index_queries import IndexService, UnindexedRange
from store_core.log.commit_log import CommitLog
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.examples import examples
from tests.golden_store import RECOVERED_NAMES, STORE_NAMES, golden, tree_state
from tests.store_core.closed_later import closed_later
from tests.store_core.index_writer import IndexWriter

UNKNOWN = MessageStoreConfig()
ROLLBACK = 3
BASE = 1_700_000_000_000
BY_5_5 = ("batch-551", "crashed-551", "onefile-551")


def service_of(root, config=UNKNOWN):
    return closed_later(IndexService(StoreDirectory(str(root)), config))


@pytest.fixture(params=STORE_NAMES)
def store(request):
    return golden(request.param, recovered=request.param in RECOVERED_NAMES)


def test_queries_are_answered_as_by_rocketmq(store):
    before = tree_state(store.root)
    service = service_of(store.root)
    for row in store.dump("index_query"):
        answer = service.query_offset(
            *(row[k] for k in ("topic", "key", "max_num", "begin", "end"))
        )
        assert answer[0] == row["phy_offsets"]
        if answer[0]:
            assert answer[1] == row["index_last_update_timestamp"]
            assert answer[2] == row["index_last_update_phy_offset"]
    service.close()
    assert tree_state(store.root) == before


@pytest.mark.parametrize("key", ["maxHashSlotNum", "maxIndexNum"])
def test_one_configured_size_is_enough(store, key):
    value = store.config["store"][key]
    service = service_of(store.root, MessageStoreConfig.from_properties({key: str(value)}))
    if service.files:
        assert service.sizes == (
            store.config["store"]["maxHashSlotNum"],
            store.config["store"]["maxIndexNum"],
        )


def keyed_records(store):
    """Return the messages by topic and key that a broker would have indexed, and their times."""
    by_key, times = {}, {}
    for row in store.dump("messages"):
        times[row["commit_log_offset"]] = row["store_timestamp"]
        if row["sys_flag"] >> 2 & 3 == ROLLBACK:
            continue
        words = [word for word in (row["keys"] or "").split(" ") if word]
        unique = row["properties"].get("UNIQ_KEY")
        for key in [*words, *([unique] if unique else [])]:
            by_key.setdefault(row["topic"], {}).setdefault(key, set()).add(row["commit_log_offset"])
    return by_key, times


def test_candidates_and_gaps_include_every_message_of_a_key(store):
    by_key, times = keyed_records(store)
    service = service_of(store.root)
    bounds = max(store.meta["min_phy_offset"], 0), store.meta["max_phy_offset"]
    for topic, keys in by_key.items():
        found = service.lookup(topic, list(keys), *bounds, times.get)
        offsets = set(found.commit_log_offsets.tolist())
        wanted = set().union(*keys.values())
        missing = wanted - offsets
        assert all(any(g.start <= at < g.stop for g in found.coverage.gaps) for at in missing)
        assert len(missing) <= len(service.files) + 1
        assert found.coverage.unusable == ()


def test_files_that_point_behind_a_cut_are_not_trusted():
    store = golden("torn-5x")  # as it was left, before recovery
    _, times = keyed_records(golden("torn-5x", recovered=True))
    end = store.meta["max_phy_offset"]
    service = service_of(store.root)
    beyond = [f.path for f in service.files if f.header.end_phy_offset >= end]
    coverage = service.coverage(0, end, times.get)
    assert beyond
    assert [bad.path for bad in coverage.unusable] == beyond
    assert coverage.gaps[-1].stop == end
    assert service.last_phy_offset() > end


def write_files(root, *ranges, step=10, times=None):
    """Write one index file for each ``(first, last)`` record; records are ``step`` bytes apart."""
    times = {} if times is None else times
    for number, (first, last) in enumerate(ranges):
        writer = IndexWriter(5, 60)
        for at in range(first, last + 1, step):
            times[at] = BASE + at
            writer.put("T", f"k{at}", at, BASE + at)
        writer.write(root / "index" / f"2026010100000000{number}")
    return times


@pytest.mark.parametrize(
    ("ranges", "bounds", "gaps"),
    [
        ([(0, 90), (90, 200)], (0, 300), [(0, 1), (200, 300)]),
        ([(0, 90), (100, 200)], (0, 300), [(0, 1), (90, 101), (200, 300)]),
        ([(50, 90), (150, 200)], (20, 300), [(20, 51), (90, 151), (200, 300)]),
        ([(0, 90), (100, 200)], (50, 210), [(90, 101), (200, 210)]),
        ([(0, 90), (100, 200)], (95, 210), [(95, 101), (200, 210)]),
        ([(0, 150), (80, 120), (130, 200)], (0, 210), [(0, 1), (200, 210)]),
        ([(100, 200), (0, 100)], (0, 210), [(0, 1), (200, 210)]),  # names out of order
        ([(0, 90)], (100, 300), [(100, 300)]),
        ([(200, 290)], (0, 250), [(0, 250)]),  # longer than the log
        ([], (0, 300), [(0, 300)]),
        ([], (0, 0), []),
    ],
)
def test_gaps(tmp_path, ranges, bounds, gaps):
    times = write_files(tmp_path, *ranges)
    coverage = service_of(tmp_path).coverage(*bounds, times.get)
    assert coverage.gaps == tuple(UnindexedRange(*gap) for gap in gaps)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=5),
    st.integers(0, 40),
    st.integers(0, 400),
)
def test_every_record_is_covered_or_in_a_gap(tmp_path_factory, spans, start, length):
    root = tmp_path_factory.mktemp("store")
    ranges = [(first * 10, (first + count) * 10) for first, count in spans]
    times = write_files(root, *ranges)
    coverage = service_of(root).coverage(start, start + length, times.get)
    inside = [at for first, last in ranges for at in range(first + 1, last)]
    for at in range(start, start + length):
        in_gap = any(gap.start <= at < gap.stop for gap in coverage.gaps)
        assert in_gap or at in inside or at in (last for _, last in ranges)
    flat = [edge for gap in coverage.gaps for edge in gap]
    assert flat == sorted(set(flat))


def test_a_file_without_entries_covers_nothing(tmp_path):
    times = write_files(tmp_path, (0, 90))
    IndexWriter(5, 60).write(tmp_path / "index" / "20270101000000000")
    coverage = service_of(tmp_path).coverage(0, 100, times.get)
    assert len(coverage.files) == 1
    assert coverage.unusable == ()


def test_other_files_of_the_directory(tmp_path):
    times = write_files(tmp_path, (0, 90), (90, 180))
    index = tmp_path / "index"
    (index / "20260101000000000.tmp").write_bytes(b"x")
    (index / "20250101000000000").write_bytes(b"too short")
    (index / "20280101000000000").write_bytes(b"\0" * 999)
    (index / "20290101000000000").mkdir()
    service = service_of(tmp_path)
    assert service.sizes == (5, 60)
    assert len(service.files) == 2
    reasons = {bad.path[-17:]: bad.reason for bad in service.unusable}
    assert set(reasons) == {"20250101000000000", "20280101000000000"}
    assert "shorter" in reasons["20250101000000000"]
    assert "999 bytes" in reasons["20280101000000000"]
    assert service.lookup("T", ["k90"], 0, 200, times.get).commit_log_offsets.tolist() == [90]


def test_a_file_with_a_damaged_chain_becomes_a_gap(tmp_path):
    times = write_files(tmp_path, (0, 90), (90, 180), (180, 270))
    path = tmp_path / "index" / "20260101000000001"
    data = bytearray(path.read_bytes())
    data[40:60] = struct.pack(">5i", *[59] * 5)
    path.write_bytes(data)
    sizes = MessageStoreConfig(max_hash_slot_num=5, max_index_num=60)
    found = service_of(tmp_path, sizes).lookup("T", ["k0", "k100", "k200"], 0, 280, times.get)
    assert found.commit_log_offsets.tolist() == [0, 200]
    assert found.coverage.gaps == (
        UnindexedRange(0, 1),
        UnindexedRange(90, 181),
        UnindexedRange(270, 280),
    )
    assert [bad.path for bad in found.coverage.unusable] == [str(path)]


def test_the_coverage_is_that_of_the_same_question(tmp_path):
    times, asked = write_files(tmp_path, (0, 90)), []

    def counted(offset):
        asked.append(offset)
        return times.get(offset)

    service = service_of(tmp_path)
    gaps = [service.lookup("T", [key], 0, 100, counted).coverage.gaps for key in ("k0", "k50")]
    assert gaps[0] == gaps[1] == service.coverage(0, 100, times.get).gaps
    assert asked == [90]
    assert service.lookup("T", ["k0"], 50, 100, counted).coverage.gaps[0].start == 90
    assert service.lookup("T", ["k0"], 0, 100, {}.get).coverage.files == ()


def test_keys_beyond_the_log_are_no_candidates(tmp_path):
    times = write_files(tmp_path, (0, 90))
    found = service_of(tmp_path).lookup("T", ["k0", "k50", "k80"], 10, 91, times.get)
    assert found.commit_log_offsets.tolist() == [50, 80]


def test_unknown_sizes_name_the_options(tmp_path):
    times = write_files(tmp_path, (0, 90))
    path = tmp_path / "index" / "20260101000000000"
    data = bytearray(path.read_bytes())
    data[40:60] = bytes(20)  # without slots nothing can be proved
    path.write_bytes(data)
    service = service_of(tmp_path)
    assert service.sizes is None
    with pytest.raises(StoreConfigError, match="maxHashSlotNum and maxIndexNum"):
        service.query_offset("T", "k0", 64, 0, 2**62)
    found = service.lookup("T", ["k0"], 0, 100, times.get)
    assert found.coverage.gaps == (UnindexedRange(0, 100),)
    assert "maxHashSlotNum" in found.coverage.unusable[0].reason


def test_sizes_that_contradict_the_files_are_an_error(tmp_path):
    write_files(tmp_path, (0, 90))
    with pytest.raises(StoreConfigError, match=r"maxHashSlotNum=5 and maxIndexNum=60"):
        service_of(tmp_path, MessageStoreConfig(max_hash_slot_num=7, max_index_num=60))


def test_a_store_without_index(tmp_path):
    service = service_of(tmp_path)
    assert service.query_offset("T", "k", 64, 0, 2**62) == ([], 0, 0)
    assert service.last_phy_offset() is None


def test_a_file_that_cannot_be_read_is_closed(tmp_path, monkeypatch):
    store = golden(STORE_NAMES[0])
    service = service_of(store.copy_to(tmp_path))
    opened = []

    def open_unreadable(path):
        source = StoreDirectory(str(tmp_path)).open(path)
        opened.append(source)
        monkeypatch.setattr(source, "read_at", Mock(side_effect=StoreReadError("no", path)))
        return source

    monkeypatch.setattr(service.directory, "open", open_unreadable)
    with pytest.raises(StoreReadError, match="no"):
        service.query_offset("TopicA", "k1", 1, 0, 1 << 62)
    (source,) = opened
    with pytest.raises(StoreReadError, match="was closed"):
        source.view(0, 1)


def config_of(store, root, **settings):
    config = MessageStoreConfig.from_properties(store.config_properties)
    return replace(config, store_path_root_dir=str(root), **settings)


def indexes_tags(config):
    directory = StoreDirectory(config.store_path_root_dir)
    with closing(CommitLog(directory, config)) as log:
        return with_tag_index(config, directory, log).tag_index_enable


def without_5_5_files(store, tmp_path):
    """Return a copy without rocksdbstore and the checkpoint field of brokers of 5.4 and 5.5."""
    root = store.copy_to(tmp_path)
    shutil.rmtree(root / "rocksdbstore")
    path = root / "checkpoint"
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(8) + data[48:])
    return root


@pytest.mark.parametrize("name", STORE_NAMES)
def test_stores_show_whether_their_tags_are_indexed(name):
    store = golden(name)
    assert indexes_tags(config_of(store, store.root)) == (name in BY_5_5)


@pytest.mark.parametrize("name", BY_5_5)
def test_the_entries_alone_show_it(name, tmp_path):
    store = golden(name)
    root = without_5_5_files(store, tmp_path)
    assert not opened_by_5_4(StoreDirectory(str(root)))
    assert indexes_tags(config_of(store, root))


def test_what_a_newer_broker_makes_shows_it_before_it_has_indexed_a_message(tmp_path):
    store = golden("classic-5x")
    root = store.copy_to(tmp_path)
    config = config_of(store, root)
    assert not indexes_tags(config)
    (root / "rocksdbstore").mkdir()
    assert indexes_tags(config)
    (root / "rocksdbstore").rmdir()
    data = (root / "checkpoint").read_bytes()
    (root / "checkpoint").write_bytes(data[:40] + (7).to_bytes(8, "big") + data[48:])
    assert indexes_tags(config)


def test_a_setting_decides(tmp_path):
    new, old = golden("onefile-551"), golden("onefile-5x")
    assert not indexes_tags(config_of(new, new.root, tag_index_enable=False))
    assert indexes_tags(config_of(old, old.root, tag_index_enable=True))
    assert indexes_tags(config_of(old, old.root, enable_accelerated_recovery=True))


def test_damaged_index_files_show_nothing(tmp_path):
    store = golden("onefile-551")
    root = without_5_5_files(store, tmp_path)
    for path in (root / "index").iterdir():
        path.write_bytes(b"\xff" * path.stat().st_size)
    assert not indexes_tags(config_of(store, root))


@pytest.mark.parametrize("name", BY_5_5)
def test_queries_by_tags_answer_as_rocketmq(name):
    store = golden(name, recovered=name == "crashed-551")
    with StoreSnapshot(store.root, config_of(store, store.root)) as snapshot:
        for line in store.dump("tag_query"):
            query = [line[key] for key in ("topic", "tags", "max_num", "begin", "end")]
            found = snapshot.query_message(*query, index_type="T")
            places = dict.fromkeys(message.commit_log_offset for message in found.messages)
            assert list(places) == line["message_offsets"], line
            newest = (found.index_last_update_timestamp, found.index_last_update_phy_offset)
            last = (line["index_last_update_timestamp"], line["index_last_update_phy_offset"])
            assert newest == last, line


@pytest.mark.parametrize(
    ("name", "setting", "found"),
    [("onefile-551", None, 4), ("onefile-5x", None, 0), ("onefile-5x", True, 1)],
)
def test_messages_put_into_a_store_are_found_by_tags_where_it_has_such_entries(
    name, setting, found, tmp_path
):
    store = golden(name)
    config = config_of(store, store.copy_to(tmp_path), tag_index_enable=setting)
    tags = next(line["tags"] for line in store.dump("messages") if line.get("tags"))
    topic = next(line["topic"] for line in store.dump("messages") if line.get("tags"))
    query = (topic, tags, 64, 0, 2**62)
    with MessageStore(config) as opened:
        opened.put_message(Message(topic, b"new", queue_id=0, tags=tags, keys=["k"]))
        opened.wait_for_dispatch()
        assert len(opened.query_message(*query, index_type="T").messages) == found
        by_key = [message.body for message in opened.find_messages(topic, [f"T#{tags}"])]
        assert by_key == [], "an entry of tags is no key"
    again = replace(config, tag_index_enable=None)
    assert indexes_tags(again) == (found > 0)
