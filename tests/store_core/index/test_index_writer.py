# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import itertools
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import CorruptRecordError, StoreConfigError, native
from store_core.files.byte_source import LocalByteSource
from store_core.index.index_entries import IndexEntries
from store_core.index.index_file import IndexFile, key_hash
from store_core.index.index_writer import IndexWriter, index_file_name, index_file_names
from store_core.layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, index_file_bytes
from tests.examples import examples
from tests.store_core.index_writer import IndexWriter as OneByOne

TOPIC, START_MS = "T", 1_700_000_000_000
SLOTS, ENTRIES = 5, 8
NAMES_FROM_MS = 1_700_000_000_000

records = st.lists(  # (bytes since the last record, keys, ms since the last record)
    st.tuples(
        st.integers(1, 300),
        st.lists(st.sampled_from("abcdefgh"), max_size=12),
        st.integers(-2500, 2500),
    ),
    max_size=25,
)


def placed(steps):
    """Return (offset, keys, store time) of records."""
    offset, now, found = 0, START_MS, []
    for size, keys, ms in steps:
        offset, now = offset + size, now + ms
        found.append((offset, keys, now))
    return found


def batch(rows):
    hashes = [key_hash(TOPIC, key) for _, keys, _ in rows for key in keys]
    offsets = [offset for offset, keys, _ in rows for _ in keys]
    times = [now for _, keys, now in rows for _ in keys]
    last = rows[-1][0] if rows else -1
    columns = np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(times, np.int64)
    return IndexEntries(*columns, last)


def one_by_one(rows, slots=SLOTS, entries=ENTRIES):
    """Return the bytes of the files by RocketMQ's rules."""
    files = []
    for offset, keys, now in rows:
        for key in [None, *keys]:
            if not files or files[-1].header["index_count"] >= entries:
                file = OneByOne(slots, entries)
                if files:
                    end = files[-1].header
                    for field in ("timestamp", "phy_offset"):
                        value = end["end_" + field]
                        file.header["begin_" + field] = file.header["end_" + field] = value
                file.patch(0, INDEX_HEADER.pack(**file.header))
                files.append(file)
            if key is not None:
                files[-1].put(TOPIC, key, offset, now)
    return [bytes(file.data) for file in files]


def writer_of(directory, slots=SLOTS, entries=ENTRIES, now_ms=None):
    ticks = itertools.count(NAMES_FROM_MS if now_ms is None else now_ms)
    return IndexWriter(Path(directory), slots, entries, lambda: next(ticks))


def contents(directory):
    return [(Path(directory) / n).read_bytes() for n in index_file_names(Path(directory))]


@settings(max_examples=examples(80), deadline=None)
@given(records, st.lists(st.tuples(st.integers(0, 25), st.booleans()), max_size=5))
def test_files_equal_those_written_one_by_one(steps, cuts):
    rows = placed(steps)
    with tempfile.TemporaryDirectory() as directory:
        writer, at = writer_of(directory), 0
        for cut, reopens in [*sorted(cuts), (len(rows), False)]:
            writer.append(batch(rows[at:cut]))
            at = max(at, cut)
            if reopens:
                writer.close()
                writer = writer_of(directory)
        writer.close()
        assert contents(directory) == one_by_one(rows)


@settings(max_examples=examples(80), deadline=None)
@given(records, st.data())
def test_records_that_come_again_are_left_out(steps, data):
    rows = placed(steps)
    cut = data.draw(st.integers(0, len(rows)))
    again = data.draw(st.integers(0, cut))
    with tempfile.TemporaryDirectory() as directory:
        writer = writer_of(directory)
        writer.append(batch(rows[:cut]))
        if data.draw(st.booleans()):
            writer.close()
            writer = writer_of(directory)
        writer.append(batch(rows[again:]))
        writer.close()
        assert contents(directory) == one_by_one(rows)


