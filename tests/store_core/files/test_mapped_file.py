# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import tempfile
import threading
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import store_core.files.mapped_file as module
from store_core.errors import StoreFormatError, StoreReadError, StoreWriteError
from store_core.files import mapped_file
from store_core.files.mapped_file import MappedFile, RefCountedMap, ReservedWindow

SIZE = 3 * 4096
NAME = "00000000000000012288"
WINDOW_SIZE = 64 << 10
MAP_SIZE = 4096


@pytest.fixture
def file(tmp_path):
    made = MappedFile(str(tmp_path / NAME), SIZE, create=True)
    yield made
    made.close()


@pytest.fixture
def by_calls(monkeypatch):
    """Let no write go through a map."""
    monkeypatch.setattr(mapped_file, "_MOST_IN_MEMORY_BYTES", -1)


def positions(file):
    return file.wrote_position, file.committed_position, file.flushed_position


def test_a_new_file_is_sparse_and_has_its_full_length(file):
    stat = Path(file.path).stat()
    assert (stat.st_size, stat.st_blocks) == (SIZE, 0)
    assert (file.file_from_offset, file.end_offset) == (SIZE, 2 * SIZE)
    assert positions(file) == (0, 0, 0)


def test_an_opened_file_is_full(file):
    file.append(b"x")
    again = MappedFile(file.path, SIZE)
    assert positions(again) == (SIZE, SIZE, SIZE)
    assert again.is_full
    again.close()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(min_size=1, max_size=30)),
        st.tuples(st.just("append"), st.integers(1, 9000).map(lambda n: b"\xaa" * n)),
        st.tuples(st.just("last"), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just("truncate"), st.integers(0, SIZE)),
        st.tuples(st.just("commit"), st.integers(0, 2)),
        st.tuples(st.just("flush"), st.integers(0, 2)),
    ),
    max_size=20,
)


@given(steps, st.booleans())
def test_equals_a_bytearray(actions, buffered):
    with tempfile.TemporaryDirectory() as directory:
        buffer = memoryview(bytearray(SIZE)) if buffered else None
        file = MappedFile(f"{directory}/{NAME}", SIZE, create=True, write_buffer=buffer)
        model, wrote = bytearray(SIZE), 0
        for action, value in actions:
            if action in ("append", "last"):
                if wrote + len(value) > SIZE:
                    with pytest.raises(ValueError, match="do not fit"):
                        file.append(value)
                    continue
                model[wrote : wrote + len(value)] = value
                assert (file.append if action == "append" else file.append_last)(value) == wrote
                wrote = SIZE if action == "last" else wrote + len(value)
            elif action == "truncate":
                file.truncate(value)
                if buffered:  # uncommitted bytes are lost
                    model = bytearray(Path(file.path).read_bytes())
                    buffer[:] = model
                model[value:], wrote = bytes(SIZE - value), value
            else:
                getattr(file, action)(value)
            check(file, model, wrote, buffered)
        file.commit()
        assert Path(file.path).read_bytes() == model
        file.flush()
        assert positions(file) == (wrote, wrote, wrote)
        file.close()


def check(file, model, wrote, buffered):
    assert file.wrote_position == wrote
    assert file.is_full == (wrote == SIZE)
    assert file.flushed_position <= file.committed_position <= wrote
    assert buffered or file.committed_position == wrote
    with file.select(0) as view:
        assert view.tobytes() == model[: file.committed_position]


def test_least_pages_are_waited_for_unless_the_file_is_full(file):
    file.append(bytes(4096 + 100))
    assert file.flush(2) == 0
    assert file.flush(1) == 4196
    file.append(b"x")
    assert file.flush(1) == 4196
    assert file.flush() == 4197
    file.append_last(b"y")
    assert file.flush(9) == SIZE


def test_the_first_flush_forces_the_directory(file, monkeypatch):
    forced = []
    monkeypatch.setattr(module, "flush_directory", forced.append)
    assert file.flush() == 0
    assert forced == []
    for _ in range(2):
        file.append(b"x")
        file.flush()
    assert forced == [str(Path(file.path).parent)]


def test_writing_to_the_disk_begins_where_it_is_asked_to(file, monkeypatch):
    begun = []
    monkeypatch.setattr(module, "start_writeback", lambda *of: begun.append(of))
    file.append(bytes(9000))
    file.start_writeback(2000)
    assert begun == [(file.descriptor(), 2000, 7000)]
    assert file.flushed_position == 0


