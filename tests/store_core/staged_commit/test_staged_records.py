# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import StoreFormatError, StoreReadError, StoreWriteError
from store_core.staged_commit import staged_part_writer, staged_records
from store_core.staged_commit.staged_part import StagedPart
from store_core.staged_commit.staged_records import (
    FileDeleter,
    StagedRecordsReader,
    StagedRecordsWriter,
)
from tests.store_core.staged_commit.support import commit, messages, stage, staged_job

NAME = "part-000000-" + "a" * 32
BODIES = [b"%d" % i for i in range(50)]


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    monkeypatch.setattr(staged_records, "CHUNK_BYTES", 100)
    monkeypatch.setattr(staged_records, "FILE_BYTES", 300)


def block_of(sizes, seed=0):
    data = np.random.default_rng(seed).integers(0, 256, sum(sizes), dtype=np.uint8)
    return data, np.array(sizes, np.int64)


def written(directory, blocks, *, is_forced=False):
    directory.mkdir(exist_ok=True)
    with closing(StagedRecordsWriter(str(directory), NAME, is_forced=is_forced)) as writer:
        for data, sizes in blocks:
            writer.write(data, sizes)
        chunks = writer.finish()
    return StagedPart(
        partition_id=0,
        directory=str(directory),
        name=NAME,
        rows_bytes=0,
        rows_checksum=0,
        messages=sum(chunk.messages for chunk in chunks),
        chunks=chunks,
        queues=(),
    )


def read(part, deleter=None):
    with StagedRecordsReader(part, deleter) as reader:
        data = [reader.read(chunk).tobytes() for chunk in part.chunks]
        reader.end()
    return data


def files_in(directory):
    return sorted(path.name.rpartition(NAME)[2] for path in directory.iterdir())


@pytest.mark.parametrize("is_forced", [False, True])
@given(blocks=st.lists(st.lists(st.integers(1, 250), min_size=1, max_size=20), max_size=6))
def test_what_is_read_is_what_was_written(tmp_path_factory, is_forced, blocks):
    directory = tmp_path_factory.mktemp("part")
    made = [block_of(sizes, seed) for seed, sizes in enumerate(blocks)]
    part = written(directory, made, is_forced=is_forced)
    whole = b"".join(data.tobytes() for data, _ in made)
    assert b"".join(read(part)) == whole
    assert part.records_bytes == len(whole)
    sizes = [size for block in blocks for size in block]
    ends = np.cumsum([chunk.messages for chunk in part.chunks]).tolist()
    for chunk, first, stop in zip(part.chunks, [0, *ends], ends):
        assert chunk.bytes == sum(sizes[first:stop])
        assert chunk.bytes <= 100 or chunk.messages == 1
    numbers = [chunk.file for chunk in part.chunks]
    assert numbers == sorted(numbers)
    for number in range(len(set(numbers)) - 1):
        assert 300 <= Path(part.records_path(number)).stat().st_size < 300 + 250


def test_files_go_when_they_are_read_and_not_before(tmp_path):
    part = written(tmp_path / "j", [block_of([50] * 20)])
    assert files_in(tmp_path / "j") == [f".{n:05d}.records" for n in range(4)]
    assert len(read(part)) == 10
    assert len(files_in(tmp_path / "j")) == 4
    with FileDeleter() as deleter, StagedRecordsReader(part, deleter) as reader:
        for chunk in part.chunks:
            reader.read(chunk)
            assert f".{chunk.file:05d}.records" in files_in(tmp_path / "j")
            assert len(files_in(tmp_path / "j")) <= 5 - chunk.file  # one is being deleted
        reader.end()
    assert files_in(tmp_path / "j") == []


def test_a_file_is_deleted_while_the_next_is_read(tmp_path, monkeypatch):
    unlink, begun, may_end = staged_records.os.unlink, threading.Event(), threading.Event()

    def wait_and_unlink(path):
        begun.set()
        assert may_end.wait(30)
        unlink(path)

    monkeypatch.setattr(staged_records.os, "unlink", wait_and_unlink)
    part = written(tmp_path / "j", [block_of([50] * 20)])
    with FileDeleter() as deleter, StagedRecordsReader(part, deleter) as reader:
        for chunk in part.chunks:
            # The first is being deleted, the second was read.
            if chunk.file > 1 and not may_end.is_set():
                assert begun.wait(30)
                assert len(files_in(tmp_path / "j")) >= 3
                may_end.set()
            reader.read(chunk)
        reader.end()
    assert files_in(tmp_path / "j") == []