def test_the_rest_of_a_record_whose_second_file_is_lost(tmp_path):
    rows = [(10, list("abcde"), START_MS), (20, list("abcd"), START_MS)]
    with writer_of(tmp_path) as writer:
        writer.append(batch(rows))
    whole = contents(tmp_path)
    assert len(whole) == 2
    (tmp_path / index_file_names(tmp_path)[1]).unlink()
    with writer_of(tmp_path) as writer:
        assert writer.end_phy_offset == 20
        writer.append(batch(rows[1:]))
    assert contents(tmp_path) == whole


def test_another_record_at_the_same_place_is_added(tmp_path):
    rows = [(10, ["a", "b"], START_MS)]
    with writer_of(tmp_path) as writer:
        writer.append(batch(rows))
        writer.append(batch([(10, ["a", "c"], START_MS)]))
    assert contents(tmp_path) == one_by_one([*rows, (10, ["a", "c"], START_MS)])


def test_records_that_come_again_begin_no_file(tmp_path):
    rows = [(10, list("abcdefg"), START_MS)]
    with writer_of(tmp_path) as writer:
        writer.append(batch(rows))
        writer.append(batch(rows))
    assert contents(tmp_path) == one_by_one(rows)


def test_a_record_without_keys_begins_a_file(tmp_path):
    with writer_of(tmp_path) as writer:
        writer.append(batch([]))
        assert index_file_names(tmp_path) == []
        writer.append(batch([(10, [], START_MS)]))
        assert len(index_file_names(tmp_path)) == 1
        writer.append(batch([(20, list("abcdefg"), START_MS)]))
        assert len(index_file_names(tmp_path)) == 1
        writer.append(batch([(30, [], START_MS)]))
        assert len(index_file_names(tmp_path)) == 2


