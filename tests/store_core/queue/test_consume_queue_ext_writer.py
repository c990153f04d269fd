# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.files.store_directory import StoreDirectory
from store_core.layout import CQ_EXT_UNIT, CQ_UNIT, EXT_ADDRESS_BASE
from tests.store_core.queue.queue_writers import (
    bitmaps_of,
    ext_reader,
    open_ext_writer,
    open_writer,
    with_bitmaps,
)
from tests.store_core.queue.test_consume_queue_writer import in_row, requests_of

FILE_SIZE = 64


def reader_of(directory):
    return ext_reader(StoreDirectory(str(directory)), directory, FILE_SIZE)


def writer_in(directory):
    return open_ext_writer(directory, FILE_SIZE)


def reference_addresses(lengths, position=0):
    """Places where RocketMQ's ``ConsumeQueueExt.put`` puts units, one by one."""
    for length in lengths:
        size = CQ_EXT_UNIT.size + length
        if size > FILE_SIZE - 4:
            yield None
            continue
        if size > FILE_SIZE - position % FILE_SIZE - 4:
            position += FILE_SIZE - position % FILE_SIZE
        yield position
        position += size


def test_addresses_and_end_marks(tmp_path):
    writer = writer_in(tmp_path)
    tags = writer.append(in_row(range(4)))
    assert (tags - EXT_ADDRESS_BASE).tolist() == [0, 20, 40, 64]
    first, second = (path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert (len(first), first[60:]) == (64, b"\xff\xff\0\0")
    assert second[20:] == bytes(44)
    assert writer.wrote_position == 84
    assert (writer.append(in_row([4])) - EXT_ADDRESS_BASE).tolist() == [84]


def test_a_unit_too_large_for_a_file_leaves_the_tags_code(tmp_path):
    rows = with_bitmaps(in_row(range(3)), [b"x" * 40, b"x" * 41, None])
    tags = writer_in(tmp_path).append(rows)
    assert tags.tolist() == [EXT_ADDRESS_BASE, 101, EXT_ADDRESS_BASE + 64]


def test_a_unit_has_at_most_a_short_of_bytes(tmp_path):
    bitmaps = [b"y" * (32767 - 20), b"y" * (32768 - 20)]
    rows = with_bitmaps(in_row(range(2)), bitmaps)
    tags = open_ext_writer(tmp_path, 1 << 20).append(rows)
    assert tags.tolist() == [EXT_ADDRESS_BASE, 101]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.none() | st.binary(max_size=45), max_size=8), max_size=4),
    st.integers(0, 3),
)
def test_readers_find_every_unit(tmp_path_factory, batches, resumed_after):
    directory = tmp_path_factory.mktemp("ext")
    addresses, wrote = [], 0
    for number, bitmaps in enumerate(batches):
        if number == 0 or number > resumed_after:  # a new writer goes on where the last one ended
            writer = writer_in(directory)
            writer.wrote_position = wrote
        rows = with_bitmaps(in_row(range(len(bitmaps))), bitmaps)
        addresses += writer.append(rows).tolist()
        wrote = writer.wrote_position
    flat = [bitmap for batch in batches for bitmap in batch]
    numbers = [row for batch in batches for row in range(len(batch))]
    wanted = list(reference_addresses(len(b or b"") for b in flat))
    assert addresses == [
        100 + row if place is None else place + EXT_ADDRESS_BASE
        for row, place in zip(numbers, wanted)
    ]
    addresses = np.array(addresses, np.int64)
    units = reader_of(directory)(addresses)
    bitmaps_found = bitmaps_of(reader_of(directory), addresses)
    assert units.found.tolist() == [place is not None for place in wanted]
    assert units.tags_code.tolist() == [100 + row for row in numbers]
    for found, bitmap, unit, time, row in zip(
        units.found, flat, bitmaps_found, units.store_timestamp, numbers
    ):
        assert (unit, time) == ((bitmap or None, 5000 + row) if found else (None, 0))


def test_the_queue_points_to_units_but_light_rows_do_not(tmp_path):
    ext = writer_in(tmp_path / "ext")
    writer = open_writer(tmp_path / "q", 80, ext)
    light = np.array([False, True, False])
    rows = [(0, 10, 0), (10, 10, 1), (20, 10, 2)]
    writer.append(requests_of(rows, light=light))
    writer.append(requests_of(rows, light=light))  # known: no unit of either kind
    writer.flush()
    units = CQ_UNIT.table(next((tmp_path / "q").iterdir()).read_bytes())
    assert units["tags_code"].tolist() == [EXT_ADDRESS_BASE, 101, EXT_ADDRESS_BASE + 20, 0]
    assert ext.wrote_position == 40
