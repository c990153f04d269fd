# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import json
import os
import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from store_core.errors import StoreFormatError, StoreNotFoundError, StoreReadError
from store_core.files import remote_filesystem
from store_core.files.segment_list import load_segments
from store_core.files.store_directory import FileEntry, StoreDirectory, expand_paths, named_store
from store_core.files.store_uri import StoreUri

SECRETS = ("AKIAKEY", "SEC%2FRET", "SEC/RET", "hunter22", "tok3n")
SHOWN = [
    ("s3://AKIAKEY:SEC%2FRET@b/x?region=eu&scheme=http", "s3://b/x?region=eu&scheme=http"),
    ("s3://AKIAKEY:SEC/RET@b/x/y@z", "s3://b/x/y@z"),
    ("s3://b/x?access_key=AKIAKEY&session_token=tok3n", "s3://b/x"),
    ("s3://b/x?endpoint_override=h:9000", "s3://b/x?endpoint_override=h:9000"),
    ("s3://b/x?endpoint_override=http://me:hunter22@h", "s3://b/x"),
    ("hdfs://me:hunter22@nn:8020/x", "hdfs://me@nn:8020/x"),
    ("hdfs://nn:8020/x@y", "hdfs://nn:8020/x@y"),
    ("abfs://data:hunter22@account/x", "abfs://data@account/x"),
    ("abfs://:hunter22@account/x", "abfs://account/x"),
    ("abfs://data@account/x?sig=tok3n&enable_tls=true", "abfs://data@account/x?enable_tls=true"),
    ("gs://anonymous@b/x", "gs://anonymous@b/x"),
    ("webhdfs://me:hunter22@nn:9870/x", "webhdfs://me@nn:9870/x"),
]


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
    began = time.process_time()
    assert len(directory.list(directory.resolve())) == 10_000
    assert time.process_time() - began < 1  # 0.08 s when nothing else runs


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
    with pytest.raises(StoreNotFoundError, match="a glob cannot contain braces here; give a list"):
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


@pytest.mark.parametrize(("location", "shown"), SHOWN)
def test_what_may_be_secret_is_not_shown(location, shown):
    uri = StoreUri(location)
    assert uri == shown
    assert f"{uri} {uri!r} {uri:s}" == f"{shown} {shown!r} {shown}"
    assert json.dumps([uri]) == json.dumps([shown])
    for again in (pickle.loads(pickle.dumps(uri)), copy.deepcopy(uri), StoreUri(uri)):
        assert (again, again.location) == (shown, location)
    assert StoreUri(shown).location == shown


@pytest.mark.parametrize(("location", "_"), SHOWN)
def test_texts_of_libraries_are_cleaned(location, _):
    text = StoreUri(location).hide_in(f"Cannot parse URI: '{location}' (key AKIAKEY)")
    held = [secret for secret in SECRETS if secret in location]
    assert not [secret for secret in held if secret in text]


def test_directories_show_what_may_be_shown_and_open_the_rest():
    directory = StoreDirectory("s3://AKIAKEY:SEC%2FRET@b/x")
    again = pickle.loads(pickle.dumps(directory))
    for one in (directory, again):
        assert one.uri == "s3://b/x"
        assert one.uri.location == "s3://AKIAKEY:SEC%2FRET@b/x"
        assert repr(one) == "StoreDirectory('s3://b/x')"
    [path] = expand_paths(["s3://AKIAKEY:SEC%2FRET@b/x"])
    assert (path, path.location) == ("s3://b/x", "s3://AKIAKEY:SEC%2FRET@b/x")
    assert type(named_store("/data/store")) is str


@pytest.mark.parametrize(
    "location", ["nothing://AKIAKEY:SEC%2FRET@b/x", "s3://AKIAKEY:SEC%2FRET@b/x?secret=tok3n"]
)
def test_errors_of_opening_tell_no_secret(location):
    with pytest.raises(StoreReadError) as caught:
        StoreDirectory(location).resolve()
    told = str(caught.value)
    assert "no filesystem can open this URI" in told
    assert not [secret for secret in SECRETS if secret in told]
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def entry(from_offset, size, name=None):
    name = name or f"{from_offset:020d}"
    return FileEntry(name, f"/log/{name}", size, False, 0)


