"""A directory takes the place of another."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from store_core.files import file_writing
from store_core.files.file_writing import exchange, put_in_place, remove_tree, restore, take_away


def make(path: Path, content: str) -> str:
    path.mkdir(parents=True)
    (path / "file").write_text(content)
    return str(path)


@pytest.fixture(params=["exchange", "renames"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "renames":
        monkeypatch.setattr(file_writing, "exchange", lambda *_: False)
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_new_is_in_place_and_old_aside(tmp_path: Path) -> None:
    new, old = make(tmp_path / "work" / "new", "new"), make(tmp_path / "target", "old")
    aside = str(tmp_path / "work" / "old")
    put_in_place(new, old, aside)
    assert (tmp_path / "target" / "file").read_text() == "new"
    assert (tmp_path / "work" / "old" / "file").read_text() == "old"
    assert not os.path.lexists(new)


def test_without_an_old_one_it_is_a_rename(tmp_path: Path) -> None:
    new, target = make(tmp_path / "new", "new"), str(tmp_path / "target")
    put_in_place(new, target, str(tmp_path / "aside"))
    assert (tmp_path / "target" / "file").read_text() == "new"
    assert not (tmp_path / "aside").exists()


def test_restore_brings_back_only_what_is_missing(tmp_path: Path) -> None:
    aside, target = make(tmp_path / "aside", "old"), str(tmp_path / "target")
    assert restore(target, aside)
    assert (tmp_path / "target" / "file").read_text() == "old"
    make(tmp_path / "aside", "older")
    assert not restore(target, aside)
    take_away(target, str(tmp_path / "gone"))
    assert not (tmp_path / "target").exists()
    take_away(target, str(tmp_path / "gone2"))
    remove_tree(aside)
    remove_tree(aside)
    assert not (tmp_path / "aside").exists()


def test_exchange_says_what_failed(tmp_path: Path) -> None:
    first = make(tmp_path / "first", "1")
    if not exchange(first, make(tmp_path / "second", "2")):
        pytest.skip("this system cannot exchange names")
    assert (tmp_path / "first" / "file").read_text() == "2"
    with pytest.raises(OSError) as caught:
        exchange(first, str(tmp_path / "missing"))
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == first
