# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.files.store_directory import StoreDirectory
from store_core.layout import CQ_UNIT, PRE_BLANK_SIZE
from store_core.queue import consume_queue_writer
from store_core.queue.consume_queue import NATIVE_CQ_UNIT
from store_core.queue.consume_queue_writer import RecentUnits, UnitBlock
from store_core.queue.dispatch_request import DispatchRequests
from store_core.queue.unit_placement import Appended
from tests.store_core.queue.queue_writers import open_writer

PER_FILE = 4
FILE_SIZE = PER_FILE * CQ_UNIT.size
BLANK = (0, PRE_BLANK_SIZE, 0)
UNWRITTEN = (0, 0, 0)
ASKED = 100


def requests_of(rows, **columns):
    """Requests of (commit log offset, size, queue offset); tags codes count from 100."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    count = len(table)
    values = {
        "topics": ["T"],
        "topic_code": np.zeros(count, np.int32),
        "queue_id": np.zeros(count, np.int32),
        "queue_offset": table[:, 2],
        "commit_log_offset": table[:, 0],
        "message_size": table[:, 1].astype(np.int32),
        "tags_code": np.arange(100, 100 + count),
        "store_timestamp": np.arange(count) + 5000,
        "base_queue_offset": table[:, 2],
        "batch_size": np.ones(count, np.int16),
        "transaction_type": np.zeros(count, np.int32),
        "light": np.zeros(count, bool),
        **columns,
    }
    return DispatchRequests(**values)


def in_row(queue_offsets, start=1000):
    """Records of 10 bytes, one after the other."""
    return requests_of([(start + 10 * i, 10, q) for i, q in enumerate(queue_offsets)])


def units_in(directory):
    """{first queue offset of a file: its units}."""
    found = {}
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        assert len(data) == FILE_SIZE
        found[int(path.name) // CQ_UNIT.size] = [
            tuple(CQ_UNIT.unpack(data, at)) for at in range(0, FILE_SIZE, CQ_UNIT.size)
        ]
    return found


def writer_in(directory):
    return open_writer(directory, FILE_SIZE)


def test_units_roll_over_files(tmp_path):
    queue = tmp_path / "T" / "0"
    writer = writer_in(queue)
    assert writer.append(in_row(range(3))) == Appended(3)
    assert writer.append(in_row(range(3, 9), 1030)) == Appended(6)
    found = units_in(queue)
    assert list(found) == [0, 4, 8]
    assert [unit[0] for units in found.values() for unit in units] == [
        *range(1000, 1090, 10), 0, 0, 0,
    ]  # fmt: skip
    assert found[0][1] == (1010, 10, 101)
    assert (writer.max_offset, writer.max_physic_offset) == (9, 1090)


def test_a_queue_that_begins_inside_a_file_gets_fillers(tmp_path):
    assert writer_in(tmp_path / "q").append(in_row([6, 7])) == Appended(2)
    assert units_in(tmp_path / "q") == {4: [BLANK, BLANK, (1000, 10, 100), (1010, 10, 101)]}
    writer_in(tmp_path / "p").append(in_row([8]))
    assert units_in(tmp_path / "p") == {8: [(1000, 10, 100), *[UNWRITTEN] * 3]}


def test_what_is_in_the_queue_is_skipped(tmp_path):
    queue = tmp_path / "q"
    writer_in(queue).append(in_row(range(3)))
    resumed = writer_in(queue)
    assert resumed.append(in_row(range(5))) == Appended(2, known=3)
    assert resumed.append(in_row(range(5))) == Appended(known=5)
    assert [unit[0] for unit in units_in(queue)[0]] == [1000, 1010, 1020, 1030]


@pytest.mark.parametrize(
    ("wanted", "first", "counts"),
    [
        ([99, 6, 7, 8], 5, Appended(4, contradicted=1)),
        ([2, 6, 7, 8], 5, Appended(4, contradicted=1)),
        ([-7, 6, 7], 5, Appended(3, contradicted=1)),
        ([5, 6, 99, 8], 5, Appended(4, contradicted=1)),
        ([5, 6, 0, 8], 5, Appended(4, contradicted=1)),
        ([5, 6, 7, 1 << 60], 5, Appended(4, moved=1)),
        ([5, 6, 7, 3], 5, Appended(4, moved=1)),
        ([5, 8, 9], 7, Appended(3, contradicted=1)),
        ([5, 6, 9, 10], 5, Appended(4, moved=2)),
        ([9, 3], 2, Appended(2, contradicted=1)),
        ([0, 5, 6], 0, Appended(3, moved=2)),
        ([-5, -4], 0, Appended(2, moved=2)),
        ([99], 0, Appended(1, moved=1)),
    ],
)
def test_every_record_gets_a_unit_where_most_agree(tmp_path, wanted, first, counts):
    """No CRC covers a queue offset; a record of 1000 has room for ten messages before it."""
    writer = writer_in(tmp_path / "q")
    assert writer.append(in_row(wanted)) == counts
    assert (writer.min_offset, writer.max_offset) == (first, first + len(wanted))
    starts = writer.read_units(first, first + len(wanted))["commit_log_offset"]
    assert starts.tolist() == [1000 + 10 * row for row in range(len(wanted))]


def test_a_queue_that_begins_with_the_log_begins_at_0(tmp_path):
    writer = writer_in(tmp_path / "q")
    assert writer.append(in_row([7, 1, 2]), from_zero=True) == Appended(3, contradicted=1)
    assert writer.append(in_row([3], 1030), from_zero=True) == Appended(1)
    assert (writer.min_offset, writer.max_offset) == (0, 4)


def test_nothing_to_write_creates_nothing(tmp_path):
    writer = writer_in(tmp_path / "q")
    assert writer.append(in_row([])) == Appended()
    writer.flush()
    assert list(tmp_path.iterdir()) == []


def reference(batches):
    """RocketMQ's rule, one record after the other, but none is left out."""
    units: dict[int, tuple[int, int, int]] = {}
    at, most = None, -1
    for rows in batches:
        for number, (offset, size, wanted) in enumerate(rows):
            if offset + size <= most:
                continue
            if at is None:
                at = wanted
                units.update({q: BLANK for q in range(wanted - wanted % PER_FILE, wanted)})
            units[at] = (offset, size, 100 + number)
            at, most = at + 1, offset + size
    return units


