# SPDX-License-Identifier: Apache-2.0
"""Store times against their neighbours; times of the index against those of the records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.layout import INDEX_HEADER
from store_core.tools.check.log_check import StoreTimeCheck
from tests.golden_store import golden
from tests.store_core.tools.check.support import checked, kinds
from tests.store_core.tools.check.test_store_check import SIZES, flip, in_entry, index_file, put
from tests.store_factory import small_store

BEGIN = 1_700_000_000_000
STORE_TIME_AT = 56  # in a record with IPv4 hosts


class Frames:
    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def column(self, name: str) -> Any:
        return self._columns[name]


def outliers(stored: list[int], born: list[int], batch: int = 3) -> list[int]:
    check, found = StoreTimeCheck(), []
    columns = {
        "commit_log_offset": np.arange(len(stored)),
        "store_timestamp": np.array(stored, np.int64),
        "born_timestamp": np.array(born, np.int64),
    }
    for at in range(0, len(stored), batch):
        part = {name: column[at : at + batch] for name, column in columns.items()}
        found += list(check.add(Frames(part)))  # type: ignore[arg-type]
    return [outlier.commit_log_offset for outlier in [*found, *check.finish()]]


steps = st.lists(
    st.tuples(st.integers(0, 10**7), st.sampled_from([0, 0, 0, 0, -1])), min_size=1, max_size=30
)


@given(steps, st.integers(1, 10**8), st.integers(0, 500), st.integers(1, 9))
def test_a_clock_that_is_set_back_is_no_damage(steps, back_ms, delay_ms, batch):
    stored, now, was_set = [], BEGIN, False
    for gap, sign in steps:
        was_set = sign < 0 and not was_set  # twice around one record looks like damage to it
        now += gap - was_set * back_ms
        stored.append(now)
    producers = np.cumsum([gap for gap, _ in steps]) + BEGIN - delay_ms  # their clock goes on
    assert outliers(stored, producers.tolist(), batch) == []
    assert outliers(stored, [time - delay_ms for time in stored], batch) == []


@given(
    st.lists(st.integers(0, 10**6), min_size=3, max_size=30),
    st.integers(0, 62),
    st.data(),
    st.integers(1, 9),
)
def test_one_flipped_bit_between_two_neighbours_is_found(gaps, bit, data, batch):
    stored = (np.cumsum(gaps) + BEGIN).tolist()
    born = [time - 5 for time in stored]
    at = data.draw(st.integers(1, len(stored) - 2))
    true, stored[at] = stored[at], stored[at] ^ (1 << bit)
    around = stored[at - 1], stored[at + 1]
    away = max(around[0] - stored[at], stored[at] - around[1])
    slack = 10_000
    expected = away > slack + around[1] - around[0] and abs(stored[at] - true) > slack
    found = outliers(stored, born, batch)
    assert (at in found) == expected
    assert not set(found) - {at - 1, at, at + 1}


@pytest.mark.parametrize("byte", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "cluster-5x"])
def test_a_damaged_store_time_is_found(tmp_path, name, byte):
    store = golden(name)
    root = store.copy_to(tmp_path)
    rows = [row for row in store.dump("messages") if row.get("store_size")]
    row = next(row for row in rows[40:] if not row["sys_flag"] & 0x10)
    path = min((root / "commitlog").iterdir())
    flip(path, row["commit_log_offset"] + STORE_TIME_AT + byte)
    assert "STORE_TIME" in kinds(checked(root, store.config_properties))


def test_an_entry_with_another_time_is_found(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    in_entry(9, "time_diff_seconds", (7777).to_bytes(4, "big"))(store)
    assert kinds(checked(store.root, SIZES)) == {"INDEX_TIME": 1}


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "expired-5x", "cluster-5x"])
def test_an_index_whose_times_are_all_off_is_found(tmp_path, name):
    store = golden(name)
    root = store.copy_to(tmp_path)
    off = 67 * 365 * 86_400_000
    for path in (root / "index").iterdir():
        header = INDEX_HEADER.unpack(path.read_bytes()[: INDEX_HEADER.size])
        for field in ("begin_timestamp", "end_timestamp"):
            value = getattr(header, field) - off
            put(path, INDEX_HEADER.at(field), value.to_bytes(8, "big", signed=True))
    assert "INDEX_TIME" in kinds(checked(root, store.config_properties))


@pytest.mark.parametrize("field", ["begin_timestamp", "end_timestamp"])
def test_one_bit_of_a_header_s_times_is_found(tmp_path, field):
    store = small_store(tmp_path / "store")
    store.write()
    flip(index_file(store), INDEX_HEADER.at(field) + 7)
    assert "INDEX_TIME" in kinds(checked(store.root, SIZES))
