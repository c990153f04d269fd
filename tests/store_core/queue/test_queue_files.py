# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.queue import queue_files
from store_core.queue.queue_files import NewNames, QueueFiles
from tests.store_core.queue.test_consume_queue_writer import in_row, writer_in


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=12))
def test_bytes_lie_where_they_were_written(tmp_path_factory, blocks):
    directory = tmp_path_factory.mktemp("files")
    files = QueueFiles(directory, 16)
    for position, block in zip(accumulate([3, *map(len, blocks)]), blocks):
        files.write(position, block)
    data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
    assert data.strip(b"\0") == b"".join(blocks).strip(b"\0")
    assert len(data) % 16 == 0


def test_flush_syncs_each_written_file_once_and_the_directory(tmp_path, monkeypatch):
    synced, named = [], []
    monkeypatch.setattr(queue_files, "sync_file", lambda path: synced.append(Path(path).name))
    monkeypatch.setattr(queue_files, "flush_directory", named.append)
    writer = writer_in(tmp_path / "q")
    writer.append(in_row(range(5)))
    writer.flush()
    assert synced == [f"{0:020d}", f"{80:020d}"]
    assert named == [str(tmp_path), str(tmp_path / "q")]
    writer.flush()
    assert len(synced) == 2
    writer.append(in_row([5], 1050))
    writer.flush()
    assert synced[2:] == [f"{80:020d}"]
    assert len(named) == 2


def failed_flush(writer, monkeypatch, number):
    with monkeypatch.context() as patch:
        patch.setattr(
            queue_files, "sync_file", lambda _: (_ for _ in ()).throw(OSError(number, ""))
        )
        with pytest.raises(OSError, match=str(number)):
            writer.flush()


def test_what_was_not_flushed_for_want_of_a_descriptor_is_tried_again(tmp_path, monkeypatch):
    writer = writer_in(tmp_path / "q")
    writer.append(in_row(range(2)))
    failed_flush(writer, monkeypatch, errno.EMFILE)
    synced = []
    monkeypatch.setattr(queue_files, "sync_file", lambda path: synced.append(Path(path).name))
    writer.flush()
    assert synced == [f"{0:020d}"]


def test_what_the_disk_failed_to_take_stays_failed(tmp_path, monkeypatch):
    writer = writer_in(tmp_path / "q")
    writer.append(in_row(range(2)))
    failed_flush(writer, monkeypatch, errno.EIO)
    with pytest.raises(OSError, match=str(errno.EIO)):
        writer.flush()


@pytest.mark.parametrize(
    ("spans", "waits"),
    [([(0, 8191)], True), ([(0, 8192)], False), ([(4000, 4200), (4200, 8191)], True),
     ([(4000, 4100), (8100, 8192)], False), ([(16380, 16390)], False)],
)  # fmt: skip
def test_few_pages_wait_unless_a_file_is_full(tmp_path, monkeypatch, spans, waits):
    forced = []
    monkeypatch.setattr("store_core.queue.queue_files.sync_file", forced.append)
    files = QueueFiles(tmp_path / "queue", 16384)
    for start, stop in spans:
        files.write(start, bytes(stop - start))
    files.flush(2)
    assert (forced == []) == waits
    files.flush()
    assert forced
    forced.clear()
    files.flush(1)
    assert not forced


def test_a_full_file_and_a_failed_one_do_not_wait(tmp_path, monkeypatch):
    files = QueueFiles(tmp_path / "queue", 16384)
    files.write(16380, b"full")
    assert files.is_worth_flush(2)
    files.flush()
    assert not files.is_worth_flush(2)
    files.write(16384, b"x")
    failed_flush(files, monkeypatch, errno.EIO)
    with pytest.raises(OSError, match=str(errno.EIO)):
        files.flush(2)


@pytest.fixture
def forced(monkeypatch):
    """Return the directories that are forced; each must exist."""
    directories = []
    flush = queue_files.flush_directory

    def note(directory):
        flush(directory)
        directories.append(directory)

    monkeypatch.setattr(queue_files, "flush_directory", note)
    return directories


def test_each_directory_with_a_new_name_is_forced_once(tmp_path, forced):
    names = NewNames()
    for queue in ("a/0", "a/1", "b/0"):
        names.make_directory(str(tmp_path / queue))
        names.add(str(tmp_path / queue))
    assert forced == []
    names.flush()
    wanted = ["", "a", "a/0", "a/1", "b", "b/0"]
    assert forced == [str(tmp_path / name) for name in wanted]
    names.make_directory(str(tmp_path / "a/1"))  # was there: no new name
    names.flush()
    assert len(forced) == len(wanted)


def test_a_directory_that_was_deleted_meanwhile_holds_nobody_up(tmp_path, forced):
    names = NewNames()
    for queue in ("a", "b"):
        names.make_directory(str(tmp_path / queue))
        names.add(str(tmp_path / queue))
    (tmp_path / "a").rmdir()
    names.flush()
    assert forced == [str(tmp_path), str(tmp_path / "b")]


def test_what_could_not_be_forced_is_tried_again(tmp_path, monkeypatch):
    names, tries = NewNames(), []

    def fail_once(directory):
        tries.append(directory)
        if len(tries) == 1:
            raise OSError(5, "")

    monkeypatch.setattr(queue_files, "flush_directory", fail_once)
    names.add("a")
    names.add("b")
    with pytest.raises(OSError, match="5"):
        names.flush()
    names.flush()
    assert tries == ["a", "a", "b"]
