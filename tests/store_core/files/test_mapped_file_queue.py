# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import StoreFormatError, StoreWriteError
from store_core.files.mapped_file_queue import MappedFileQueue
from tests.golden_store import golden

SIZE = 64
OPTION = "mappedFileSizeCommitLog"


def queue_in(directory, size=SIZE, **options):
    return MappedFileQueue([str(Path(directory) / "log")], size, option=OPTION, **options)


def fill(queue, count, start_offset=0):
    for number in range(count):
        queue.writable_file(start_offset).append_last(bytes([number + 1]) * 8)
    return queue


@pytest.fixture
def queue(tmp_path):
    made = queue_in(tmp_path)
    yield made
    made.close()


def names(queue):
    (directory,) = queue.directories
    return sorted(int(path.name) for path in Path(directory).iterdir())


def test_an_empty_queue(queue):
    assert (queue.min_offset, queue.max_offset, queue.first, queue.last) == (-1, 0, None, None)
    assert queue.find(0) is None
    assert queue.flush()
    assert queue.commit()
    queue.load()
    assert queue.mapped_files == ()


def test_files_follow_each_other_and_are_found(queue):
    fill(queue, 3, start_offset=130)
    assert names(queue) == [128, 192, 256]
    assert (queue.min_offset, queue.max_offset) == (128, 320)
    assert [queue.find(o) for o in (127, 320)] == [None, None]
    assert [queue.find(o).file_from_offset for o in (128, 191, 192, 319)] == [128, 128, 192, 256]


def test_files_are_found_around_a_hole(queue):
    fill(queue, 4)
    Path(queue.mapped_files[1].path).unlink()
    queue.close()
    queue.load()
    found = [queue.find(o) for o in (0, 63, 64, 127, 128, 255, 256)]
    assert [f and f.file_from_offset for f in found] == [0, 0, None, None, 128, 192, None]


def test_a_file_that_cannot_be_deleted_stays_in_the_queue(queue, monkeypatch):
    fill(queue, 2)

    def refuses(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "unlink", refuses)
    with pytest.raises(StoreWriteError, match="Permission denied"):
        queue.delete_files_before(64)
    assert queue.min_offset == 0
    with queue.first.select(0, 1) as view:
        assert view.tobytes() == b"\1"


def test_flush_goes_file_by_file(queue):
    fill(queue, 2)
    queue.writable_file().append(b"abc")
    queue.mapped_files[0].store_timestamp = 77
    assert [(queue.flush(), queue.flushed_where) for _ in range(4)] == [
        (False, 64),
        (False, 128),
        (False, 131),
        (True, 131),
    ]
    assert queue.store_timestamp == 0  # of the last file


def test_flush_starts_where_a_log_begins_that_was_cleaned(queue):
    fill(queue, 3)
    queue.delete_files_before(128)
    assert not queue.flush()
    assert queue.flushed_where == 192


def test_a_write_buffer_is_committed_first(queue):
    file = queue.writable_file()
    file._buffer = memoryview(bytearray(SIZE))
    file.append(b"abc")
    assert (queue.max_offset, queue.max_wrote_offset) == (0, 3)
    assert queue.flush()
    assert not queue.commit()
    assert (queue.committed_where, queue.max_offset) == (3, 3)
    assert queue.commit()


actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 40)),
        st.tuples(st.just("cut"), st.integers(0, 400)),
        st.tuples(st.just("before"), st.integers(0, 400)),
        st.tuples(st.just("reload"), st.none()),
    ),
    max_size=25,
)


@given(actions)
def test_equals_a_bytearray(steps):
    with tempfile.TemporaryDirectory() as directory:
        queue, model, begin = queue_in(directory), bytearray(), 0
        for action, value in steps:
            end = len(model)
            if action == "append":
                left = SIZE - end % SIZE if end % SIZE or not queue.last else 0
                if 0 < left < value:
                    queue.writable_file().append_last(b"")
                    model += bytes(left)
                file = queue.writable_file(begin)
                at = file.file_from_offset + file.append(bytes([value]) * value)
                assert at == len(model)
                model += bytes([value]) * value
            elif action == "cut" and begin <= value <= end:
                queue.truncate_dirty_files(value)
                del model[value:]
            elif action == "before":
                queue.delete_files_before(value)
                begin = max(queue.min_offset, 0)
            elif action == "reload":
                queue.close()
                queue = queue_in(directory)
                queue.load()
                queue.truncate_dirty_files(end)
            check(queue, model, begin)
        queue.destroy()
        assert not any(Path(directory).rglob("0*"))


