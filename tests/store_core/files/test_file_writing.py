# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import store_core.files.file_writing as module
from store_core.errors import StoreWriteError
from store_core.files import file_writing
from store_core.files.byte_source import check_regular, open_to_read, open_to_write, read_file
from store_core.files.file_writing import (
    create_file,
    erase,
    exchange,
    flush_directory,
    make_directory,
    new_file,
    open_file,
    put_file,
    put_in_place,
    remove_tree,
    replace_file,
    restore,
    take_away,
    write_all,
    write_error,
)

SIZE = 8 << 20


@pytest.fixture
def file(tmp_path):
    path = str(tmp_path / "file")
    fd = create_file(path, SIZE)
    yield path, fd
    os.close(fd)


@pytest.mark.parametrize("knows_holes", [True, False])
def test_erase_clears_data_and_keeps_holes(file, monkeypatch, knows_holes):
    path, fd = file
    if not knows_holes:
        monkeypatch.delattr(os, "SEEK_DATA")
        monkeypatch.delattr(os, "SEEK_HOLE")
    for at in (10, 5000, 3 << 20, SIZE - 3):
        write_all(fd, at, memoryview(b"abc"))
    assert erase(fd, 5001, SIZE)
    assert not erase(fd, 5001, SIZE)
    expected = bytes(10) + b"abc" + bytes(4987) + b"a"
    assert Path(path).read_bytes() == expected.ljust(SIZE, b"\0")
    if knows_holes:
        assert Path(path).stat().st_blocks * 512 <= 64 * 1024


def test_erase_of_nothing(file):
    _, fd = file
    assert not erase(fd, 0, SIZE)
    assert not erase(fd, SIZE, SIZE)


def test_a_filesystem_that_does_not_know_holes(file, monkeypatch):
    _, fd = file
    write_all(fd, 7, memoryview(b"x"))

    def refuses(*_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "lseek", refuses)
    assert erase(fd, 0, SIZE)
    assert os.pread(fd, 9, 0) == bytes(9)


def test_other_errors_are_not_hidden(file, monkeypatch):
    _, fd = file

    def fails(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "lseek", fails)
    with pytest.raises(OSError, match="Input/output"):
        erase(fd, 0, SIZE)


def test_a_file_that_cannot_have_its_length_is_not_left_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(StoreWriteError, match="No space left on device: free space"):
        create_file(str(tmp_path / "file"), SIZE)
    assert not list(tmp_path.iterdir())


def test_errors_name_the_file(tmp_path):
    error = write_error(PermissionError(13, "Permission denied"), "/a/b")
    assert error.path == "/a/b"
    assert str(error).startswith("/a/b: Permission denied: let the user")
    assert str(write_error(OSError(1234, "Odd"), "/a/b")) == "/a/b: Odd"
    flush_directory(str(tmp_path))


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_a_small_file_that_cannot_be_put_is_named(tmp_path, monkeypatch, call):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(OSError, match="No space left on device") as raised:
        put_file(str(tmp_path / "file"), b"x")
    assert raised.value.filename == str(tmp_path / "file")


def test_each_new_directory_is_forced_in_its_parent(tmp_path, monkeypatch):
    forced = []
    monkeypatch.setattr(module, "flush_directory", forced.append)
    for _ in range(2):
        make_directory(str(tmp_path / "a" / "b"))
    assert forced == [str(tmp_path), str(tmp_path / "a")]
    assert (tmp_path / "a" / "b").is_dir()


def test_a_parent_that_cannot_be_looked_at_is_not_taken_for_missing(tmp_path, monkeypatch):
    def fails(path, **_):
        raise OSError(5, "Input/output error", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fails)
        with pytest.raises(OSError, match="Input/output error"):
            make_directory(str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()


class TestNewFile:
    def test_it_has_its_length_when_its_name_appears(self, tmp_path, monkeypatch):
        path, lengths = tmp_path / "file", []
        true = os.ftruncate

        def ftruncate(fd, size):
            lengths.append(path.exists())
            true(fd, size)

        monkeypatch.setattr(os, "ftruncate", ftruncate)
        os.close(new_file(str(path), 5000))
        assert path.stat().st_size == 5000
        assert lengths == [not hasattr(os, "O_TMPFILE")]

    def test_where_there_are_no_nameless_files(self, tmp_path, monkeypatch):
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
        os.close(new_file(str(tmp_path / "file"), 5000))
        assert (tmp_path / "file").stat().st_size == 5000

    def test_one_that_exists_stays(self, tmp_path):
        (tmp_path / "file").write_bytes(b"x")
        with pytest.raises(FileExistsError):
            new_file(str(tmp_path / "file"), 5000)
        assert (tmp_path / "file").read_bytes() == b"x"


def test_a_file_whose_length_cannot_be_found_out_is_named_and_closed(file, monkeypatch):
    path, _ = file
    true, closed = os.close, []

    def fails(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(module, "open_to_write", lambda name: os.open(name, os.O_RDWR))
    monkeypatch.setattr(os, "close", lambda fd: (closed.append(fd), true(fd)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fails)
        with pytest.raises(StoreWriteError, match="Input/output error") as raised:
            open_file(str(path), SIZE)
    assert raised.value.path == str(path)
    assert len(closed) == 1


def test_a_file_is_replaced_whole_and_a_link_is_not_followed(tmp_path, monkeypatch):
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "file"
    elsewhere.write_bytes(b"old")
    link.symlink_to(elsewhere)
    replace_file(str(link), b"new")
    assert (link.read_bytes(), elsewhere.read_bytes()) == (b"new", b"old")
    assert not link.is_symlink()
    monkeypatch.setattr(module, "write_all", _no_space)
    with pytest.raises(OSError, match="No space") as failed:
        replace_file(str(link), b"newer")
    assert failed.value.filename == f"{link}.tmp"
    assert link.read_bytes() == b"new"


def _no_space(*_):
    raise OSError(28, "No space left on device")


# A directory takes the place of another.


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


def test_regular_files_are_opened(tmp_path):
    path = str(tmp_path / "file")
    os.close(open_to_write(path, os.O_CREAT))
    fd = open_to_write(path)
    os.write(fd, b"abc")
    os.close(fd)
    assert read_file(path) == b"abc"
    os.close(open_to_write(path, os.O_TRUNC))
    assert read_file(path) == b""
    check_regular(path)


@pytest.mark.parametrize("opened", [open_to_read, open_to_write])
@pytest.mark.parametrize(
    ("put", "kind"),
    [(os.mkfifo, "a FIFO"), (os.mkdir, "a directory"), (lambda path: path, "a device")],
)
def test_others_are_refused_at_once(tmp_path, opened, put, kind):
    path = tmp_path / "file"
    path = "/dev/full" if put(path) else path
    with pytest.raises(OSError, match=f"is {kind}, where a regular file was expected"):
        opened(str(path))


def test_links_are_read_and_not_written(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_file(str(tmp_path / "link")) == b"abc"
    with pytest.raises(OSError, match="is a link to file; the store does not write through"):
        open_to_write(str(tmp_path / "link"))
    (tmp_path / "nowhere").symlink_to("gone")
    with pytest.raises(OSError, match="is a link to gone"):
        open_to_write(str(tmp_path / "nowhere"), os.O_CREAT)
    assert not (tmp_path / "gone").exists()


def test_what_is_missing_is_missing(tmp_path):
    for opened in (open_to_read, open_to_write):
        with pytest.raises(FileNotFoundError):
            opened(str(tmp_path / "file"))
        with pytest.raises(OSError, match="contains a NUL"):
            opened("a\0b")
