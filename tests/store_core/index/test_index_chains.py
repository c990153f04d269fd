from __future__ import annotations

import numpy as np
import pytest

from store_core.files.byte_source import LocalByteSource
from store_core.index.index_file import IndexFile
from store_core.index.index_file_writer import EMPTY_HEADER, IndexFileWriter
from store_core.index.index_sizes import is_whole
from store_core.layout.index import INDEX_ENTRY, INDEX_HEADER, index_file_bytes
from tests.golden_store import GOLDEN_NAMES, golden
from tests.store_core.tools.repair.test_rebuild_index import contents, sizes_of

SLOTS, ENTRIES, SECTOR = 300, 900, 512
START_MS = 1_700_000_000_000


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
    monkeypatch.setattr("store_core.index.index_sizes._CHUNK_ENTRIES", 64)
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