def check(queue, model, begin):
    files = queue.mapped_files
    assert [f.file_from_offset for f in files] == list(
        range(begin, begin + len(files) * SIZE, SIZE)
    )
    assert queue.max_offset == (len(model) if files else 0)
    data = b"".join(Path(f.path).read_bytes() for f in files)
    expected = bytes(model[begin:])
    assert data == expected.ljust(len(data), b"\0")[: len(data)]


def test_expired_files_go_by_age_but_never_the_last(queue):
    fill(queue, 4)
    for file, second in zip(queue.mapped_files, [10, 20, 15, 5]):
        os.utime(file.path, (second, second))
    assert queue.delete_expired_files(25_999, 16_000) == 0
    assert queue.delete_expired_files(26_000, 16_000) == 1
    assert names(queue) == [64, 128, 192]  # 64 is too young, 128 after it stays
    assert queue.delete_expired_files(0, 1, immediately=True, batch_max=1) == 1
    assert queue.delete_expired_files(0, 1, immediately=True) == 1
    assert queue.delete_expired_files(0, 1, immediately=True) == 0
    assert names(queue) == [192]


def test_directories_of_a_multi_path_log(tmp_path):
    store = golden("multipath-5x")
    dirs = store.config["commitlog_dirs"]
    made = MappedFileQueue([str(tmp_path / d) for d in dirs], 32768, option=OPTION)
    segments = [p for p in store.root.rglob("*") if p.parent.name == "commitlog" and p.is_file()]
    for path in segments:
        expected = tmp_path / path.parent.relative_to(store.root)
        assert made.directory_of(int(path.name)) == str(expected)
    assert len(segments) == 6


def test_full_and_read_only_directories_get_no_new_file():
    made = MappedFileQueue(
        ["/b", "/a", "/c"], SIZE, option=OPTION, read_only_directories={"/c", "/d"}
    )
    assert [made.directory_of(o) for o in (0, 64, 128)] == ["/a", "/b", "/a"]
    made.full_directories = frozenset({"/a"})
    assert [made.directory_of(o) for o in (0, 64)] == ["/b", "/b"]
    made.full_directories = frozenset({"/a", "/b"})
    assert [made.directory_of(o) for o in (0, 64)] == ["/a", "/b"]


def test_loads_all_directories(tmp_path):
    store = golden("multipath-5x")
    shutil.copytree(store.root, tmp_path / "store")
    dirs = [str(tmp_path / "store" / d) for d in store.config["commitlog_dirs"]]
    made = MappedFileQueue(dirs[:2], 32768, option=OPTION, read_only_directories=dirs[2:])
    made.load()
    assert (made.min_offset, made.max_offset, len(made.mapped_files)) == (0, 6 * 32768, 6)
    assert made.flushed_where == made.committed_where == 6 * 32768
    made.close()


def test_an_empty_last_file_is_deleted_at_load(queue):
    fill(queue, 2)
    queue.close()
    (directory,) = queue.directories
    Path(directory, f"{128:020d}").touch()
    Path(directory, "notes").touch()
    queue.load()
    assert sorted(path.name for path in Path(directory).iterdir()) == [
        f"{0:020d}",
        f"{64:020d}",
        "notes",
    ]
    assert len(queue.mapped_files) == 2


def test_a_file_of_another_length_is_refused(queue):
    fill(queue, 2)
    queue.close()
    (directory,) = queue.directories
    with Path(directory, f"{64:020d}").open("ab") as file:
        file.write(b"x")
    with pytest.raises(StoreFormatError, match=f"65 bytes, but {OPTION} is 64"):
        queue.load()
    with pytest.raises(ValueError, match="file size"):
        queue_in(directory, 0)


def test_a_file_that_cannot_be_opened_leaves_none_open(queue):
    fill(queue, 2)
    queue.close()
    (directory,) = queue.directories
    last = Path(directory, f"{64:020d}")
    last.rename(Path(directory, "elsewhere"))
    last.symlink_to("elsewhere")
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises((StoreFormatError, StoreWriteError)):
        queue.load()
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert queue.mapped_files == ()