def test_a_file_system_may_give_a_few_bytes_at_a_time(tmp_path, monkeypatch):
    data, sizes = block_of([50] * 20)
    part, preadv = written(tmp_path / "j", [(data, sizes)]), staged_records.os.preadv
    monkeypatch.setattr(
        staged_records.os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:7]], at)
    )
    assert b"".join(read(part)) == data.tobytes()


def test_a_file_that_cannot_be_deleted_stays(tmp_path, monkeypatch):
    part = written(tmp_path / "j", [block_of([50] * 20)])

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(staged_records.os, "unlink", refuse)
    with FileDeleter() as deleter:
        assert len(read(part, deleter)) == 10
    assert len(files_in(tmp_path / "j")) == 4


@pytest.mark.parametrize("damage", ["zeros", "one bit", "cut", "longer file before", "gone"])
def test_what_is_not_what_was_written_is_refused(tmp_path, damage):
    part = written(tmp_path / "j", [block_of([50] * 20)])
    path = Path(part.records_path(1))
    data = bytearray(path.read_bytes())
    if damage == "zeros":
        data[120:140] = bytes(20)
    elif damage == "one bit":
        data[199] ^= 16
    elif damage == "cut":
        del data[-1]
    elif damage == "longer file before":
        data[:0] = b"x"
    path.write_bytes(data)
    if damage == "gone":
        path.unlink()
    expected = StoreReadError if damage == "gone" else StoreFormatError
    with pytest.raises(expected) as raised:
        read(part)
    assert raised.value.path == str(path)


def test_a_file_is_forced_while_the_next_is_written(tmp_path, monkeypatch):
    forced, begun, may_end = [], threading.Event(), threading.Event()

    def force(fd):
        forced.append(fd)
        begun.set()
        assert may_end.wait(30)

    monkeypatch.setattr(staged_records, "sync_data", force)
    (tmp_path / "j").mkdir()
    writer = StagedRecordsWriter(str(tmp_path / "j"), NAME, is_forced=True)
    with closing(writer):
        writer.write(*block_of([50] * 8))  # the second file has begun, the first is being forced
        assert begun.wait(30)
        assert len(forced) == 1
        may_end.set()
        writer.finish()
    assert len(forced) == 2


@pytest.mark.parametrize("count", [1, 50])
def test_a_disk_that_fails_to_take_records_fails_the_task(tmp_path, monkeypatch, count):
    def fail(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(staged_part_writer, "is_on_this_machine", lambda _: False)
    monkeypatch.setattr(staged_records, "sync_data", fail)
    with pytest.raises(StoreWriteError, match=r"\.records: Input/output error"):
        stage(tmp_path / "j", 3, BODIES[:count])


@pytest.mark.parametrize("here", [False, True])
def test_only_what_another_machine_may_read_is_forced(tmp_path, monkeypatch, here):
    forced = []
    monkeypatch.setattr(staged_part_writer, "is_on_this_machine", lambda _: here)
    monkeypatch.setattr(staged_records, "sync_data", forced.append)
    for name in ("sync_file", "flush_directory"):
        monkeypatch.setattr(staged_part_writer, name, forced.append)
    part = stage(tmp_path / "j", 3, BODIES)
    files = part.chunks[-1].file + 1
    assert files > 3
    if here:
        assert forced == []
    else:
        assert len(forced) == files + 2
        assert forced[-2:] == [part.rows_path, part.directory]


@pytest.mark.parametrize("at", [0, 1500])
def test_records_that_changed_since_are_not_committed(tmp_path, at):
    commit(tmp_path, *staged_job(tmp_path, "before", [BODIES[:3]]))
    before = messages(tmp_path)
    job, directory = staged_job(tmp_path, "j", [BODIES])
    chunks = np.cumsum([chunk.bytes for chunk in job.parts[0].chunks])
    number = job.parts[0].chunks[int(np.searchsorted(chunks, at))].file
    path = Path(job.parts[0].records_path(number))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreFormatError, match="not what a task staged"):
        commit(tmp_path, job, directory, clean=True)
    assert messages(tmp_path) == before