def test_a_flush_that_failed_is_never_taken_for_done(file, monkeypatch):
    file.append(b"x")

    def fails(_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(module, "sync_data", fails)
        with pytest.raises(StoreWriteError, match="Input/output error"):
            file.flush()
    file.append(b"y")
    with pytest.raises(StoreWriteError, match="Input/output error"):
        file.flush()
    assert file.flushed_position == 0
    again = MappedFile(file.path, SIZE)
    again.truncate(1)
    again.append(b"z")
    assert again.flush() == 2
    again.close()


def test_a_closed_file_is_neither_flushed_nor_committed(tmp_path):
    buffer = memoryview(bytearray(SIZE))
    file = MappedFile(str(tmp_path / NAME), SIZE, create=True, write_buffer=buffer)
    file.append(b"abc")
    assert file.commit() == 3
    file.append(b"d")
    file.close()
    assert (file.commit(), file.flush()) == (3, 0)


def test_only_readable_bytes_are_lent(file):
    file.append(b"abcdef")
    with file.select(1, 3) as view:
        assert view.tobytes() == b"bcd"
        assert not view.flags.writeable
    for position, length in [(0, 7), (-1, 2), (7, None), (3, -1)]:
        with file.select(position, length) as view:
            assert view is None


def test_a_file_may_be_destroyed_while_it_is_flushed(file, monkeypatch):
    """Unlike a file that something else deletes."""
    real = os.fstat

    def destroy_first(fd):
        monkeypatch.setattr(os, "fstat", real)
        file.destroy()
        return real(fd)

    file.append(b"x")
    monkeypatch.setattr(os, "fstat", destroy_first)
    assert file.flush() == 1


def test_a_held_file_stays_readable_when_it_is_destroyed(file):
    file.append(b"abc")
    with file.select(0) as view:
        file.destroy()
        assert not Path(file.path).exists()
        assert not file.is_available
        assert not file.hold()
        assert file._map is not None
        assert view.tobytes() == b"abc"
    assert file._map is None
    with file.select(0) as view:
        assert view is None
    file.destroy()


def test_nothing_is_appended_to_a_closed_file(file):
    file.close()
    with pytest.raises(StoreWriteError, match="was closed"):
        file.append(b"x")


@pytest.mark.usefixtures("by_calls")
def test_a_cut_leaves_nothing_behind_it_and_keeps_holes(file):
    file.append(bytes([7]) * 100)
    file.append(bytes(4096))
    file.append_last(b"blank")
    file.truncate(40)
    assert positions(file) == (40, 40, 40)
    assert Path(file.path).read_bytes() == bytes([7]) * 40 + bytes(SIZE - 40)
    assert Path(file.path).stat().st_blocks * 512 <= 2 * 4096


def test_a_cut_of_zeros_does_not_change_the_file(file):
    file.append(bytes([7]) * 100)
    os.utime(file.path, (5, 5))
    file.truncate(100)
    assert file.modified_ms() == 5000


@pytest.mark.usefixtures("by_calls")
def test_a_full_disk_leaves_the_file_as_it_was(file, monkeypatch):
    file.append(b"abc")
    real, calls = os.pwrite, []

    def fails_at_the_third_call(fd, data, at):
        calls.append(at)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(fd, data[: max(len(data) // 2, 1)], at)

    monkeypatch.setattr(os, "pwrite", fails_at_the_third_call)
    with pytest.raises(StoreWriteError, match="No space left on device: free space"):
        file.append(b"x" * 5000)
    assert file.wrote_position == 3
    assert Path(file.path).read_bytes() == b"abc" + bytes(SIZE - 3)
    monkeypatch.undo()
    assert file.append(b"def") == 3


@pytest.mark.usefixtures("by_calls")
def test_the_beginning_is_written_last_across_pages(file, monkeypatch):
    real, calls = os.pwrite, []
    monkeypatch.setattr(
        os, "pwrite", lambda fd, data, at: (calls.append((at, len(data))), real(fd, data, at))[1]
    )
    file.append(bytes(4096))
    file.append(bytes(4097))
    assert calls == [(0, 4096), (4104, 4089), (4096, 8)]


def test_wrong_files_are_refused(tmp_path, file):
    with pytest.raises(StoreWriteError, match="File exists"):
        MappedFile(file.path, SIZE, create=True)
    with pytest.raises(StoreFormatError, match=f"has {SIZE} bytes, not 5"):
        MappedFile(file.path, 5)
    with pytest.raises(StoreWriteError, match="No such file"):
        MappedFile(str(tmp_path / "no" / NAME), SIZE, create=True)
    with pytest.raises(StoreWriteError, match="No such file"):
        MappedFile(str(tmp_path / "00000000000000000000"), SIZE)
    with pytest.raises(ValueError, match="position"):
        file.truncate(SIZE + 1)


def test_what_waits_in_the_write_buffer_does_not_count_as_flushed(tmp_path):
    path = str(tmp_path / f"{0:020d}")
    file = MappedFile(path, 4096, create=True, write_buffer=memoryview(bytearray(4096)))
    file.append(b"a" * 100)
    file.store_timestamp = 10
    assert file.flushable_timestamp == 0
    file.commit()
    file.append(b"b" * 100)
    file.store_timestamp = 20
    assert file.flushable_timestamp == 10
    file.commit()
    assert file.flushable_timestamp == 20
    file.close()


@pytest.fixture
def fd(tmp_path):
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(opened, WINDOW_SIZE)
    yield opened
    os.close(opened)


@pytest.mark.parametrize("length", [1, 8, 9, 5000])
def test_what_is_written_is_in_the_file(fd, length):
    window, data = ReservedWindow(fd, WINDOW_SIZE), os.urandom(length)
    for at in (0, 4090, WINDOW_SIZE - length):
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
    window = ReservedWindow(fd, WINDOW_SIZE)
    assert window.write(0, memoryview(b"x" * 100))
    window.close()
    assert not window.write(0, memoryview(b"y" * 100))  # it may be another file's number by now
    assert os.pread(fd, 100, 0) == b"x" * 100


def test_memory_is_used_again_when_there_are_descriptors_again(fd, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    window = ReservedWindow(fd, WINDOW_SIZE)
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
    window = ReservedWindow(fd, WINDOW_SIZE)
    if code == errno.ENOSPC:
        with pytest.raises(OSError, match="No space"):
            window.write(0, memoryview(b"x" * 100))
    else:
        assert not window.write(0, memoryview(b"x" * 100))
    assert os.pread(fd, WINDOW_SIZE, 0).strip(b"\0") == b""


@pytest.fixture
def held(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc".ljust(MAP_SIZE, b"\0"))
    made = RefCountedMap(str(path), MAP_SIZE, os.open(path, os.O_RDWR))
    yield made
    made.close()


def is_open(held):
    try:
        held.descriptor()
    except StoreWriteError:
        return False
    return True


def test_the_last_release_of_a_closed_file_unmaps_it(held):
    assert held.hold()
    assert held.hold()
    assert held.mapped()[:3].tobytes() == b"abc"
    held.close()
    assert not held.is_available
    assert not held.hold()
    held.release()
    assert held.mapped()[:3].tobytes() == b"abc"
    held.release()
    assert not is_open(held)


def test_what_nobody_holds_is_unmapped_at_once(held):
    assert held.hold()
    held.mapped()
    held.release()
    assert is_open(held)
    held.close()
    held.close()
    assert not is_open(held)


def test_a_view_that_outlives_its_hold_stays_valid(held):
    assert held.hold()
    view = held.mapped()[:3]
    held.close()
    held.release()
    assert view.tobytes() == b"abc"


def test_a_file_that_became_shorter_is_an_error(held):
    os.truncate(held.path, 5)
    assert held.hold()
    with pytest.raises(StoreReadError, match="cannot be mapped"):
        held.mapped()
    held.release()


def test_no_thread_finds_it_closed_while_it_holds(held):
    failures, begun = [], threading.Barrier(5)

    def read():
        begun.wait()
        while held.hold():
            try:
                if held.mapped()[0] != ord("a") or not is_open(held):
                    failures.append("closed")
            finally:
                held.release()

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    for _ in range(200):
        assert held.hold()
        held.release()
    held.close()
    for thread in threads:
        thread.join()
    assert not failures
    assert not is_open(held)
