from __future__ import annotations

import os
import pickle
import time

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from store_core.errors import StoreNotFoundError, StoreReadError
from store_core.files import remote_filesystem
from store_core.files.store_directory import StoreDirectory, expand_paths


@pytest.fixture
def root(tmp_path):
    for name in ("store-a/commitlog", "store-b/commitlog", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "store-a/commitlog/b").write_bytes(b"12345")
    (tmp_path / "store-a/commitlog/a").write_bytes(b"")
    (tmp_path / "store-file").touch()
    os.utime(tmp_path / "store-a/commitlog/b", (1700000000.125, 1700000000.125))
    return tmp_path


@pytest.fixture(params=["path", "file:", "file://", "remote"])
def directory(request, root, monkeypatch):
    if request.param == "remote":
        filesystem = SubTreeFileSystem(str(root), LocalFileSystem())
        monkeypatch.setattr(
            remote_filesystem, "open_filesystem", lambda uri: (filesystem, uri.split("//")[1])
        )
        return StoreDirectory("test://store-a")
    prefix = "" if request.param == "path" else request.param
    return StoreDirectory(f"{prefix}{root}/store-a")


def test_listing_is_sorted_with_sizes_and_times(directory):
    entries = directory.list(directory.resolve("commitlog"))
    assert [(e.name, e.size, e.is_dir) for e in entries] == [("a", 0, False), ("b", 5, False)]
    assert entries[1].modified_ms == 1700000000125
    assert directory.read_bytes(entries[1].path) == b"12345"
    top = directory.list(directory.resolve())
    assert [(e.name, e.size, e.is_dir) for e in top] == [("commitlog", 0, True)]


def test_what_is_missing(directory):
    path = directory.resolve("nothing", "there")
    assert directory.list(path) == []
    assert directory.stat(path) is None
    assert directory.read_bytes(path) is None
    assert directory.read_bytes(directory.resolve("commitlog")) is None
    with pytest.raises(StoreReadError):
        directory.open(path)


def test_stat_and_open(directory):
    entry = directory.stat(directory.resolve("commitlog", "b"))
    assert (entry.name, entry.size, entry.is_dir) == ("b", 5, False)
    with directory.open(entry.path) as source:
        assert source.view(1, 3).tobytes() == b"234"


def test_pickles_by_uri_and_keeps_it(directory):
    copy = pickle.loads(pickle.dumps(directory))
    assert copy.uri == directory.uri
    assert copy.is_local == directory.is_local
    assert copy.read_bytes(copy.resolve("commitlog", "b")) == b"12345"


def test_a_relative_path_means_the_same_after_a_change_of_directory(root, monkeypatch):
    monkeypatch.chdir(root)
    directory = StoreDirectory("store-a")
    monkeypatch.chdir("/")
    copy = pickle.loads(pickle.dumps(directory))
    assert copy.resolve("x") == str(root / "store-a" / "x")


def test_file_uris_are_decoded(tmp_path):
    (tmp_path / "a b").mkdir()
    assert StoreDirectory(f"file://{tmp_path}/a%20b").resolve() == f"{tmp_path}/a b"
    assert StoreDirectory(f"{tmp_path}/%RETRY%x").resolve() == f"{tmp_path}/%RETRY%x"


def test_links_to_nothing_are_not_taken_for_nothing(root):
    (root / "store-a/commitlog/c").symlink_to(root / "gone")
    (root / "store-a/index").symlink_to(root / "gone")
    directory = StoreDirectory(str(root / "store-a"))
    *others, link = directory.list(directory.resolve("commitlog"))
    assert [e.name for e in others] == ["a", "b"]
    assert link == directory.stat(link.path)
    assert "leads nowhere" in link.not_a_file
    with pytest.raises(StoreReadError, match="leads nowhere"):
        directory.list(directory.resolve("index"))


def test_listing_a_file_is_an_error(directory):
    with pytest.raises(StoreReadError):
        directory.list(directory.resolve("commitlog", "b"))


def test_unknown_scheme_names_the_uri():
    with pytest.raises(StoreReadError, match="nosuch://x"):
        StoreDirectory("nosuch://x/y").resolve()


def test_ten_thousand_segments_are_listed_quickly(tmp_path):
    for number in range(10_000):
        (tmp_path / f"{number:020d}").touch()
    directory = StoreDirectory(str(tmp_path))
    began = time.perf_counter()
    assert len(directory.list(directory.resolve())) == 10_000
    assert time.perf_counter() - began < 1  # 0.08 s when nothing else runs


def test_globs_expand_to_sorted_directories(root):
    paths = [f"{root}/store-*", f"{root}/other", f"file://{root}/store-[b]", "hdfs://host/a"]
    assert expand_paths(paths) == [
        f"{root}/store-a",
        f"{root}/store-b",
        f"{root}/other",
        f"file://{root}/store-b",
        "hdfs://host/a",
    ]


def test_a_pattern_without_match_is_an_error(root):
    with pytest.raises(StoreNotFoundError, match=r"nothing\*"):
        expand_paths([f"{root}/nothing*"])


def test_braces_are_told_to_be_no_glob(root):
    with pytest.raises(StoreNotFoundError, match="braces are no part of a glob here, give a list"):
        expand_paths([f"{root}/{{store-a,store-b}}"])
    (root / "{a,b}").mkdir()
    assert expand_paths([f"{root}/{{a,b}}"]) == [f"{root}/{{a,b}}"]


def test_relative_paths_start_at_a_base_and_stay_as_given(root, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    above = str(root.parent)
    assert expand_paths([f"{root.name}/store-*"], above) == [
        f"{root.name}/store-a",
        f"{root.name}/store-b",
    ]
    assert expand_paths([f"{root}/other"], above) == [f"{root}/other"]
    directory = StoreDirectory(f"{root.name}/other", above)
    assert (directory.uri, directory.resolve()) == (f"{root.name}/other", f"{root}/other")
    assert StoreDirectory(f"{root}/other", "/elsewhere").resolve() == f"{root}/other"


def test_a_path_that_exists_as_spelled_is_no_pattern(root):
    (root / "odd[1]").mkdir()
    assert expand_paths([f"{root}/odd[1]"]) == [f"{root}/odd[1]"]


def test_remote_globs(root, monkeypatch):
    filesystem = SubTreeFileSystem(str(root), LocalFileSystem())
    monkeypatch.setattr(
        remote_filesystem,
        "open_filesystem",
        lambda uri: (filesystem, uri.split("//", 1)[1].split("?")[0].partition("/")[2]),
    )
    assert expand_paths(["s3://bucket/store-*/commit*?region=x"]) == [
        "s3://bucket/store-a/commitlog?region=x",
        "s3://bucket/store-b/commitlog?region=x",
    ]
    with pytest.raises(StoreNotFoundError):
        expand_paths(["s3://bucket/nothing-*"])
