# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from bench.object_store import ObjectStore
from store_core.errors import FileVanishedError, StoreReadError
from store_core.files import remote_requests
from store_core.files.remote_files import PIECE_BYTES, RemoteFiles
from store_core.files.remote_object import Blocks, ObjectVersion
from store_core.files.store_directory import StoreDirectory

CONTENT = bytes(range(256)) * 4096  # a MiB


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(remote_requests, "_pause", lambda _: None)


@pytest.fixture
def objects():
    return ObjectStore()


@pytest.fixture
def root(tmp_path):
    for name in ("a/0", "a/1", "b/0"):
        (tmp_path / "queues" / name).mkdir(parents=True)
        (tmp_path / "queues" / name / "file").write_bytes(CONTENT)
    (tmp_path / "checkpoint").write_bytes(b"x" * 100)
    return str(tmp_path)


@pytest.fixture
def files(objects, root):
    return RemoteFiles(objects, root)


def kinds(objects):
    return [request.kind for request in objects.requests]


def test_what_is_remembered_is_asked_once(files, objects, root):
    for _ in range(2):
        files.list(f"{root}/queues")
    assert kinds(objects) == ["list", "list"]
    files.remember()
    for _ in range(3):
        assert [e.name for e in sorted(files.list(f"{root}/queues"))] == ["a", "b"]
        assert files.stat(f"{root}/queues/a").is_dir
        assert files.stat(f"{root}/queues/c") is None
        assert files.list(f"{root}/queues/c") == []
        with files.open(f"{root}/queues/a/0/file") as source:
            assert source.read_at(5, 3) == CONTENT[5:8]
    assert kinds(objects)[2:] == ["list", "open", "read"]
    files.forget(f"{root}/queues", below=True)
    files.list(f"{root}/queues")
    with files.open(f"{root}/queues/a/0/file") as source:
        assert source.read_at(5, 3) == CONTENT[5:8]
    assert kinds(objects)[5:] == ["list", "open", "read"]


def test_a_tree_is_listed_as_a_whole(files, objects, root):
    files.remember()
    files.list_ahead([f"{root}/queues"], whole=True)
    assert sorted(e.name for e in files.list(f"{root}/queues")) == ["a", "b"]
    assert sorted(e.name for e in files.list(f"{root}/queues/a")) == ["0", "1"]
    assert [e.size for e in files.list(f"{root}/queues/b/0")] == [len(CONTENT)]
    assert kinds(objects) == ["list"]


def test_a_tree_is_listed_directory_by_directory_where_it_must_be(files, objects, root):
    objects.type_name = "hdfs"
    files.remember()
    files.list_ahead([f"{root}/queues"], whole=True)
    for path in ("queues", "queues/a", "queues/a/0", "queues/b/0"):
        assert files.list(f"{root}/{path}")
    assert kinds(objects) == ["list"] * 6


def test_bytes_are_fetched_ahead_and_errors_told_to_whoever_reads(files, objects, root):
    files.remember()
    paths = [f"{root}/queues/{name}/file" for name in ("a/0", "a/1", "b/0", "none")]
    files.fetch_ahead([(path, 70_000, 10) for path in paths])
    assert sorted(kinds(objects)) == ["open"] * 4 + ["read"] * 3
    for path in paths[:3]:
        with files.open(path) as source:
            assert source.read_at(70_000, 10) == CONTENT[70_000:70_010]
    assert len(objects.requests) == 7
    with pytest.raises(FileVanishedError):
        files.open(paths[3])


def test_an_object_that_was_replaced_is_noticed(files, root):
    path = f"{root}/checkpoint"
    files.list(root)
    with files.open(path) as source:
        source.check_unchanged()
        os.utime(path, (1, 1))
        with pytest.raises(
            StoreReadError, match=r"checkpoint: the object was changed .* 100 bytes"
        ):
            source.check_unchanged()
        Path(path).unlink()
        with pytest.raises(FileVanishedError, match="was deleted while it was read"):
            source.check_unchanged()