record_steps = st.tuples(st.integers(0, 2), st.integers(1, 50), st.integers(-2, 30))


FIRST = [[(2000, 10, 5), (2010, 10, 6)]]


"""Records after which the queue begins at 5, whatever later ones say."""


@settings(deadline=None)
@given(st.lists(st.lists(record_steps, max_size=8), max_size=6), st.integers(0, 9))
def test_equal_to_the_rule_one_by_one(tmp_path_factory, steps, first):
    directory = tmp_path_factory.mktemp("queue")
    batches, end = list(FIRST), 2020
    for batch in steps:
        rows = []
        for repeats, size, jump in batch:
            if repeats == 0 and rows:
                rows.append(rows[-1])
            else:
                rows.append((end, size, max(first + jump, -1)))
                end += size
        batches.append(rows)
    writer = writer_in(directory / "q")
    counts = [writer.append(requests_of(rows)) for rows in batches]
    expected = reference(batches)
    found = units_in(directory / "q") if (directory / "q").exists() else {}
    flat = {q + i: unit for q, units in found.items() for i, unit in enumerate(units)}
    assert {q: unit for q, unit in flat.items() if unit != UNWRITTEN} == expected
    assert sum(c.units for c in counts) == sum(unit != BLANK for unit in expected.values())
    assert sum(sum(c[:3]) for c in counts) == sum(map(len, batches))
    assert sum(c.unusable for c in counts) == 0


def test_a_failed_call_can_be_repeated(tmp_path, monkeypatch):
    writer = writer_in(tmp_path / "q")
    writer.append(in_row([0]))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
        with pytest.raises(OSError, match="no space"):
            writer.append(in_row([1, 2], 1010))
    assert writer.append(in_row([1, 2], 1010)) == Appended(2)
    assert [unit[0] for unit in units_in(tmp_path / "q")[0]] == [1000, 1010, 1020, 0]


def test_short_writes_are_continued(tmp_path, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:7], at))
    writer_in(tmp_path / "q").append(in_row(range(6)))
    found = units_in(tmp_path / "q")
    assert [unit[0] for unit in found[0] + found[4]] == [*range(1000, 1060, 10), 0, 0]


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
    # Once for each file, and again for some requests that span two files; not 79 times.
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