@pytest.mark.parametrize(
    ("times", "diffs"),
    [
        ([START_MS, START_MS + 1999, START_MS - 1, START_MS - 9000], [0, 1, 0, 0]),
        ([START_MS, START_MS + (2**31 + 5) * 1000], [0, 2**31 - 1]),
        ([0, START_MS], [0, 0]),
        ([-5, START_MS], [0, 0]),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_time_differences(tmp_path, times, diffs, together):
    rows = [(10 * n, ["a"], now) for n, now in enumerate(times, 1)]
    with writer_of(tmp_path) as writer:
        for part in [rows] if together else [[row] for row in rows]:
            writer.append(batch(part))
    table = INDEX_ENTRY.table(contents(tmp_path)[0], index_file_bytes(SLOTS, 0))
    assert table["time_diff_seconds"][1 : len(diffs) + 1].tolist() == diffs


def test_first_difference_of_the_next_file_counts_from_the_file_before(tmp_path):
    rows = [(10, list("abcdefg"), START_MS), (20, ["a"], START_MS + 7500)]
    with writer_of(tmp_path) as writer:
        writer.append(batch(rows))
    second = contents(tmp_path)[1]
    assert INDEX_ENTRY.table(second, index_file_bytes(SLOTS, 0))["time_diff_seconds"][1] == 7
    assert INDEX_HEADER.unpack(second).begin_timestamp == START_MS + 7500


def test_names_are_local_times():
    stamp = time.mktime((2026, 3, 4, 5, 6, 7, 0, 0, -1))
    assert index_file_name(int(stamp) * 1000 + 89, None) == "20260304050607089"


@pytest.mark.parametrize(
    ("last", "following"),
    [
        ("99991230235959999", "99991231000000000"),
        ("20991231235959999", "21000101000000000"),
        ("99999999999999999", "100000000000000000"),
        ("000", None),
    ],
)
def test_names_grow_whatever_the_clock_says(last, following):
    assert index_file_name(START_MS, last) == (following or index_file_name(START_MS, None))


def test_names_within_one_millisecond(tmp_path):
    with IndexWriter(tmp_path, SLOTS, 2, lambda: START_MS) as writer:
        writer.append(batch([(10, list("abc"), START_MS)]))
        names = index_file_names(tmp_path)
    assert [int(b) - int(a) for a, b in zip(names, names[1:])] == [1, 1]


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "12").mkdir()
    with writer_of(tmp_path) as writer:
        writer.append(batch([(10, ["a"], START_MS)]))
    assert len(index_file_names(tmp_path)) == 1
    assert index_file_names(tmp_path / "missing") == []


def lookup(path, key):
    with LocalByteSource(str(path)) as source:
        hits = IndexFile(source, SLOTS, ENTRIES).lookup(np.array([key_hash(TOPIC, key)], np.int32))
        return hits.commit_log_offset.tolist()


def test_entries_are_found_when_they_are_published(tmp_path):
    with writer_of(tmp_path) as writer:
        writer.append(batch([(10, ["a", "b"], START_MS)]))
        path = tmp_path / index_file_names(tmp_path)[0]
        assert lookup(path, "a") == []
        writer.publish()
        assert lookup(path, "a") == [10]
        writer.append(batch([(20, ["a"], START_MS)]))
        writer.publish()
        assert lookup(path, "a") == [20, 10]


def test_all_that_a_header_speaks_for_is_found(tmp_path, monkeypatch):
    """Between any two writes, a reader that read the header first finds every counted entry."""

    def check(descriptor, data, at):
        path = tmp_path / index_file_names(tmp_path)[-1]
        with LocalByteSource(str(path)) as source:
            file = IndexFile(source, SLOTS, 64)
            written = pwrite(descriptor, data, at)
            last = file.header.end_phy_offset
            for offset, keys in published.items():
                for key in keys:
                    hits = file.lookup(np.array([key_hash(TOPIC, key)], np.int32))
                    assert offset > last or offset in hits.commit_log_offset
                    assert offset in file.select_phy_offset(key_hash(TOPIC, key), 99, 0, 2**62) or (
                        offset >= last
                    )
            seen.add(last)
        return written

    published = {10 * n: random.Random(n).choices("abcdef", k=3) for n in range(1, 15)}
    pwrite, seen = os.pwrite, set()
    with IndexWriter(tmp_path, SLOTS, 64, lambda: NAMES_FROM_MS) as writer:
        for offset, keys in published.items():
            writer.append(batch([(offset, keys, START_MS)]))
            monkeypatch.setattr(os, "pwrite", check)
            writer.publish()
            monkeypatch.setattr(os, "pwrite", pwrite)
    assert len(seen) == 14


@pytest.mark.parametrize("failing", range(9))
def test_a_failed_write_can_be_repeated(tmp_path, monkeypatch, failing):
    rows = [(10 * n, list("abc"), START_MS + n) for n in range(1, 7)]
    calls = itertools.count()
    pwrite = os.pwrite

    def full_disk(descriptor, data, at):
        if next(calls) == failing:
            pwrite(descriptor, bytes(data)[: len(data) // 2], at)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data, at)

    with writer_of(tmp_path) as writer:
        monkeypatch.setattr(os, "pwrite", full_disk)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as error:
            writer.append(batch(rows))
        assert Path(error.value.filename).parent == tmp_path
        writer.append(batch(rows))
    assert contents(tmp_path) == one_by_one(rows)


@pytest.mark.parametrize("failing", ["arange", "unique", "empty", "count_nonzero"])
@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, os.strerror(errno.EMFILE))])
def test_what_fails_before_the_write_or_after_it_can_be_repeated(
    tmp_path, monkeypatch, failing, error
):
    """A process out of memory; or out of files, when numpy first imports what `unique` needs."""
    monkeypatch.setattr(native, "kernel", None)
    before = [(10, list("abc"), START_MS)]
    rows = [(20, list("cab"), START_MS + 1), (30, list("aa"), START_MS + 2)]

    def fail(*_, **__):
        raise error

    with IndexWriter(tmp_path, SLOTS, 64, lambda: NAMES_FROM_MS) as writer:
        writer.append(batch(before))
        with monkeypatch.context() as patch:
            patch.setattr(np, failing, fail)
            with pytest.raises(type(error)):
                writer.append(batch(rows))
        writer.append(batch(rows))
    assert contents(tmp_path) == one_by_one([*before, *rows], entries=64)


