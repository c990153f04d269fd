# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from store_core.errors import OffsetOutOfRangeError, StoreReadError
from store_core.files.byte_source import ByteSource, LocalByteSource, first_nonzero, last_nonzero
from store_core.files.remote_files import RemoteByteSource
from store_core.files.remote_object import RemoteObject

CONTENT = bytes(range(256)) * 1200
MIB = 1 << 20
SIZE = 20 * MIB


@pytest.fixture(params=["local", "remote"])
def source(request, tmp_path):
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    if request.param == "local":
        opened: ByteSource = LocalByteSource(str(path))
    else:
        handle = SubTreeFileSystem(str(tmp_path), LocalFileSystem()).open_input_file("segment")
        opened = RemoteByteSource(RemoteObject("segment", lambda: handle))
    with opened:
        yield opened


@pytest.mark.parametrize(("start", "length"), [(0, 5), (7, 300), (len(CONTENT) - 3, 10)])
def test_read_and_view_give_the_bytes_that_exist(source, start, length):
    expected = CONTENT[start : start + length]
    assert source.read_at(start, length) == expected
    assert source.view(start, length).tobytes() == expected


def test_past_the_end_is_empty_and_negative_is_refused(source):
    assert source.size == len(CONTENT)
    assert source.read_at(len(CONTENT) + 5, 10) == b""
    assert len(source.view(len(CONTENT) + 5, 10)) == 0
    with pytest.raises(OffsetOutOfRangeError):
        source.read_at(-1, 10)
    with pytest.raises(OffsetOutOfRangeError):
        source.view(1, -10)


def test_views_cannot_be_written(source):
    view = source.view(0, 10)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_gather_keeps_the_order_of_scattered_pieces(source):
    starts = np.array([200_000, 3, 90_000, 3, 100, len(CONTENT) - 4])
    pieces = source.gather(starts, 4)
    assert [p.tobytes() for p in pieces] == [CONTENT[s : s + 4] for s in starts.tolist()]
    assert source.gather(np.empty(0, np.int64), 4).shape == (0, 4)


@pytest.mark.parametrize("start", [-1, len(CONTENT) - 3])
def test_gather_refuses_pieces_outside(source, start):
    with pytest.raises(OffsetOutOfRangeError, match="outside"):
        source.gather(np.array([5, start]), 4)


def test_forgotten_pages_are_read_again(source):
    view = source.view(0, len(CONTENT))
    total = int(view.sum())
    source.forget(10, 3 * mmap.PAGESIZE)
    source.forget(0, len(CONTENT))
    assert int(view.sum()) == total


def test_views_outlive_the_source(tmp_path):
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    source = LocalByteSource(str(path))
    view = source.view(10, 20)
    source.close()
    source.close()
    assert view.tobytes() == CONTENT[10:30]
    with pytest.raises(StoreReadError):
        source.read_at(0, 1)
    with pytest.raises(StoreReadError, match="closed"):
        source.view(0, 1)


def test_an_empty_file_has_an_empty_view(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    with LocalByteSource(str(path)) as source:
        assert source.view(0, 10).tobytes() == source.read_at(0, 10) == b""


def test_missing_file_names_its_path(tmp_path):
    with pytest.raises(StoreReadError, match=r"nothing.*No such file"):
        LocalByteSource(str(tmp_path / "nothing"))


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 24))
def test_remote_gather_equals_slicing(starts, width):
    data = bytes(range(256)) * 4

    class Memory(RemoteByteSource):
        def __init__(self):
            self.path, self.size = "memory", len(data)

        def read_at(self, start, length):
            return data[start : start + length]

        def views(self, ranges):
            return [self.view(*each) for each in ranges]

    pieces = Memory().gather(np.array(starts, np.int64), width)
    assert [p.tobytes() for p in pieces] == [data[s : s + width] for s in starts]


class CountingHandle:
    """A remote file that records its requests."""

    def __init__(self):
        self.asked = []

    def size(self):
        return len(CONTENT)

    def read_at(self, length, start):
        self.asked.append((start, length))
        return CONTENT[start : start + length]

    def close(self):
        pass


