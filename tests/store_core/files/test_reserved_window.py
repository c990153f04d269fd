from __future__ import annotations

import errno
import os
from random import Random

import pytest

from store_core.files.mapped_file import ReservedWindow

_SIZE = 64 << 10


@pytest.fixture
def fd(tmp_path):
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(opened, _SIZE)
    yield opened
    os.close(opened)


@pytest.mark.parametrize("length", [1, 8, 9, 5000])
def test_what_is_written_is_in_the_file(fd, length):
    window, data = ReservedWindow(fd, _SIZE), os.urandom(length)
    for at in (0, 4090, _SIZE - length):
        assert window.write(at, memoryview(data))
        assert os.pread(fd, length, at) == data
    window.close()


def test_small_writes_fill_a_file_of_several_windows(tmp_path):
    size, random = (9 << 20) + 1000, Random(1)
    with (tmp_path / "long").open("w+b") as file:
        os.ftruncate(file.fileno(), size)
        window, written = ReservedWindow(file.fileno(), size), bytearray()
        while len(written) + 16_000 <= size:
            data = random.randbytes(random.randint(1, 16_000))
            assert window.write(len(written), data)
            written += data
            assert not any(os.pread(file.fileno(), 16_000, len(written)))
        window.close()
        assert file.read() == written.ljust(size, b"\0")


def test_nothing_is_written_when_it_was_closed(fd):
    window = ReservedWindow(fd, _SIZE)
    assert window.write(0, memoryview(b"x" * 100))
    window.close()
    assert not window.write(0, memoryview(b"y" * 100))  # the number may be another file's by now
    assert os.pread(fd, 100, 0) == b"x" * 100


def test_memory_is_used_again_when_there_are_descriptors_again(fd, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    window = ReservedWindow(fd, _SIZE)
    with monkeypatch.context() as patch:
        patch.setattr("store_core.files.mapped_file.mmap.mmap", fail)
        assert not window.write(0, memoryview(b"x" * 100))
    assert window.write(0, memoryview(b"y" * 100))
    assert os.pread(fd, 100, 0) == b"y" * 100
    window.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EOPNOTSUPP])
def test_nothing_is_written_where_no_blocks_can_be_reserved(fd, monkeypatch, code):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    window = ReservedWindow(fd, _SIZE)
    if code == errno.ENOSPC:
        with pytest.raises(OSError, match="No space"):
            window.write(0, memoryview(b"x" * 100))
    else:
        assert not window.write(0, memoryview(b"x" * 100))
    assert os.pread(fd, _SIZE, 0).strip(b"\0") == b""