def load(*entries, file_size=None, unit_bytes=1):
    return load_segments(entries, file_size=file_size, unit_bytes=unit_bytes, option="theKey")


def test_segments_are_sorted_and_found_by_offset():
    segments = load(entry(200, 100), entry(100, 100), entry(400, 100))
    assert (segments.file_size, segments.min_offset, segments.max_offset) == (100, 100, 500)
    assert [s.from_offset for s in segments] == [100, 200, 400]
    found = [segments.find(offset) for offset in (99, 100, 199, 200, 300, 399, 499, 500)]
    assert [s and s.from_offset for s in found] == [None, 100, 100, 200, None, None, 400, None]


def test_names_that_are_no_segment_are_skipped():
    segments = load(
        entry(0, 100),
        entry(0, 100, "00000000000000000100.tmp"),
        entry(0, 100, "100"),
        entry(0, 7, "٠" * 20),
    )
    assert [s.path for s in segments] == ["/log/" + "0" * 20]


@pytest.mark.parametrize("kind", [{"is_dir": True}, {"not_a_file": "a FIFO"}])
def test_what_is_no_file_is_not_skipped(kind):
    with pytest.raises(StoreFormatError, match="where a regular file was expected"):
        load(entry(0, 100), entry(100, 0)._replace(**kind))


def test_an_empty_last_file_is_skipped_and_others_keep_their_length():
    segments = load(entry(0, 100), entry(100, 0), entry(200, 60), entry(300, 0), file_size=100)
    assert [s.size for s in segments] == [100, 0, 60]
    assert segments.max_offset == 260


@pytest.mark.parametrize(
    ("entries", "size"),
    [
        ([entry(0, 70)], 70),
        ([entry(140, 70)], 70),
        ([entry(0, 100), entry(100, 60)], 100),
        ([entry(0, 100), entry(200, 100)], 100),  # the file between is lost
        ([entry(0, 90), entry(100, 100), entry(200, 100)], 100),
        ([], 0),
    ],
)
def test_the_nominal_size_is_seen(entries, size):
    assert load(*entries).file_size == size


def test_a_given_size_is_rounded_up_to_units():
    assert load(entry(0, 40), entry(40, 40), file_size=39, unit_bytes=20).file_size == 40


@pytest.mark.parametrize(
    ("entries", "options"),
    [
        ([entry(150, 100)], {}),
        ([entry(0, 100), entry(130, 90), entry(240, 10)], {}),
        ([entry(100, 100)], {"file_size": 30}),
        ([entry(0, 70)], {"unit_bytes": 20}),
        ([entry(0, 64), entry(1, 5)], {"file_size": 64}),
    ],
)
def test_names_that_do_not_fit_name_file_and_option(entries, options):
    with pytest.raises(StoreFormatError, match=r"/log/\d+.*theKey"):
        load(*entries, **options)


def test_equal_names_of_two_directories_are_refused():
    twin = FileEntry("0" * 20, "/second/" + "0" * 20, 100, False, 0)
    with pytest.raises(StoreFormatError, match="same name"):
        load(entry(0, 100), twin)


def test_names_beyond_a_long_are_refused():
    with pytest.raises(StoreFormatError, match="larger"):
        load(entry(0, 100, "9" * 20))


@given(st.sets(st.integers(0, 50), min_size=1), st.integers(1, 1000), st.integers(-10, 60_000))
def test_find_agrees_with_a_scan(numbers, size, offset):
    segments = load(*(entry(n * size, size) for n in numbers), file_size=size)
    holding = [n for n in numbers if n * size <= offset < (n + 1) * size]
    found = segments.find(offset)
    assert (None if found is None else [found.from_offset // size]) == (holding or None)


def test_a_file_that_would_end_behind_every_byte_offset_is_refused():
    last = (2**63 - 1) // 100 * 100
    assert load(entry(last - 100, 100), file_size=100).max_offset == last
    with pytest.raises(StoreFormatError, match="with 100 bytes would end after"):
        load(entry(last, 100), file_size=100)
    with pytest.raises(StoreFormatError, match="end after the largest offset"):
        load(entry(last - 100, 10**9), file_size=100)
