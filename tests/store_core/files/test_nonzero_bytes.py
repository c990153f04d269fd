import mmap

import numpy as np
import pytest

from store_core.files.byte_source import LocalByteSource, first_nonzero, last_nonzero

MIB = 1 << 20
SIZE = 20 * MIB


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
    """Numpy counts what is not zero, then collects it, and fails when there is more by then."""
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