def test_small_remote_reads_ask_for_each_block_once():
    handle = CountingHandle()
    with RemoteByteSource(RemoteObject("segment", lambda: handle)) as source:
        for start in range(0, len(CONTENT), 10_007):
            assert source.read_at(start, 300) == CONTENT[start : start + 300]
        across = source.read_at(len(CONTENT) // 2 - 5, 10)
    assert across == CONTENT[len(CONTENT) // 2 - 5 :][:10]
    block = 1 << 16
    assert handle.asked == [
        (at, min(block, len(CONTENT) - at)) for at in range(0, len(CONTENT), block)
    ]


def test_long_remote_reads_are_asked_for_as_they_are():
    handle = CountingHandle()
    with RemoteByteSource(RemoteObject("segment", lambda: handle)) as source:
        assert source.read_at(7, 200_000) == CONTENT[7:200_007]
    assert handle.asked == [(7, 200_000)]


@given(st.lists(st.tuples(st.integers(0, len(CONTENT)), st.integers(0, 1 << 18)), max_size=40))
def test_remote_reads_equal_slicing(reads):
    with RemoteByteSource(RemoteObject("segment", CountingHandle)) as source:
        for start, length in reads:
            assert source.read_at(start, length) == CONTENT[start : start + length]
        assert len(source._blocks) <= 8


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def write(path, *positions, size=SIZE):
    with path.open("wb") as file:
        file.truncate(size)
        for position in positions:
            file.seek(position)
            file.write(b"\1")


@pytest.mark.parametrize(
    "positions",
    [
        (0,),
        (SIZE - 1,),
        (5000,),
        (4095,),
        (4096, 8 * MIB),
        (8 * MIB + 4095, 8 * MIB + 4096),
        (0, SIZE - 1),
        (12 * MIB - 1, 12 * MIB),
    ],
)
def test_first_and_last(path, positions):
    write(path, *positions)
    with LocalByteSource(str(path)) as source:
        assert first_nonzero(source) == positions[0]
        assert last_nonzero(source) == positions[-1]


@pytest.mark.parametrize(
    ("start", "stop", "first", "last"),
    [
        (0, 100, -1, -1),
        (100, 101, 100, 100),
        (101, SIZE, 9 * MIB, 9 * MIB),
        (0, 9 * MIB, 100, 100),
        (0, 2 * SIZE, 100, 9 * MIB),
        (9 * MIB + 1, SIZE, -1, -1),
        (SIZE, SIZE, -1, -1),
    ],
)
def test_bounds(path, start, stop, first, last):
    write(path, 100, 9 * MIB)
    with LocalByteSource(str(path)) as source:
        assert first_nonzero(source, start, stop) == first
        assert last_nonzero(source, start, stop) == last


def test_zeros_that_were_written_are_no_hole(path):
    path.write_bytes(bytes(9 * MIB) + b"\1" + bytes(9 * MIB))
    with LocalByteSource(str(path)) as source:
        assert first_nonzero(source) == last_nonzero(source) == 9 * MIB


def test_an_empty_file(path):
    write(path, size=0)
    with LocalByteSource(str(path)) as source:
        assert first_nonzero(source) == last_nonzero(source) == -1


def test_a_file_that_is_written_meanwhile(path, monkeypatch):
    """Numpy counts the values that are not zero, then collects them; it fails if more are there."""
    write(path, 100)
    collect, counts = np.flatnonzero, []
    with path.open("r+b") as file, mmap.mmap(file.fileno(), SIZE) as written:

        def collect_later(array):
            count = np.count_nonzero(array)
            written[200 + len(counts)] = 1
            counts.append((count, np.count_nonzero(array)))
            return collect(array)

        monkeypatch.setattr(np, "flatnonzero", collect_later)
        with LocalByteSource(str(path)) as source:
            assert last_nonzero(source, 0, MIB) == 100
    assert counts == [(1, 1)]
