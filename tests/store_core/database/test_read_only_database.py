# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.database import read_only_database
from store_core.database.read_only_database import ReadOnlyDatabase, database_path
from store_core.database.rocksdb_layout import DEFAULT_FAMILY, OFFSET_FAMILY, unit_key, unit_prefix
from store_core.errors import StoreFormatError
from store_core.files.store_directory import StoreDirectory
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_kinds import MESSAGES, OPTIONS, unpack_kind
from tests.golden_store import tree_state
from tests.store_core.remote import RemoteDirectory

CONFIG = MessageStoreConfig.from_properties(OPTIONS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack_kind("rocksdb-5x", tmp_path)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which copies are made."""
    made = tmp_path / "copies"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


def opened(directory: StoreDirectory) -> ReadOnlyDatabase:
    return ReadOnlyDatabase(directory, database_path(directory, "consumequeue"))


def orders(database: ReadOnlyDatabase) -> int:
    return sum(
        len(database.pairs_from(DEFAULT_FAMILY, unit_key(unit_prefix(b"orders", n), 0), 100))
        for n in range(4)
    )


@pytest.mark.parametrize("kind", [StoreDirectory, RemoteDirectory])
def test_nothing_is_written_and_no_copy_is_left(root: Path, places: Path, kind: type) -> None:
    before = tree_state(root)
    database = opened(kind(str(root)))
    assert not list(places.iterdir())
    assert len(list(database.items(DEFAULT_FAMILY))) == sum(MESSAGES.values())
    assert database.has_family(OFFSET_FAMILY)
    assert not database.has_family("other")
    database.close()
    assert tree_state(root) == before


def test_tables_that_are_deleted_later_stay_readable(root: Path) -> None:
    database = opened(StoreDirectory(str(root)))
    for path in (root / "consumequeue").iterdir():
        path.unlink()
    assert len(list(database.items(DEFAULT_FAMILY))) == sum(MESSAGES.values())


def test_a_table_that_vanishes_while_the_copy_is_made(
    root: Path, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, calls = read_only_database.copy_database, []

    def copy_with_a_loss(directory: StoreDirectory, path: str, target: str) -> None:
        copy(directory, path, target)
        calls.append(target)
        if len(calls) < 3:
            next(Path(target).glob("*.sst")).unlink()

    monkeypatch.setattr(read_only_database, "copy_database", copy_with_a_loss)
    database = opened(StoreDirectory(str(root)))
    assert len(calls) == 3
    assert len(list(database.items(DEFAULT_FAMILY))) == sum(MESSAGES.values())
    assert not list(places.iterdir())


@pytest.mark.parametrize("lost", ["*.sst", "MANIFEST-*", "CURRENT"])
def test_of_a_database_that_lost_a_file_the_log_is_read(
    root: Path, places: Path, lost: str
) -> None:
    directory = StoreDirectory(str(root))
    next((root / "consumequeue").glob(lost)).unlink()
    with pytest.raises(StoreFormatError, match=r"consumequeue: .*") as caught:
        opened(directory)
    assert str(places) not in str(caught.value), "a copy that is gone again"
    with StoreSnapshot(directory, CONFIG) as snapshot:
        assert snapshot.queue_database is None
        (note,) = snapshot.kind.notes()
        assert note.startswith(f"the queues are in a RocksDB database ({root}/consumequeue)")
        assert caught.value.reason in note
        assert snapshot.end_offset == 25638
    assert not list(places.iterdir())


def test_a_damaged_table_is_an_error_and_no_fewer_units(root: Path) -> None:
    for path in (root / "consumequeue").glob("*.sst"):
        data = bytearray(path.read_bytes())
        data[100:200] = bytes(100)
        path.write_bytes(data)
    with pytest.raises(
        StoreFormatError, match=r"RocksDB database (is damaged|cannot be opened)"
    ) as caught:
        list(opened(StoreDirectory(str(root))).items(DEFAULT_FAMILY))
    assert tempfile.gettempdir() + "/rocketmq-database" not in str(caught.value)


def test_a_fifo_in_place_of_a_table_is_named(root: Path) -> None:
    table = next((root / "consumequeue").glob("*.sst"))
    table.unlink()
    os.mkfifo(table)
    with pytest.raises(StoreFormatError, match="is a FIFO, where a file of a RocksDB database"):
        opened(StoreDirectory(str(root)))


def test_keys_at_the_edges_of_a_prefix(root: Path) -> None:
    database = opened(StoreDirectory(str(root)))
    prefix = unit_prefix(b"orders", 3)
    assert database.first_key(DEFAULT_FAMILY, prefix) == unit_key(prefix, 0)
    last = database.last_key(DEFAULT_FAMILY, prefix)
    assert last is not None
    assert last[: len(prefix)] == prefix
    for other in (unit_prefix(b"orders", 4), unit_prefix(b"ordert", 0), b"\xff"):
        assert database.first_key(DEFAULT_FAMILY, other) is None
        assert database.last_key(DEFAULT_FAMILY, other) is None
    assert database.get(DEFAULT_FAMILY, b"none") is None


@pytest.mark.parametrize(("name", "most"), [("CURRENT", 4096), ("MANIFEST-*", 512 << 20)])
def test_a_file_that_claims_a_size_of_no_such_file_is_not_read(
    root: Path, name: str, most: int
) -> None:
    path = next((root / "consumequeue").glob(name))
    os.truncate(path, 1 << 40)
    with pytest.raises(StoreFormatError, match=rf"1099511627776 bytes long.*at most {most}"):
        opened(StoreDirectory(str(root)))
