# SPDX-License-Identifier: Apache-2.0
"""Extension units that RocketMQ's replays leave after the last one that is referred to."""

from __future__ import annotations

import pytest

from store_core.layout import CQ_EXT_UNIT
from tests.store_core.queue.queue_writers import open_ext_writer, open_writer, with_bitmaps
from tests.store_core.queue.test_consume_queue_writer import in_row

UNITS_BYTES, EXT_BYTES = 400, 128


def opened(root):
    roots = [root / name / "T" / "0" for name in ("consumequeue", "consumequeue_ext")]
    ext = open_ext_writer(roots[1], EXT_BYTES)
    return open_writer(roots[0], UNITS_BYTES, ext)


def files_of(root):
    paths = sorted((root / "consumequeue_ext" / "T" / "0").iterdir())
    return [path.read_bytes() for path in paths]


def walked(data):
    """Return the sizes of units that RocketMQ's recovery steps over; it fails after the file."""
    at, sizes = 0, []
    while at < len(data) - 2:
        size = int.from_bytes(data[at : at + 2], "big", signed=True)
        if size <= 0:
            break
        assert size >= CQ_EXT_UNIT.size, "no unit begins here"
        assert at + size <= len(data), "newPosition > limit"
        sizes.append(size)
        at += size
    return sizes


@pytest.fixture
def root(tmp_path):
    """Three units in use, and four after them that no queue unit refers to, in two files."""
    queue = opened(tmp_path)
    queue.append(with_bitmaps(in_row(range(3)), [b"a" * 3, b"", b"b" * 5]))
    orphans = [b"\x21" * 7, b"\x22" * 9, b"\x23" * 8, b"\x24" * 7]
    path = tmp_path / "consumequeue_ext" / "T" / "0"
    writer = open_ext_writer(path, EXT_BYTES)
    writer.wrote_position = 68
    writer.append(with_bitmaps(in_row(range(4)), orphans))
    assert [walked(data) for data in files_of(tmp_path)] == [[23, 20, 25, 27, 29], [28, 27]]
    return tmp_path


def test_units_that_are_appended_do_not_end_inside_of_others(root):
    queue = opened(root)
    queue.append(with_bitmaps(in_row(range(5)).take(slice(3, 5)), [b"", b"c" * 2]))
    assert [walked(data) for data in files_of(root)] == [[23, 20, 25, 20, 22]]
    assert queue.max_offset == 5
    assert queue.cut_torn(in_row(range(5))) == 0


def test_a_queue_that_gets_nothing_is_mended_too(root):
    queue = opened(root)
    before = files_of(root)
    assert not queue.truncate(queue.max_offset, on_disk=False)
    assert files_of(root) == before
    assert not queue.truncate(queue.max_offset)
    assert [walked(data) for data in files_of(root)] == [[23, 20, 25]]
    assert files_of(root)[0] == before[0][:68].ljust(EXT_BYTES, b"\0")


def test_what_is_appended_in_turn_stays(root):
    queue = opened(root)
    for row in range(3, 7):
        queue.append(in_row(range(7)).take(slice(row, row + 1)))
    assert [walked(data) for data in files_of(root)] == [[23, 20, 25, 20, 20], [20, 20]]
