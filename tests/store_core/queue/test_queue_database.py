# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from store_core.database.rocksdb_layout import (
    DISPATCHED_TOPIC,
    OFFSET_FAMILY,
    QUEUE_DATABASE_UNIT,
    QUEUE_END,
    end_key,
    unit_key,
    unit_prefix,
)
from store_core.errors import StoreFormatError
from store_core.files.store_directory import StoreDirectory
from store_core.queue import queue_database
from store_core.queue.queue_database import QueueDatabase
from tests.examples import examples

# Names one of which is the beginning of another, or has the separator of a key.
TOPICS = ("a", "ab", "a\1", "a\1\0\0\0\1\1", "ü")


def written(
    root: Path,
    queues: dict[tuple[str, int], dict[int, tuple[int, int, int]]],
    ends: dict[tuple[str, int], int],
    dispatched: bytes = b"",
) -> QueueDatabase:
    """Write units by queue and queue offset, and queue ends; open the database."""
    path = root / "consumequeue"
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    made = Rdict(str(path), options)
    family = made.create_column_family(OFFSET_FAMILY, Options(raw_mode=True))
    for (topic, queue_id), units in queues.items():
        prefix = unit_prefix(topic.encode(), queue_id)
        for offset, (at, size, code) in units.items():
            made[unit_key(prefix, offset)] = QUEUE_DATABASE_UNIT.pack(
                commit_log_offset=at, message_size=size, tags_code=code, store_timestamp=0
            )
    for (topic, queue_id), end in ends.items():
        at = queues.get((topic, queue_id), {}).get(end - 1, (0, 0, 0))[0]
        family[end_key(topic.encode(), queue_id)] = QUEUE_END.pack(
            commit_log_offset=at, queue_offset=end - 1
        )
    if dispatched:
        family[end_key(DISPATCHED_TOPIC.encode(), 0)] = dispatched
    made.close()
    return QueueDatabase(StoreDirectory(str(root)), str(path))


def as_rows(units: Any) -> list[tuple[int, int, int]]:
    fields = ("commit_log_offset", "message_size", "tags_code")
    return [tuple(int(unit[field]) for field in fields) for unit in units]  # type: ignore[misc]


unit = st.tuples(st.integers(0, 2**62), st.integers(1, 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
queue = st.dictionaries(st.integers(5, 30), unit, max_size=25)


@settings(max_examples=examples(25))
@given(
    st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)), queue, max_size=6),
    st.data(),
)
def test_units_are_those_of_their_queue(
    tmp_path_factory: pytest.TempPathFactory,
    queues: dict[tuple[str, int], dict[int, tuple[int, int, int]]],
    data: Any,
) -> None:
    ends = {key: max(units) + 1 for key, units in queues.items() if units}
    database = written(tmp_path_factory.mktemp("queues"), queues, ends)
    most = data.draw(st.integers(1, 40))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_database, "_PAIRS_AT_ONCE", most)
        assert database.queues() == sorted(ends)
        for key in (*queues, ("none", 0)):
            units = queues.get(key, {})
            found = database.queue(*key)
            low, high = (min(units), max(units) + 1) if units else (0, 0)
            assert (found.first_unit_offset(), found.end_of_units()) == (low, high)
            start, stop = data.draw(st.integers(0, 32)), data.draw(st.integers(0, 32))
            expected = [units.get(n, (0, 0, 0)) for n in range(max(start, low), min(stop, high))]
            assert as_rows(found.read_units(start, stop)) == expected
            if low <= start and stop <= high and (0, 0, 0) not in expected:
                assert as_rows(found.exact_units(start, stop)) == expected
            elif start < stop:
                with pytest.raises(StoreFormatError, match="is missing"):
                    found.exact_units(start, stop)
    database.close()


def contiguous(first: int, count: int, step: int = 100) -> dict[int, tuple[int, int, int]]:
    return {first + n: (n * step, step, n) for n in range(count)}


@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 50), (7, 50), (1 << 40, 9)])
def test_the_first_queue_offset_from_a_place_of_the_log_on(
    tmp_path: Path, first: int, count: int
) -> None:
    key = ("a", 0)
    end = first + count
    database = written(tmp_path, {key: contiguous(first, count)}, {key: end})
    found = database.queue(*key)
    for place in (0, 1, 100, 101, 450, 100 * count - 1, 100 * count, 1 << 50):
        expected = min(first + -(-place // 100), end)
        assert found.correct_min_offset(place, end) == expected
    assert found.correct_min_offset(0, first) == first
    assert found.file_stop(first) == end
    assert found.file_stop(end) is None
    assert found.roll_next_file(first) == end
    assert found.file_boundaries() == (first,)


def test_units_after_the_end_of_their_queue_are_of_a_log_that_was_cut(tmp_path: Path) -> None:
    key = ("a", 0)
    database = written(tmp_path, {key: contiguous(0, 10)}, {key: 6})
    assert database.queue(*key).end_of_units() == 6
    assert len(database.queue(*key).read_units(0, 100)) == 6


def test_a_queue_without_units_begins_where_it_ended(tmp_path: Path) -> None:
    database = written(tmp_path, {}, {("a", 0): 12})
    found = database.queue("a", 0)
    assert (found.first_unit_offset(), found.end_of_units()) == (12, 12)
    assert database.queues() == [("a", 0)]
    assert found.file_boundaries() == ()


def test_what_was_dispatched(tmp_path: Path) -> None:
    queues = {("a", 0): contiguous(0, 10), ("b", 1): contiguous(0, 3)}
    ends = {("a", 0): 10, ("b", 1): 3}
    assert (
        written(tmp_path / "noted", queues, ends, struct.pack(">q", 5000)).dispatched_offset()
        == 5000
    )
    assert (
        written(tmp_path / "late", queues, ends, struct.pack(">q", 10)).dispatched_offset() == 900
    )
    assert written(tmp_path / "not", queues, ends, b"12").dispatched_offset() == 900
    assert written(tmp_path / "empty", {}, {}).dispatched_offset() == 0


def test_values_of_another_length_are_named(tmp_path: Path) -> None:
    path = tmp_path / "consumequeue"
    written(tmp_path, {("a", 0): contiguous(0, 4)}, {("a", 0): 4}).close()
    made = Rdict(str(path))
    made[unit_key(unit_prefix(b"a", 0), 2)] = b"short"
    made.close()
    database = QueueDatabase(StoreDirectory(str(tmp_path)), str(path))
    with pytest.raises(StoreFormatError, match="units of a/0 from 0 on have an unexpected length"):
        database.queue("a", 0).read_units(0, 4)


def test_another_database_is_none_of_queues(tmp_path: Path) -> None:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    Rdict(str(tmp_path / "consumequeue"), options).close()
    with pytest.raises(StoreFormatError, match="no column family 'offset'"):
        QueueDatabase(StoreDirectory(str(tmp_path)), str(tmp_path / "consumequeue"))


def test_rows_are_native_numbers(tmp_path: Path) -> None:
    database = written(tmp_path, {("a", 0): contiguous(0, 4)}, {("a", 0): 4})
    units = database.queue("a", 0).read_units(0, 4)
    assert units["commit_log_offset"].dtype == np.dtype("=i8")
