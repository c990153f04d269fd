"""Option ``keysFrom``: the rows are those that the same keys give one by one."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqsource.errors import SourceOptionError
from rmqsource.scan.predicate import find_key_files, from_options, load_keys
from tests.golden_store import golden
from tests.rmqsource.reading import parsed, places, read_rows

STORES = ["classic-5x", "batch-5x", "cluster-5x"]
WANTED = ("commit_log_offset", "queue_offset", "topic", "keys", "unique_key")


def key_rows(store):
    return read_rows(store.root, table="keys", mode="PERMISSIVE", **store.options)


def some_keys(store):
    """Return every third key of a store, and some that no message has."""
    keys = sorted({row["key"] for row in key_rows(store) if row["key"] is not None})
    assert len(keys) > 6
    return [*keys[::3], "no such key", "ключ"]


def write_text(path, keys):
    path.write_text("".join(f"{key}\n" for key in keys), "utf-8")


def write_parquet(path, keys, name="key"):
    pq.write_table(pa.table({name: pa.array(keys, pa.string())}), path)


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("write", [write_text, write_parquet])
def test_messages_and_keys_are_those_of_the_keys(tmp_path, name, write):
    store, path = golden(name), tmp_path / "wanted"
    keys = some_keys(store)
    write(path, keys)
    options = {**store.options, "mode": "PERMISSIVE", "keysFrom": path}
    rows = read_rows(store.root, WANTED, **options)
    every = read_rows(store.root, WANTED, mode="PERMISSIVE", **store.options)
    held = {*keys}
    expected = [row for row in every if held & {*(row["keys"] or ()), row["unique_key"]}]
    assert expected
    assert sorted(places(rows)) == sorted(places(expected))
    found = read_rows(store.root, table="keys", **options)
    assert sorted((row["key"], *places([row])[0]) for row in found) == sorted(
        (row["key"], *places([row])[0]) for row in key_rows(store) if row["key"] in held
    )


def test_with_a_topic_and_another_filter(tmp_path):
    store, path = golden("classic-5x"), tmp_path / "wanted.txt"
    rows = [row for row in key_rows(store) if row["key"]]
    topic = rows[0]["topic"]
    write_text(path, {row["key"] for row in rows})
    options = {**store.options, "topic": topic, "keysFrom": path}
    found = read_rows(store.root, WANTED, **options)
    assert {row["topic"] for row in found} == {topic}
    one = rows[0]["key"]
    both = read_rows(store.root, table="keys", **options, where=f"key = '{one}'")
    assert both
    assert {row["key"] for row in both} == {one}


def test_a_directory_as_spark_writes_it(tmp_path):
    store = golden("classic-5x")
    keys = some_keys(store)
    directory = tmp_path / "wanted"
    directory.mkdir()
    write_parquet(directory / "part-0.parquet", keys[:4], "value")
    write_text(directory / "part-1.txt", keys[4:])
    (directory / "_SUCCESS").touch()
    (directory / ".part-0.crc").write_bytes(b"\0crc")
    text = tmp_path / "one"
    write_text(text, keys)
    rows = [
        read_rows(store.root, WANTED, **store.options, keysFrom=place)
        for place in (directory, text)
    ]
    assert rows[0] == rows[1] != []


@pytest.mark.parametrize("text", ["", "\n\n", "  \n"])
def test_no_key_matches_nothing(tmp_path, text):
    store, path = golden("classic-5x"), tmp_path / "none"
    path.write_text(text)
    assert read_rows(store.root, **store.options, keysFrom=path) == []
    assert read_rows(store.root, table="keys", **store.options, keysFrom=path) == []


def test_lines_may_end_as_on_windows_and_have_quotes_and_commas(tmp_path):
    path = tmp_path / "keys"
    path.write_bytes('\ufeffa,b\r\n"c\r\n d \r\n"e"'.encode())
    held = load_keys(find_key_files(str(path), ""))
    asked = pa.array(["a,b", '"c', "d", '"e"', "e", "a", ""])
    assert held.contains(asked).tolist() == [True, True, True, True, False, False, False]


def test_a_relative_place_is_that_of_the_driver(tmp_path, monkeypatch):
    write_text(tmp_path / "keys", ["a"])
    monkeypatch.chdir(tmp_path)
    found = pickle.loads(pickle.dumps(find_key_files("keys", str(Path.cwd()))))
    monkeypatch.chdir("/")
    assert len(load_keys(found)) == 1


def test_dictionaries_of_strings(tmp_path):
    path = tmp_path / "keys"
    pq.write_table(pa.table({"key": pa.array(["a", "b", "a", None]).dictionary_encode()}), path)
    held = load_keys(find_key_files(str(path), ""))
    assert held.contains(pa.array(["a", "b", "c"])).tolist() == [True, True, False]


def test_a_file_that_changes_after_planning_is_told(tmp_path):
    store, path = golden("classic-5x"), tmp_path / "keys"
    write_text(path, ["a"])
    options = {**store.options, "keysFrom": path}
    request_of = from_options(parsed(store.root, **options))
    write_text(path, ["a", "b"])
    with pytest.raises(SourceOptionError, match=r"keysFrom.*was changed since.*load again"):
        load_keys(request_of.key_files)
    assert read_rows(store.root, **options) == []  # a new read takes the file as it is
    path.unlink()
    with pytest.raises(SourceOptionError, match="is not there; load again"):
        load_keys(request_of.key_files)


def test_what_is_no_file_of_keys_is_refused(tmp_path):
    def refused(name, reason):
        with pytest.raises(SourceOptionError, match=reason):
            load_keys(find_key_files(str(tmp_path / name), ""))

    refused("missing", "keysFrom.*does not exist")
    (tmp_path / "empty").mkdir()
    refused("empty", "holds no file")
    (tmp_path / "nested" / "day=1").mkdir(parents=True)
    refused("nested", "is a directory; give one that holds files alone")
    os.mkfifo(tmp_path / "fifo")
    refused("fifo", "is a FIFO")
    pq.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "two")
    refused("two", "found columns a, b")
    pq.write_table(pa.table({"key": [1, 2]}), tmp_path / "numbers")
    refused("numbers", "'key' is of int64")
    (tmp_path / "torn").write_bytes((tmp_path / "two").read_bytes()[:100])
    refused("torn", "expected Parquet")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00\n")
    refused("bytes", "UTF-8")
    (tmp_path / "columns").write_bytes(b"a\x01b\n")
    refused("columns", "a key a line")


@pytest.mark.parametrize("table", ["topics", "queues"])
def test_tables_without_keys_refuse_it(tmp_path, table):
    with pytest.raises(SourceOptionError, match=r"keysFrom.*does not apply"):
        parsed(tmp_path, table=table, keysFrom="x")
