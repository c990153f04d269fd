from __future__ import annotations

import os
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.errors import CorruptRecordError
from store_core.files.byte_source import LocalByteSource
from store_core.index import index_file
from store_core.index.index_file import IndexFile, infer_sizes, is_whole, read_index_header
from store_core.index.index_writer import EMPTY_HEADER, IndexFileWriter
from store_core.layout import INDEX_ENTRY, INDEX_HEADER, index_file_bytes
from tests.golden_store import GOLDEN_NAMES, golden
from tests.store_core.index_writer import IndexWriter
from tests.store_core.tools.repair.test_rebuild_index import contents, sizes_of

PUTS = [("T", f"k{n % 7}", n * 100, 1_700_000_000_000 + n * 500) for n in range(40)]
SLOTS, ENTRIES, SECTOR = 300, 900, 512
START_MS = 1_700_000_000_000


def infer(path):
    with LocalByteSource(str(path)) as source:
        return infer_sizes(source)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_golden_file_proves_its_sizes(name):
    store = golden(name)
    sizes = tuple(int(store.config_properties[key]) for key in ("maxHashSlotNum", "maxIndexNum"))
    for path in (store.root / "index").glob("*"):
        assert infer(path) == sizes


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 30), st.integers(0, 9))
def test_any_sizes_are_found(tmp_path_factory, slots, count, spare, base):
    puts = [("T", f"k{n % 9}", base + n // 2, 5 + n) for n in range(count)]
    writer = IndexWriter(slots, count + 1 + spare).put_all(puts)
    path = writer.write(tmp_path_factory.mktemp("index") / "1")
    assert infer(path) == (slots, count + 1 + spare)


@settings(max_examples=80, deadline=None)
@given(st.integers(40, 40 + 40 + 41 * 20 - 1), st.integers(1, 255))
def test_no_damaged_file_proves_anything_wrong(tmp_path_factory, at, flip):
    writer = IndexWriter().put_all(PUTS)
    writer.data[at] ^= flip
    path = writer.write(tmp_path_factory.mktemp("index") / "1")
    # bytes of entry 0 and of time differences, and hashes within a slot, are not looked at
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
    begin = time.perf_counter()
    assert infer(path) is None
    assert time.perf_counter() - begin < 5


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
    began = time.perf_counter()
    assert infer(path) == (slots, 20_000_000)
    assert time.perf_counter() - began < 3  # 0.2 s when nothing else runs


@pytest.mark.parametrize("inserted", [1, 5, 9, 20, 39])
def test_a_file_that_a_broker_fills_meanwhile_proves_nothing(tmp_path, monkeypatch, inserted):
    """The header that is read first knows fewer entries than the file has when it is looked at."""
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
