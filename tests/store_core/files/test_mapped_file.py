from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import store_core.files.mapped_file as module
from store_core.errors import StoreFormatError, StoreWriteError
from store_core.files import mapped_file
from store_core.files.mapped_file import MappedFile

SIZE = 3 * 4096
NAME = "00000000000000012288"


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
                if buffered:  # what was not committed before is lost
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