def test_a_file_that_cannot_be_begun_is_not_left(tmp_path, monkeypatch):
    def full_disk(*_):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    with writer_of(tmp_path) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", full_disk)
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
                writer.append(batch([(10, ["a"], START_MS)]))
        assert index_file_names(tmp_path) == []


def test_short_writes_are_continued(tmp_path, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:7], at))
    rows = [(10, list("abcdefgh"), START_MS)]
    with writer_of(tmp_path) as writer:
        writer.append(batch(rows))
    assert contents(tmp_path) == one_by_one(rows)


def test_full_files_are_flushed_before_they_are_named(tmp_path, monkeypatch):
    synced = []
    fdatasync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), fdatasync(fd))[1])
    with writer_of(tmp_path) as writer:
        writer.append(batch([(10, list("abcdefg"), START_MS)]))
        writer.flush_full()
        assert (writer.flushed_end_timestamp, synced) == (0, [])
        writer.append(batch([(20, ["a"], START_MS + 1)]))
        writer.flush_full()
        assert writer.flushed_end_timestamp == START_MS
        assert len(synced) == 1
        writer.flush()
        assert len(synced) == 2
        assert writer.flushed_end_timestamp == START_MS


def test_files_of_default_size_are_sparse(tmp_path):
    with writer_of(tmp_path, 5_000_000, 20_000_000) as writer:
        writer.append(batch([(10, list("abc"), START_MS)]))
    stat = (tmp_path / index_file_names(tmp_path)[0]).stat()
    assert stat.st_size == 420_000_040
    assert stat.st_blocks * 512 < 1 << 20


def test_many_slots_are_written_where_they_belong(tmp_path):
    slots, entries = 10_000, 4000
    keys = [f"key-{n}" for n in range(3000)]
    rows = [(10, keys[:5], START_MS), (20, keys[5:], START_MS)]
    with writer_of(tmp_path, slots, entries) as writer:
        for row in rows:
            writer.append(batch([row]))
            writer.publish()
    assert contents(tmp_path) == one_by_one(rows, slots, entries)


def test_a_slot_ahead_of_the_entries_counts_as_empty(tmp_path):
    rows = [(10, ["a"], START_MS)]
    with writer_of(tmp_path) as writer:
        writer.append(batch(rows))
    path = tmp_path / index_file_names(tmp_path)[0]
    data = bytearray(path.read_bytes())
    slot = INDEX_HEADER.size + key_hash(TOPIC, "b") % SLOTS * INDEX_SLOT.size
    data[slot : slot + 4] = INDEX_SLOT.pack(newest_entry=6)  # as a crash may leave it
    path.write_bytes(data)
    with writer_of(tmp_path) as writer:
        writer.append(batch([(20, ["b"], START_MS)]))
    assert lookup(path, "b") == [20]
    assert contents(tmp_path) == one_by_one([*rows, (20, ["b"], START_MS)])


@pytest.mark.parametrize("sizes", [(0, 10), (10, 1), (2**31, 10), (10, 2**31), (-1, -1)])
def test_impossible_sizes(tmp_path, sizes):
    with pytest.raises(StoreConfigError, match=f"maxHashSlotNum={sizes[0]}"):
        writer_of(tmp_path, *sizes)


def test_a_file_of_other_sizes_is_not_continued(tmp_path):
    with writer_of(tmp_path) as writer:
        writer.append(batch([(10, ["a"], START_MS)]))
    before = contents(tmp_path)
    with pytest.raises(CorruptRecordError, match="maxHashSlotNum"):
        writer_of(tmp_path, SLOTS, ENTRIES + 1)
    assert contents(tmp_path) == before
