# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from tests.golden_store import GoldenStore, golden
from tests.rmqsource.metadata.support import open_snapshot, rows_of, rows_of_store


def test_numbers_are_those_of_the_file(plain_golden_store: GoldenStore) -> None:
    (row,) = rows_of_store(plain_golden_store, "checkpoint")
    assert row.pop("store") == str(plain_golden_store.root)
    expected = plain_golden_store.meta["checkpoint_file"]
    for name, value in expected.items():
        assert row[name] == value


def test_a_missing_file_gives_nulls_and_a_short_one_what_it_holds(tmp_path: Path) -> None:
    store = golden("onefile-5x")
    root = store.copy_to(tmp_path)
    (root / "checkpoint").write_bytes((5000).to_bytes(8, "big") + bytes(3))
    with open_snapshot(root, store.options) as snapshot:
        (short,) = rows_of(snapshot, "checkpoint")
    (root / "checkpoint").unlink()
    with open_snapshot(root, store.options) as snapshot:
        (missing,) = rows_of(snapshot, "checkpoint")
    assert list(short.values())[:-1] == [5000, *[None] * 5]
    assert list(missing.values())[:-1] == [None] * 6