def test_an_object_of_another_size_than_listed_is_not_read(files, root):
    files.list(root)
    with Path(root, "checkpoint").open("ab") as file:
        file.write(b"y")
    with pytest.raises(StoreReadError, match=r"had 100 bytes .* now it has 101"):
        files.open(f"{root}/checkpoint")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1_700_000_000_123, 1_700_000_000_123, True),
        (1_700_000_000_123, 1_700_000_000_124, False),
        (1_700_000_000_123, 1_700_000_000_000, True),
        (1_700_000_001_000, 1_700_000_000_000, False),
        (1_700_000_000_000, 0, True),
    ],
)
def test_times_are_compared_as_exactly_as_both_are_told(one, other, same):
    for a, b in ((one, other), (other, one)):
        if same:
            ObjectVersion(5, a).check(ObjectVersion(5, b), "file")
        else:
            with pytest.raises(StoreReadError):
                ObjectVersion(5, a).check(ObjectVersion(5, b), "file")


def test_a_range_is_fetched_ahead_in_pieces_that_do_not_grow_in_number(tmp_path):
    data = os.urandom(1 << 16) * (PIECE_BYTES * 12 >> 16)
    (tmp_path / "segment").write_bytes(data)
    objects = ObjectStore()
    with RemoteFiles(objects, str(tmp_path)).open(f"{tmp_path}/segment") as source:
        source.read_ahead(1000, len(data) - 5)
        at, steps = 1000, itertools.cycle([1, 100_000, PIECE_BYTES, 3 * PIECE_BYTES])
        while at < len(data):
            step = next(steps)
            assert source.read_at(at, step) == data[at : at + step]
            assert len(source._ahead._pieces) <= 16
            at += step
    reads = [(r.start, r.length) for r in objects.requests if r.kind == "read"]
    assert len(set(reads)) == len(reads)
    assert sum(length for _, length in reads) <= len(data) - 1000 + 65_536 * 2
    assert max(length for _, length in reads) <= PIECE_BYTES


def test_blocks_are_kept_up_to_a_limit():
    class Object:
        number = 1

    blocks = Blocks(3)
    for number in range(5):
        blocks.put(Object, number, bytes([number]))
    blocks.get(Object, 2)
    blocks.put(Object, 9, b"9")
    assert [blocks.get(Object, n) for n in (0, 2, 3, 4, 9)] == [None, b"\2", None, b"\4", b"9"]


def test_zeros_at_the_end_are_looked_for_once(tmp_path):
    from store_core.files.byte_source import first_nonzero

    (tmp_path / "segment").write_bytes(b"record" + bytes(20 << 20))
    objects = ObjectStore()
    for number in range(3):
        files = RemoteFiles(objects, str(tmp_path))
        files.list(str(tmp_path))
        with files.open(f"{tmp_path}/segment") as source:
            assert first_nonzero(source, 6) == -1
            assert first_nonzero(source, 5) == 5
        if number == 0:
            fetched = objects.bytes_read()
    assert fetched > 20 << 20
    assert objects.bytes_read() - fetched <= 4 * 65_536
    (tmp_path / "segment").write_bytes(b"record" + bytes((20 << 20) - 1) + b"x")
    os.utime(tmp_path / "segment", (1, 1))
    files = RemoteFiles(objects, str(tmp_path))
    files.list(str(tmp_path))
    with files.open(f"{tmp_path}/segment") as source:
        assert first_nonzero(source, 6) == 6 + (20 << 20) - 1


def test_filesystems_of_fsspec_are_read_exactly(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/store/commitlog/0001", CONTENT)
    try:
        directory = StoreDirectory("memory://store")
        assert [e.name for e in directory.list(directory.resolve())] == ["commitlog"]
        [segment] = directory.list(directory.resolve("commitlog"))
        assert (segment.name, segment.size, segment.is_dir) == ("0001", len(CONTENT), False)
        assert directory.list(directory.resolve("none")) == []
        assert directory.stat(directory.resolve("none")) is None
        with directory.open(segment.path) as source:
            views = source.views([(start, 5) for start in range(0, 1000, 10)])
            assert [v.tobytes() for v in views] == [CONTENT[s : s + 5] for s in range(0, 1000, 10)]
        with pytest.raises(FileVanishedError):
            directory.open(directory.resolve("commitlog", "0002"))
    finally:
        memory.rm("/store", recursive=True)
