from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.java_string import string_hash
from store_core.errors import CorruptRecordError
from store_core.files.byte_source import LocalByteSource
from store_core.index import index_file
from store_core.index.index_file import IndexFile, key_hash, key_hashes
from store_core.layout import INDEX_HEADER, INDEX_SLOT
from tests.golden_store import STORE_NAMES, golden
from tests.store_core.closed_later import closed_later
from tests.store_core.index_writer import IndexWriter

PUTS = [("T", f"k{n % 7}", n * 100, 1_700_000_000_000 + n * 500) for n in range(40)]


def open_file(path, slots=10, entries=50):
    return IndexFile(closed_later(LocalByteSource(str(path))), slots, entries)


def expected_hits(puts, topic, keys):
    rows = [(topic_, key, offset) for topic_, key, offset, _ in puts]
    return [
        (number, rows[n][2], n + 1)
        for number, key in enumerate(keys)
        for n in reversed(range(len(rows)))
        if key_hash(*rows[n][:2]) == key_hash(topic, key)
    ]


def hits_of(file, topic, keys):
    hits = file.lookup(key_hashes(topic, keys))
    return list(zip(hits.key.tolist(), hits.commit_log_offset.tolist(), hits.entry.tolist()))


def test_hash_vectors_of_rocketmq():
    assert [key_hash("TopicA", k) for k in ("U0", "k0", "common")] == [
        1903241332,
        1903240650,
        1869674884,
    ]


def test_the_lowest_hash_becomes_zero():
    # digits to the base 31 that bring the hash of "T#AAAAAAA" to the one without absolute value
    left = (2**31 - string_hash("T#AAAAAAA")) % 2**32
    digits = [left // 31**place % 31 for place in range(6, -1, -1)]
    key = "".join(chr(ord("A") + digit) for digit in digits)
    assert string_hash(f"T#{key}") == -(2**31)
    assert key_hash("T", key) == 0
    assert key_hashes("T", [key, "a"]).tolist() == [0, key_hash("T", "a")]


@given(st.text(), st.lists(st.text(), max_size=5))
def test_hashes_of_many_keys_equal_those_of_one(topic, keys):
    assert key_hashes(topic, keys).tolist() == [key_hash(topic, key) for key in keys]


def test_lone_surrogates_have_a_hash():
    assert key_hashes("T", ["\ud800", "a"]).tolist() == [
        key_hash("T", "\ud800"),
        key_hash("T", "a"),
    ]


@pytest.mark.parametrize("name", STORE_NAMES)
def test_every_entry_of_the_golden_files_is_found_by_its_hash(name):
    store = golden(name)
    slots, count = (store.config["store"][key] for key in ("maxHashSlotNum", "maxIndexNum"))
    for path in sorted((store.root / "index").glob("*")):
        file = open_file(path, slots, count)
        entries = file.entries()
        assert len(entries) == file.header.entry_count
        assert int(np.count_nonzero(file.slots())) == file.header.hash_slot_count
        distinct = np.unique(entries["key_hash"])
        hits = file.lookup(distinct)
        assert sorted(hits.entry.tolist()) == list(range(1, len(entries) + 1))
        assert (entries["key_hash"][hits.entry - 1] == distinct[hits.key]).all()
        assert (entries["commit_log_offset"][hits.entry - 1] == hits.commit_log_offset).all()
        assert (np.diff(hits.entry)[np.diff(hits.key) == 0] < 0).all()


@pytest.mark.parametrize("begun", [1, 10, 20, 30, 40])
def test_slots_of_a_file_that_an_old_release_began(tmp_path, monkeypatch, begun):
    """Up to 4.7.0 every entry is counted as a slot; later releases count on from there."""
    monkeypatch.setattr(index_file, "_SCAN_ENTRIES", 7)
    slots = [key_hash(*put[:2]) % 10 for put in PUTS]
    count = begun + len({*slots} - {*slots[:begun]})
    writer = IndexWriter().put_all(PUTS)
    writer.patch(0, INDEX_HEADER.pack(**{**writer.header, "hash_slot_count": count}))
    assert open_file(writer.write(tmp_path / "1")).has_all_slots()
    writer.patch(INDEX_HEADER.size + slots[0] * INDEX_SLOT.size, bytes(INDEX_SLOT.size))
    is_old = count == len(PUTS)  # all of it: there the header says nothing of slots
    assert open_file(writer.write(tmp_path / "2")).has_all_slots() == is_old


def test_more_slots_than_entries_are_not_there(tmp_path):
    writer = IndexWriter().put_all(PUTS)
    count = len(PUTS) + 1
    writer.patch(0, INDEX_HEADER.pack(**{**writer.header, "hash_slot_count": count}))
    assert not open_file(writer.write(tmp_path / "1")).has_all_slots()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("TU"), st.sampled_from(["a", "b", "Aa", "BB", "c"]))),
    st.lists(st.sampled_from(["a", "Aa", "BB", "none"]), max_size=6),
    st.sampled_from([1, 3, 10]),
    st.sampled_from([0, 2, 2048]),
)
def test_lookup_equals_a_search_of_all_entries(tmp_path_factory, words, keys, slots, max_hops):
    puts = [(t, k, n * 10, 1000 + n) for n, (t, k) in enumerate(words)]
    path = tmp_path_factory.mktemp("index") / "1"
    IndexWriter(slots, len(puts) + 2).put_all(puts).write(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_file, "_MAX_HOPS", max_hops)  # the rest is found by scanning
        patch.setattr(index_file, "_SCAN_ENTRIES", 7)
        found = hits_of(open_file(path, slots, len(puts) + 2), "T", keys)
    assert found == expected_hits(puts, "T", keys)


