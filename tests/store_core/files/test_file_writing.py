from __future__ import annotations

import os
from pathlib import Path

import pytest

import store_core.files.file_writing as module
from store_core.errors import StoreWriteError
from store_core.files.file_writing import (
    create_file,
    erase,
    flush_directory,
    make_directory,
    new_file,
    open_file,
    put_file,
    replace_file,
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
