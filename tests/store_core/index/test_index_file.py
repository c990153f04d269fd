# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.java_string import string_hash
from store_core.errors import CorruptRecordError
from store_core.files.byte_source import LocalByteSource
from store_core.index import index_file
from store_core.index.index_file import (
    IndexFile,
    infer_sizes,
    is_whole,
    key_hash,
    key_hashes,
    read_index_header,
)
from store_core.index.index_writer import EMPTY_HEADER, IndexFileWriter
from store_core.layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, index_file_bytes
from tests.examples import examples
from tests.golden_store import GOLDEN_NAMES, STORE_NAMES, golden
from tests.store_core.closed_later import closed_later
from tests.store_core.index_writer import IndexWriter
from tests.store_core.tools.repair.test_rebuild_index import contents, sizes_of

PUTS = [("T", f"k{n % 7}", n * 100, 1_700_000_000_000 + n * 500) for n in range(40)]
SLOTS, ENTRIES, SECTOR = 300, 900, 512
START_MS = 1_700_000_000_000


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
    """Return the hits of some keys, for which few and many keys go different ways."""
    hashes = key_hashes(topic, keys)
    few, many = (outcome(file, hashes, count) for count in (len(hashes), 0))
    assert type(few) is type(many)
    if isinstance(few, CorruptRecordError):
        raise few
    assert few == many
    return few


def outcome(file, hashes, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_file, "_FEW_HASHES", few)
        try:
            hits = file.lookup(hashes)
        except CorruptRecordError as err:
            return err
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


@given(st.text(), st.lists(st.text(), max_size=5) | st.lists(st.text(), min_size=17, max_size=20))
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


@settings(max_examples=examples(25), deadline=None)
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
        patch.setattr(index_file, "_MAX_HOPS", max_hops)  # a scan finds the rest
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


@settings(max_examples=examples(30), deadline=None)
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


