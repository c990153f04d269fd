from __future__ import annotations

import pytest

from store_core.queue import queue_files
from store_core.queue.queue_files import NewNames


@pytest.fixture
def forced(monkeypatch):
    """Return the directories that are forced; each must be there."""
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
