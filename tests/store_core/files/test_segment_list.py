from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import StoreFormatError
from store_core.files.segment_list import load_segments
from store_core.files.store_directory import FileEntry


def entry(from_offset, size, name=None):
    name = name or f"{from_offset:020d}"
    return FileEntry(name, f"/log/{name}", size, False, 0)


def load(*entries, file_size=None, unit_bytes=1):
    return load_segments(entries, file_size=file_size, unit_bytes=unit_bytes, option="theKey")


def test_segments_are_sorted_and_found_by_offset():
    segments = load(entry(200, 100), entry(100, 100), entry(400, 100))
    assert (segments.file_size, segments.min_offset, segments.max_offset) == (100, 100, 500)
    assert [s.from_offset for s in segments] == [100, 200, 400]
    found = [segments.find(offset) for offset in (99, 100, 199, 200, 300, 399, 499, 500)]
    assert [s and s.from_offset for s in found] == [None, 100, 100, 200, None, None, 400, None]


def test_names_that_are_no_segment_are_skipped():
    segments = load(
        entry(0, 100),
        entry(0, 100, "00000000000000000100.tmp"),
        entry(0, 100, "100"),
        entry(0, 7, "٠" * 20),
    )
    assert [s.path for s in segments] == ["/log/" + "0" * 20]


@pytest.mark.parametrize("kind", [{"is_dir": True}, {"not_a_file": "a FIFO"}])
def test_what_is_no_file_is_not_skipped(kind):
    with pytest.raises(StoreFormatError, match="where a regular file was expected"):
        load(entry(0, 100), entry(100, 0)._replace(**kind))


def test_an_empty_last_file_is_skipped_and_others_keep_their_length():
    segments = load(entry(0, 100), entry(100, 0), entry(200, 60), entry(300, 0), file_size=100)
    assert [s.size for s in segments] == [100, 0, 60]
    assert segments.max_offset == 260


@pytest.mark.parametrize(
    ("entries", "size"),
    [
        ([entry(0, 70)], 70),
        ([entry(140, 70)], 70),
        ([entry(0, 100), entry(100, 60)], 100),
        ([entry(0, 100), entry(200, 100)], 100),  # the file between is lost
        ([entry(0, 90), entry(100, 100), entry(200, 100)], 100),
        ([], 0),
    ],
)
def test_the_nominal_size_is_seen(entries, size):
    assert load(*entries).file_size == size


def test_a_given_size_is_rounded_up_to_units():
    assert load(entry(0, 40), entry(40, 40), file_size=39, unit_bytes=20).file_size == 40


@pytest.mark.parametrize(
    ("entries", "options"),
    [
        ([entry(150, 100)], {}),
        ([entry(0, 100), entry(130, 90), entry(240, 10)], {}),
        ([entry(100, 100)], {"file_size": 30}),
        ([entry(0, 70)], {"unit_bytes": 20}),
        ([entry(0, 64), entry(1, 5)], {"file_size": 64}),
    ],
)
def test_names_that_do_not_fit_name_file_and_option(entries, options):
    with pytest.raises(StoreFormatError, match=r"/log/\d+.*theKey"):
        load(*entries, **options)


def test_equal_names_of_two_directories_are_refused():
    twin = FileEntry("0" * 20, "/second/" + "0" * 20, 100, False, 0)
    with pytest.raises(StoreFormatError, match="same name"):
        load(entry(0, 100), twin)


def test_names_beyond_a_long_are_refused():
    with pytest.raises(StoreFormatError, match="larger"):
        load(entry(0, 100, "9" * 20))


@given(st.sets(st.integers(0, 50), min_size=1), st.integers(1, 1000), st.integers(-10, 60_000))
def test_find_agrees_with_a_scan(numbers, size, offset):
    segments = load(*(entry(n * size, size) for n in numbers), file_size=size)
    holding = [n for n in numbers if n * size <= offset < (n + 1) * size]
    found = segments.find(offset)
    assert (None if found is None else [found.from_offset // size]) == (holding or None)


def test_a_file_that_would_end_behind_every_byte_offset_is_refused():
    last = (2**63 - 1) // 100 * 100
    assert load(entry(last - 100, 100), file_size=100).max_offset == last
    with pytest.raises(StoreFormatError, match="of 100 bytes would end after any byte offset"):
        load(entry(last, 100), file_size=100)
    with pytest.raises(StoreFormatError, match="end after any byte offset"):
        load(entry(last - 100, 10**9), file_size=100)
