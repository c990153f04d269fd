"""Blocks of units that stay in memory between the pulls of a consumer."""

from __future__ import annotations

import numpy as np
import pytest

from store_core.files.store_directory import StoreDirectory
from store_core.layout.consume_queue import CQ_UNIT
from store_core.queue import consume_queue_writer
from store_core.queue.consume_queue import NATIVE_CQ_UNIT
from store_core.queue.consume_queue_writer import RecentUnits, UnitBlock
from tests.store_core.queue.queue_writers import open_writer
from tests.store_core.queue.test_consume_queue_writer import in_row

ASKED = 100


@pytest.fixture
def writer(tmp_path):
    found = open_writer(tmp_path / "queue", 1000 * CQ_UNIT.size)
    found.append(in_row(range(2500)))
    return found


@pytest.fixture
def opened(monkeypatch):
    paths = []
    open_file = StoreDirectory.open

    def counted(directory, path):
        paths.append(path)
        return open_file(directory, path)

    monkeypatch.setattr(StoreDirectory, "open", counted)
    return paths


def _starts(units):
    return units["commit_log_offset"].tolist()


def _expected(start, stop, first=1000):
    return [first + 10 * at for at in range(start, stop)]


def test_a_consumer_that_reads_on_opens_each_file_once(writer, opened):
    for start in range(0, 2500, 32):
        stop = min(start + ASKED, 2500)
        assert _starts(writer.read_units(start, stop)) == _expected(start, stop)
    # Once for each file, and some where what is asked for lies in two; not 79 times.
    assert len(opened) < 20


def test_who_asks_for_one_unit_gets_no_more_read(writer, opened):
    for at in (5, 6, 7):
        assert _starts(writer.read_units(at, at + 1)) == _expected(at, at + 1)
    assert len(opened) == 3


def test_what_was_appended_last_is_read_without_a_file(writer, opened):
    at = 2500
    for count in (1, 3, 60, 64, 1, 7):
        writer.append(in_row(range(at, at + count), start=1000 + 10 * at))
        at += count
        for start in (at - 1, at - count):
            assert _starts(writer.read_units(start, at)) == _expected(start, at)
    assert opened == []
    assert _starts(writer.read_units(at - 65, at)) == _expected(at - 65, at)
    assert len(opened) == 1


def test_many_that_are_appended_at_once_are_not_kept(writer, opened):
    writer.append(in_row([2500], start=26000))
    writer.append(in_row(range(2501, 2566), start=26010))
    assert _starts(writer.read_units(2499, 2503)) == _expected(2499, 2503)
    assert len(opened) == 1


def test_units_that_were_appended_last_and_cut_off_do_not_come_back(writer):
    writer.append(in_row(range(2500, 2510), start=26000))
    writer.truncate(2505)
    assert _starts(writer.read_units(2500, 2510)) == _expected(2500, 2505)
    writer.append(in_row(range(2505, 2507), start=90_000))
    assert _starts(writer.read_units(2503, 2510)) == [*_expected(2503, 2505), 90_000, 90_010]


def test_units_that_were_cut_off_do_not_come_back(writer):
    writer.read_units(0, ASKED)
    writer.truncate(40)
    assert _starts(writer.read_units(0, ASKED)) == _expected(0, 40)
    writer.append(in_row(range(40, 200), start=9000))
    found = _starts(writer.read_units(0, ASKED))
    assert found == _expected(0, 40) + _expected(0, ASKED - 40, first=9000)


def test_what_was_read_before_a_cut_and_kept_after_it_is_of_no_use(writer):
    before = UnitBlock(writer._version, 0, writer._queue.read_units(0, 1000))
    writer.truncate(40)
    writer.append(in_row(range(40, 200), start=9000))
    writer._recent.keep(writer, before)
    assert _starts(writer.read_units(40, 42)) == [9000, 9010]


def test_units_that_expired_are_not_handed_out(writer):
    writer.read_units(0, ASKED)
    writer.correct_min_offset(1500)
    assert _starts(writer.read_units(0, ASKED)) == _expected(50, ASKED)


def test_nobody_writes_to_what_others_read(writer):
    units = writer.read_units(0, ASKED)
    writer.append(in_row([2500], start=26000))
    for found in (units, writer.read_units(2500, 2501)):
        with pytest.raises(ValueError, match="read-only"):
            found["message_size"] = 1


def test_a_deleted_queue_is_forgotten(writer):
    writer.read_units(0, ASKED)
    writer.destroy()
    assert writer._recent.find(writer) is None
    assert len(writer.read_units(0, ASKED)) == 0


def test_the_oldest_block_goes_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(consume_queue_writer, "_BLOCKS", 2)
    recent, block = RecentUnits(), UnitBlock(0, 0, np.zeros(3, NATIVE_CQ_UNIT))
    for queue in ("a", "b", "a", "c"):
        recent.keep(queue, block)
    assert [recent.find(queue) is block for queue in "abc"] == [True, False, True]


@pytest.mark.parametrize(
    ("asked", "is_there"),
    [((1, 10, 13), True), ((1, 11, 12), True), ((1, 9, 12), False), ((1, 12, 14), False),
     ((2, 10, 13), False)],
)  # fmt: skip
def test_part_of_a_block(asked, is_there):
    units = np.zeros(3, NATIVE_CQ_UNIT)
    units["commit_log_offset"] = [1, 2, 3]
    part = UnitBlock(1, 10, units).part(*asked)
    _, start, stop = asked
    assert (None if part is None else _starts(part)) == (
        [1, 2, 3][start - 10 : stop - 10] if is_there else None
    )