def test_entries_in_parts(tmp_path):
    file = open_file(IndexWriter().put_all(PUTS).write(tmp_path / "1"))
    assert file.entries(3, 6)["commit_log_offset"].tolist() == [200, 300, 400]
    assert len(file.entries(39, 99)) == 2
    assert len(file.entries(99)) == 0


def damaged(tmp_path, change):
    writer = IndexWriter().put_all(PUTS)
    change(writer)
    return open_file(writer.write(tmp_path / "1"))


def link(writer, entry, previous):
    writer.patch(writer.entry_at(entry) + 16, struct.pack(">i", previous))


@pytest.mark.parametrize("previous", [33, 34, 40, 49, 50, 2**31 - 1, -1])
def test_chains_that_do_not_lead_back_are_damage(tmp_path, previous):
    file = damaged(tmp_path, lambda writer: link(writer, 33, previous))
    with pytest.raises(CorruptRecordError, match=r"entry 33: .*chain") as caught:
        hits_of(file, "T", ["k4"])
    assert caught.value.position == 40 + 10 * 4 + 33 * 20


def test_an_entry_of_another_slot_is_damage(tmp_path):
    slots = {n: key_hash("T", f"k{n}") % 10 for n in range(7)}
    other = next(n for n in range(7) if slots[n] != slots[4])
    file = damaged(tmp_path, lambda writer: link(writer, 33, other + 1))
    with pytest.raises(CorruptRecordError, match=f"entry {other + 1}:"):
        hits_of(file, "T", ["k4"])


@pytest.mark.parametrize("newest", [41, 49])
def test_slots_that_lead_to_entries_that_were_never_written_are_damage(tmp_path, newest):
    slot = key_hash("T", "k4") % 10
    file = damaged(tmp_path, lambda writer: writer.patch(40 + 4 * slot, struct.pack(">i", newest)))
    with pytest.raises(CorruptRecordError, match=f"entry {newest}"):
        hits_of(file, "T", ["k4"])


@pytest.mark.parametrize("newest", [-1, 50, 2**31 - 1])
def test_slots_that_lead_outside_are_damage(tmp_path, newest):
    slot = key_hash("T", "k4") % 10
    file = damaged(tmp_path, lambda writer: writer.patch(40 + 4 * slot, struct.pack(">i", newest)))
    with pytest.raises(CorruptRecordError, match=f"slot {slot}") as caught:
        hits_of(file, "T", ["k4"])
    assert caught.value.position == 40 + 4 * slot


@pytest.mark.parametrize("previous", [34, 49])
def test_rocketmqs_own_walk_never_runs_in_a_circle(tmp_path, previous):
    file = damaged(tmp_path, lambda writer: (link(writer, 33, previous), link(writer, 34, 33)))
    if previous == 34:
        with pytest.raises(CorruptRecordError, match="forward"):
            file.select_phy_offset(key_hash("T", "k4"), 64, 0, 2**62)
    else:
        offsets = file.select_phy_offset(key_hash("T", "k4"), 64, 0, 2**62)
        assert offsets == [3900, 3200]  # a link above index_count ends the chain, as in RocketMQ


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=1, max_size=8), st.integers(0, 40 + 40 + 1000 - 1))
def test_damaged_bytes_never_crash(tmp_path_factory, junk, at):
    writer = IndexWriter().put_all(PUTS)
    writer.patch(at, junk[: len(writer.data) - at])
    path = writer.write(tmp_path_factory.mktemp("index") / "1")
    try:
        file = open_file(path)
        file.entries()
        hits_of(file, "T", [f"k{n}" for n in range(7)])
        file.select_phy_offset(key_hash("T", "k1"), 64, 0, 2**62)
    except CorruptRecordError:
        pass


def test_headers_are_checked(tmp_path):
    path = tmp_path / "1"
    good = IndexWriter().put_all(PUTS)
    for change in ({"index_count": 51}, {"begin_phy_offset": 5000}, {"begin_phy_offset": -1}):
        good.patch(0, INDEX_HEADER.pack(**{**good.header, **change}))
        good.write(path)
        with pytest.raises(CorruptRecordError):
            open_file(path)
    good.patch(0, INDEX_HEADER.pack(**{**good.header, "index_count": -3}))
    assert open_file(good.write(path)).header.entry_count == 0
    with pytest.raises(CorruptRecordError, match="maxHashSlotNum"):
        open_file(path, 11, 50)
    path.write_bytes(b"\0" * 39)
    with pytest.raises(CorruptRecordError, match="shorter"):
        open_file(path)


def test_times_of_a_query_are_rounded_as_rocketmq_does(tmp_path):
    base = 1_700_000_000_000
    writer = IndexWriter().put_all([("T", "k", n, base + n * 700) for n in range(6)])
    file = open_file(writer.write(tmp_path / "1"))

    def select(begin, end, max_num=64):
        return file.select_phy_offset(key_hash("T", "k"), max_num, begin, end)

    assert select(base, base + 10_000) == [5, 4, 3, 2, 1, 0]
    assert select(base, base + 10_000, 2) == [5, 4]
    assert select(base + 2000, base + 2000) == [4, 3]
    assert select(base + 1, base + 999) == []


def test_entries_that_a_broker_adds_meanwhile_do_no_harm(tmp_path):
    writer = IndexWriter().put_all(PUTS)
    path = writer.write(tmp_path / "1")
    file = open_file(path)
    writer.put("T", "k4", 9000, PUTS[-1][3])
    with path.open("r+b") as out:
        out.write(writer.data)
    found = [offset for _, offset, _ in hits_of(file, "T", ["k4"])]
    assert found == [9000, 3900, 3200, 2500, 1800, 1100, 400]
    assert file.select_phy_offset(key_hash("T", "k4"), 2, 0, 2**62) == [9000, 3900]
    assert file.header.entry_count == 40
