# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64

import numpy as np
import pytest

from store_core.files.store_directory import StoreDirectory
from store_core.layout import CQ_EXT_UNIT, EXT_ADDRESS_BASE
from store_core.queue.consume_queue_ext import is_ext_address
from store_core.queue.queue_directories import CONSUME_QUEUE_EXT, list_consume_queues
from tests.golden_store import golden
from tests.store_core.queue.queue_writers import bitmaps_of, ext_reader


@pytest.mark.parametrize("given_size", [None, 1024])
def test_golden_units(given_size):
    store = golden("ext-5x")
    directory = StoreDirectory(str(store.root))
    queues = list_consume_queues(directory, CONSUME_QUEUE_EXT).queues
    rows = [row for row in store.dump("consume_queue") if "ext_units" in row]
    assert rows
    for row in rows:
        path = queues[row["topic"], row["queue_id"]]
        addresses = np.array([unit[2] for unit in row["units"]], np.int64)
        read = ext_reader(directory, path, given_size)
        units, bitmaps = read(addresses), bitmaps_of(read, addresses)
        assert units.found.tolist() == [unit is not None for unit in row["ext_units"]]
        for number, unit in enumerate(row["ext_units"]):
            bitmap = bitmaps[number]
            text = None if bitmap is None else base64.b64encode(bitmap).decode()
            found = [units.tags_code[number], units.store_timestamp[number], text]
            assert found == unit


def test_addresses_are_below_all_hashes():
    codes = np.array([-(2**63), -(2**31) - 1, -(2**31), 0, 2**31 - 1, 1700000000000])
    assert is_ext_address(codes).tolist() == [True, True, False, False, False, False]


def ext_unit(size, bit_map_size, tags_code=7):
    return CQ_EXT_UNIT.pack(
        unit_size=size, tags_code=tags_code, store_timestamp=99, bit_map_size=bit_map_size
    )


def test_units_that_contradict_themselves_are_not_found(tmp_path):
    path = tmp_path / "consumequeue_ext" / "T" / "0"
    path.mkdir(parents=True)
    data = ext_unit(24, 4) + b"\1\2\3\4" + ext_unit(-1, 0) + ext_unit(25, 4) + ext_unit(20, -1)
    data += ext_unit(120, 100)  # reaches beyond the file
    (path / ("0" * 20)).write_bytes(data)
    positions = [0, 24, 44, 64, 84, 95, 10_000, 2**62]
    codes = np.array([at + EXT_ADDRESS_BASE for at in positions] + [5], np.int64)
    read = ext_reader(StoreDirectory(str(tmp_path)), path)
    units = read(codes, bitmap_bytes=4)
    assert units.found.tolist() == [True] + [False] * 8
    assert units.tags_code.tolist() == [7, *codes[1:].tolist()]
    assert units.store_timestamp.tolist() == [99] + [0] * 8
    assert units.bitmap_size.tolist() == [4] + [0] * 8
    assert units.bitmaps.tolist() == [[1, 2, 3, 4]] + [[0] * 4] * 8
    assert read(codes, bitmap_bytes=3).bitmaps.tolist() == [[0] * 3] * 9
    assert read(codes).bitmaps.shape == (9, 0)
