# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.errors import CorruptRecordError, StoreFormatError
from store_core.files.byte_source import LocalByteSource
from store_core.files.store_directory import StoreDirectory
from store_core.layout import CQ_UNIT, PRE_BLANK_SIZE
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.queue_directories import list_consume_queues
from tests.examples import examples
from tests.golden_store import RECOVERED_NAMES, STORE_NAMES, golden

PRE_BLANK = (0, PRE_BLANK_SIZE, 0)
UNITS_PER_FILE = 10
FILE_BYTES = UNITS_PER_FILE * CQ_UNIT.size


def write_queue(root, units, first=0, files=None, units_per_file=UNITS_PER_FILE):
    """Write units from queue offset ``first`` (start of a file) on into files of full length."""
    path = root / "consumequeue" / "T" / "0"
    path.mkdir(parents=True, exist_ok=True)
    count = -(-len(units) // units_per_file) if files is None else files
    for number in range(count):
        part = units[number * units_per_file : (number + 1) * units_per_file]
        data = b"".join(CQ_UNIT.struct.pack(*unit) for unit in part)
        start = (first + number * units_per_file) * CQ_UNIT.size
        (path / f"{start:020d}").write_bytes(data.ljust(units_per_file * CQ_UNIT.size, b"\0"))
    return path


def open_queue(root, file_size=None) -> ConsumeQueue:
    directory = StoreDirectory(str(root))
    path = list_consume_queues(directory).queues["T", 0]
    return ConsumeQueue.open(directory, "T", 0, path, file_size)


def units_of(count, step=100):
    return [(number * step, step, number) for number in range(count)]


@pytest.mark.parametrize("name", STORE_NAMES)
def test_units_and_bounds_are_those_of_rocketmq(name):
    store = golden(name, recovered=name in RECOVERED_NAMES)
    directory = StoreDirectory(str(store.root))
    listing = list_consume_queues(directory)
    assert listing.ignored == ()
    min_phy, max_phy = store.meta["min_phy_offset"], store.meta["max_phy_offset"]
    rows = [r for r in store.dump("consume_queue") if r["type"] == "SimpleCQ"]
    assert {(r["topic"], r["queue_id"]) for r in rows} == set(listing.queues)
    for row in rows:
        key = row["topic"], row["queue_id"]
        queue = ConsumeQueue.open(directory, *key, listing.queues[key], None)
        end = queue.end_of_units()
        units = queue.read_units(0, end)
        # recovery cuts a queue at the end of the log, but leaves the units' bytes
        end -= int(np.count_nonzero(units["commit_log_offset"] >= max_phy))
        begin = queue.correct_min_offset(min_phy, end)
        assert (begin, end) == (row["min_offset"], row["max_offset"])
        assert queue.read_units(begin, end).tolist() == [tuple(unit) for unit in row["units"]]


def test_the_store_that_expired_has_its_odd_queues():
    rows = {r["topic"]: r for r in golden("expired-5x").dump("consume_queue")}
    assert (rows["OnlyOld"]["min_offset"], rows["OnlyOld"]["max_offset"]) == (40, 40)
    assert "OnlyNew" in rows


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25, 30, 41])
@pytest.mark.parametrize("spare_files", [0, 1])
def test_the_end_is_found_also_before_empty_files(tmp_path, count, spare_files):
    files = -(-count // UNITS_PER_FILE) + spare_files
    write_queue(tmp_path, units_of(count), files=files)
    queue = open_queue(tmp_path, FILE_BYTES)
    assert queue.end_of_units() == count
    assert len(queue.read_units(0, 1000)) == files * UNITS_PER_FILE


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 6000), st.integers(0, 700_000))
def test_bisection_in_a_large_file(tmp_path_factory, count, min_phy):
    root = tmp_path_factory.mktemp("store")
    write_queue(root, units_of(count), files=1, units_per_file=6000)
    queue = open_queue(root)
    assert queue.end_of_units() == count
    assert queue.correct_min_offset(min_phy, count) == min(count, -(-min_phy // 100))


def test_an_invalid_unit_ends_the_queue(tmp_path):
    units = units_of(18)
    units[15] = (-1, 100, 0)
    write_queue(tmp_path, units)
    assert open_queue(tmp_path).end_of_units() == 15


def test_fillers_are_no_units(tmp_path):
    write_queue(tmp_path, [PRE_BLANK] * 7 + units_of(6), first=20)
    queue = open_queue(tmp_path)
    assert queue.first_unit_offset() == 27
    assert queue.end_of_units() == 33
    assert queue.correct_min_offset(0, 33) == 27
    assert queue.correct_min_offset(101, 33) == 29


def test_fillers_only(tmp_path):
    write_queue(tmp_path, [PRE_BLANK] * 10, first=10)
    queue = open_queue(tmp_path)
    assert queue.first_unit_offset() == 20
    assert queue.correct_min_offset(0, queue.end_of_units()) == 20


def test_min_offset_looks_behind_the_first_file(tmp_path):
    write_queue(tmp_path, units_of(25))
    queue = open_queue(tmp_path)
    found = [queue.correct_min_offset(at, 25) for at in (0, 100, 101, 1900, 2400, 2401)]
    assert found == [0, 1, 2, 19, 24, 25]


def test_reading_crosses_files_and_is_clipped(tmp_path):
    write_queue(tmp_path, units_of(30), first=20)
    queue = open_queue(tmp_path)
    assert queue.read_units(27, 43)["tags_code"].tolist() == list(range(7, 23))
    assert queue.read_units(0, 22)["tags_code"].tolist() == [0, 1]
    assert queue.read_units(48, 90)["tags_code"].tolist() == [28, 29]
    assert len(queue.read_units(50, 90)) == len(queue.read_units(9, 3)) == 0
    assert queue.read_units(20, 21).dtype["tags_code"].isnative


def test_files_and_their_boundaries(tmp_path):
    write_queue(tmp_path, units_of(30), first=20)
    queue = open_queue(tmp_path)
    assert queue.file_boundaries() == (20, 30, 40)
    assert [queue.roll_next_file(q) for q in (20, 29, 30)] == [30, 30, 40]


def test_a_lost_file_between_others_is_damage(tmp_path):
    path = write_queue(tmp_path, units_of(30))
    (path / f"{FILE_BYTES:020d}").unlink()
    with pytest.raises(CorruptRecordError, match="queue offset 10, is missing"):
        open_queue(tmp_path).read_units(5, 25)


def test_a_cut_file_between_others_is_damage(tmp_path):
    path = write_queue(tmp_path, units_of(30))
    (path / f"{FILE_BYTES:020d}").write_bytes(b"\0" * 50)
    with pytest.raises(CorruptRecordError, match="ends before queue offset 12"):
        open_queue(tmp_path).read_units(5, 25)


def test_a_cut_last_file_holds_what_it_holds(tmp_path):
    path = write_queue(tmp_path, units_of(20))
    last = path / f"{FILE_BYTES:020d}"
    last.write_bytes(last.read_bytes()[:105])
    queue = open_queue(tmp_path)
    assert queue.end_of_units() == 15
    assert len(queue.read_units(0, 100)) == 15


def test_sizes_that_do_not_fit_name_the_option(tmp_path):
    write_queue(tmp_path, units_of(30), first=10)
    with pytest.raises(StoreFormatError, match="mappedFileSizeConsumeQueue"):
        open_queue(tmp_path, 700)


def test_a_queue_without_files(tmp_path):
    (tmp_path / "consumequeue/T/0").mkdir(parents=True)
    queue = open_queue(tmp_path)
    assert (queue.end_of_units(), queue.first_unit_offset()) == (0, 0)
    assert queue.correct_min_offset(5, 0) == 0
    assert len(queue.read_units(0, 10)) == 0


def test_listing_skips_and_names_what_is_no_queue(tmp_path):
    for name in ("T/0", "T/12", "T/x", "T/-1", "T/007", "T/99999999999", "%RETRY%g/1"):
        (tmp_path / "consumequeue" / name).mkdir(parents=True)
    (tmp_path / "consumequeue/CURRENT").touch()
    (tmp_path / "consumequeue/T/3").touch()
    listing = list_consume_queues(StoreDirectory(str(tmp_path)))
    assert set(listing.queues) == {("T", 0), ("T", 12), ("%RETRY%g", 1)}
    names = {path.rsplit("/", 1)[1] for path in listing.ignored}
    assert names == {"x", "-1", "007", "99999999999", "CURRENT", "3"}


@pytest.mark.parametrize("hole", [0, 1, 19, 20, 39, 60, 100, 199, 200, 5000])
@pytest.mark.parametrize("written", [0, 1, 3, 5, 9, 10, 13])
def test_a_filesystem_that_tells_wrong_holes_changes_nothing(tmp_path, monkeypatch, hole, written):
    write_queue(tmp_path, units_of(written), files=3)
    queue = open_queue(tmp_path)
    monkeypatch.setattr(LocalByteSource, "next_hole", lambda *_: hole)
    assert queue.end_of_units() == written


def test_the_end_of_a_large_sparse_file_takes_one_look(tmp_path, monkeypatch):
    path = write_queue(tmp_path, units_of(2000), units_per_file=2000)
    with next(path.iterdir()).open("r+b") as file:
        file.truncate(20 * 300_000)
    queue = open_queue(tmp_path)
    looks = []
    read_at = LocalByteSource.read_at
    monkeypatch.setattr(
        LocalByteSource, "read_at", lambda *given: looks.append(given) or read_at(*given)
    )
    assert queue.end_of_units() == 2000
    assert len(looks) <= 4 or LocalByteSource(str(next(path.iterdir()))).next_hole(0) == 6_000_000


@given(
    written=st.integers(0, 35),
    fillers=st.integers(0, 35),
    least=st.integers(-1, 4000),
    files=st.integers(4, 6),
)
def test_a_queue_held_open_answers_as_one_that_is_not(
    tmp_path_factory, written, fillers, least, files
):
    root = tmp_path_factory.mktemp("held")
    units = [PRE_BLANK if row < fillers else unit for row, unit in enumerate(units_of(written))]
    write_queue(root, units, files=files)
    queue = open_queue(root)
    end = queue.end_of_units()
    with queue.held_open() as held:
        for _ in range(2):
            assert held.end_of_units() == end
            assert held.first_unit_offset() == queue.first_unit_offset()
            assert held.correct_min_offset(least, end) == queue.correct_min_offset(least, end)
            assert (held.read_units(0, end) == queue.read_units(0, end)).all()
            if end:
                unit = queue.read_units(end - 1, end)[0]
                place = int(unit["commit_log_offset"]), int(unit["message_size"])
                assert held.place_of(end - 1) == queue.place_of(end - 1) == place