def infer(path):
    with LocalByteSource(str(path)) as source:
        return infer_sizes(source)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_golden_file_proves_its_sizes(name):
    store = golden(name)
    sizes = tuple(int(store.config_properties[key]) for key in ("maxHashSlotNum", "maxIndexNum"))
    for path in (store.root / "index").glob("*"):
        assert infer(path) == sizes


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 30), st.integers(0, 9))
def test_any_sizes_are_found(tmp_path_factory, slots, count, spare, base):
    puts = [("T", f"k{n % 9}", base + n // 2, 5 + n) for n in range(count)]
    writer = IndexWriter(slots, count + 1 + spare).put_all(puts)
    path = writer.write(tmp_path_factory.mktemp("index") / "1")
    assert infer(path) == (slots, count + 1 + spare)


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(40, 40 + 40 + 41 * 20 - 1), st.integers(1, 255))
def test_no_damaged_file_proves_anything_wrong(tmp_path_factory, at, flip):
    writer = IndexWriter().put_all(PUTS)
    writer.data[at] ^= flip
    path = writer.write(tmp_path_factory.mktemp("index") / "1")
    # bytes of entry 0 and of time differences, and hashes within a slot, are not checked
    assert infer(path) in (None, (10, 50))


def test_files_without_proof(tmp_path):
    path = tmp_path / "1"
    assert infer(IndexWriter().write(path)) is None
    path.write_bytes(b"")
    assert infer(path) is None
    path.write_bytes(b"\xff" * 1080)
    assert infer(path) is None
    writer = IndexWriter().put_all(PUTS)
    writer.patch(writer.entry_at(41), b"\1" * 20)  # half of an insert
    assert infer(writer.write(path)) is None
    path.write_bytes(writer.data[:-7])
    assert infer(path) is None


@pytest.mark.parametrize("size", [1 << 40, 40 + 24 * (2**31 - 1) + 1])
def test_no_index_file_is_longer_than_its_numbers_can_be(tmp_path, size):
    path = IndexWriter().put_all(PUTS).write(tmp_path / "1")
    os.truncate(path, size)
    assert infer(path) is None
    with LocalByteSource(str(path)) as source, pytest.raises(CorruptRecordError) as raised:
        read_index_header(source)
    assert f"{path}" in str(raised.value)
    assert f"{size} bytes long; an index file has 51539607568 at most" in str(raised.value)


def test_holes_of_the_longest_file_are_not_read(tmp_path):
    path = IndexWriter().put_all(PUTS).write(tmp_path / "1")
    os.truncate(path, 40 + 24 * (2**31 - 1))
    begin = time.process_time()
    assert infer(path) is None
    assert time.process_time() - begin < 5


def test_a_sparse_file_of_420_mb_takes_about_a_second(tmp_path):
    count, slots = 200_000, 5_000_003
    hashes = np.arange(count, dtype=np.int64) * 9973 % slots  # all different
    entries = np.zeros(count, INDEX_ENTRY.dtype)
    entries["key_hash"] = hashes
    entries["commit_log_offset"] = np.arange(count)
    newest = np.zeros(slots, ">i4")
    newest[hashes] = np.arange(1, count + 1)
    header = INDEX_HEADER.pack(
        begin_timestamp=1,
        end_timestamp=2,
        begin_phy_offset=0,
        end_phy_offset=count - 1,
        hash_slot_count=count,
        index_count=count + 1,
    )
    path = tmp_path / "1"
    with path.open("wb") as out:
        out.write(header + newest.tobytes() + bytes(INDEX_ENTRY.size) + entries.tobytes())
        out.truncate(index_file_bytes(slots, 20_000_000))
    began = time.process_time()
    assert infer(path) == (slots, 20_000_000)
    assert time.process_time() - began < 3  # 0.2 s when nothing else runs


@pytest.mark.parametrize("inserted", [1, 5, 9, 20, 39])
def test_a_file_that_a_broker_fills_meanwhile_proves_nothing(tmp_path, monkeypatch, inserted):
    """The header that is read first counts fewer entries than the file has when it is checked."""
    path = IndexWriter(10, 41).put_all(PUTS).write(tmp_path / "1")

    def earlier(source):
        header = read_index_header(source)
        return header._replace(index_count=header.index_count - inserted)

    monkeypatch.setattr(index_file, "read_index_header", earlier)
    assert infer(path) is None


def whole(path, slots=SLOTS, entries=ENTRIES):
    with LocalByteSource(str(path)) as source:
        return is_whole(IndexFile(source, slots, entries))


@pytest.fixture
def states(tmp_path):
    """The path of a file, and its bytes after half of the entries and after all of them."""
    path = tmp_path / "20240101000000000"
    random = np.random.default_rng(7)
    count = ENTRIES - 101
    hashes = random.integers(0, 1 << 31, count, dtype=np.int32)
    offsets = np.cumsum(random.integers(0, 300, count)) + 1000
    times = START_MS + np.arange(count, dtype=np.int64) * 700
    writer = IndexFileWriter(path, SLOTS, ENTRIES, EMPTY_HEADER)
    found = []
    for part in (slice(0, count // 2), slice(count // 2, count)):
        writer.append(hashes[part], offsets[part], times[part])
        writer.publish()
        found.append(path.read_bytes())
    writer.close()
    return path, *found


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_files_that_rocketmq_wrote(name):
    store = golden(name)
    for file in contents(store.root):
        path = store.root / "index" / file
        with LocalByteSource(str(path)) as source:
            is_filled = IndexFile(source, *sizes_of(store)).header.entry_count > 0
        assert whole(path, *sizes_of(store)) == is_filled


def test_more_entries_than_are_looked_at_at_once(states, monkeypatch):
    path, *_ = states
    monkeypatch.setattr("store_core.index.index_file._CHUNK_ENTRIES", 64)
    assert whole(path)


def test_a_file_that_grew_is_whole_at_each_stage(states):
    path, half, full = states
    for state in (half, full):
        path.write_bytes(state)
        assert whole(path)


@pytest.mark.parametrize("lost", ["zeros", "as before"])
def test_any_sector_that_was_not_written(states, lost):
    path, half, full = states
    tried = 0
    for at in range(0, len(full), SECTOR):
        older = bytes(SECTOR) if lost == "zeros" else half[at : at + SECTOR]
        torn = full[:at] + older[: len(full) - at] + full[at + SECTOR :]
        if torn != full:
            path.write_bytes(torn)
            assert not whole(path), at
            tried += 1
    assert tried > 15


def test_any_byte_of_slots_and_of_links(states):
    path, _, full = states
    random = np.random.default_rng(3)
    begin = index_file_bytes(SLOTS, 1)
    links = [begin + n * INDEX_ENTRY.size + INDEX_ENTRY.at("previous_entry") for n in range(700)]
    places = [*range(INDEX_HEADER.size, begin - INDEX_ENTRY.size), *(at + 3 for at in links)]
    for at in random.choice(places, 300, replace=False).tolist():
        other = bytearray(full)
        other[at] ^= int(random.integers(1, 256))
        path.write_bytes(other)
        assert not whole(path), at


@pytest.mark.parametrize("field", ["begin_phy_offset", "end_phy_offset", "index_count"])
@pytest.mark.parametrize("more", [-1, 1])
def test_a_header_of_another_state(states, field, more):
    path, _, full = states
    header = INDEX_HEADER.unpack(full)._asdict()
    header[field] += more
    path.write_bytes(INDEX_HEADER.pack(**header) + full[INDEX_HEADER.size :])
    assert not whole(path)


def test_a_file_without_entries_proves_nothing(tmp_path):
    path = tmp_path / "20240101000000000"
    IndexFileWriter(path, SLOTS, ENTRIES, EMPTY_HEADER).close()
    assert not whole(path)
