# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreWriteError
from store_core.files.mapped_file import MappedFile
from store_core.services.allocate_mapped_file import AllocateMappedFileService, TransientStorePool
from tests.store_core.services.growing_log import GrowingLog

SIZE = 1024


@pytest.fixture
def service(log):
    """Return a service that counts as running; tests call run_once."""
    made = AllocateMappedFileService(SIZE, MessageStoreConfig())
    made._thread = threading.Thread()
    log.queue.allocate = made.allocate
    return made


def names(log):
    (directory,) = log.queue.directories
    return sorted(int(path.name) for path in Path(directory).iterdir())


def test_the_next_segment_is_there_before_it_is_needed(log, service):
    log.add(600)
    assert names(log) == [0]
    assert service.run_once()
    assert not service.run_once()
    assert names(log) == [0, 1024]
    assert Path(log.queue.directories[0], f"{1024:020d}").read_bytes() == bytes(1024)
    ready = service._ready
    log.add(600)
    assert log.queue.last is ready
    assert service.run_once()
    assert names(log) == [0, 1024, 2048]
    assert log.queue.max_offset == 1024 + 692


def test_a_segment_that_is_not_ready_is_made_at_once(log, service):
    log.add(600, 600, 600)
    assert names(log) == [0, 1024, 2048]
    assert service.run_once()
    assert names(log) == [0, 1024, 2048, 3072]


def test_two_threads_do_not_make_the_same_segment(log, service, monkeypatch):
    log.add(600)
    make = service._make

    def meanwhile(path):
        monkeypatch.setattr(service, "_make", make)
        assert not service.run_once()
        return make(path)

    monkeypatch.setattr(service, "_make", meanwhile)
    log.add(600)
    assert names(log) == [0, 1024]


def test_the_end_deletes_what_was_not_used(log, service):
    log.add(1)
    service.run_once()
    service.finish()
    service.finish()
    assert names(log) == [0]


def test_a_segment_that_a_crash_left_is_of_no_harm(log, service):
    end = log.add(1)
    service.run_once()
    log.queue.close()
    log.queue.load()
    assert log.queue.max_offset == 2048
    log.queue.truncate_dirty_files(end)
    assert names(log) == [0]
    service.allocate(f"{log.queue.directories[0]}/{1024:020d}", "2048").close()


def test_a_log_that_goes_on_elsewhere(tmp_path):
    log = GrowingLog(tmp_path / "a", SIZE)
    log.queue.directories = (str(tmp_path / "a"), str(tmp_path / "b"))
    service = AllocateMappedFileService(SIZE, MessageStoreConfig())
    service._thread = threading.Thread()
    log.queue.allocate = service.allocate
    log.add(600)
    service.run_once()
    assert (tmp_path / "b" / f"{1024:020d}").exists()
    log.queue.full_directories = frozenset({str(tmp_path / "b")})
    log.add(600)
    assert not list((tmp_path / "b").iterdir())
    assert len(list((tmp_path / "a").iterdir())) == 2
    log.queue.destroy()


def test_a_failure_ahead_of_need_does_not_stop_the_log(log, service, monkeypatch):
    log.add(600)

    def fails(self, _):
        raise StoreWriteError("No space left on device", self.path)

    monkeypatch.setattr(MappedFile, "warm_up", fails)
    service._warms = True
    with pytest.raises(StoreWriteError, match="No space"):
        service.run_once()
    assert names(log) == [0]
    log.add(600)
    assert names(log) == [0, 1024]


def test_a_segment_in_the_making_is_waited_for(log, monkeypatch):
    begun, may_go_on = threading.Event(), threading.Event()

    def slow(*_):
        begun.set()
        assert may_go_on.wait(10)

    monkeypatch.setattr(MappedFile, "warm_up", slow)
    service = AllocateMappedFileService(SIZE, MessageStoreConfig(warm_maped_file_enable=True))
    log.queue.allocate = service.allocate
    service.start()
    log.add(600)
    assert begun.wait(10)
    monkeypatch.setattr("store_core.services.allocate_mapped_file._WAIT_S", 0.001)
    with pytest.raises(StoreWriteError, match="not created within"):
        log.add(600)
    monkeypatch.setattr("store_core.services.allocate_mapped_file._WAIT_S", 10)
    threading.Timer(0.01, may_go_on.set).start()
    log.add(600)
    service.shutdown()
    assert names(log)[:2] == [0, 1024]
    assert len(log.queue.mapped_files) == len(names(log)) == 2


@pytest.mark.parametrize(("flush_type", "syncs"), [("ASYNC_FLUSH", 0), ("SYNC_FLUSH", 2)])
def test_warm_up_takes_the_blocks_and_leaves_zeros(tmp_path, monkeypatch, flush_type, syncs):
    size = 2 << 20
    config = MessageStoreConfig(
        warm_maped_file_enable=True,
        flush_disk_type=flush_type,
        flush_least_pages_when_warm_maped_file=256,
    )
    calls = []
    monkeypatch.setattr(os, "fdatasync", calls.append)
    service = AllocateMappedFileService(size, config)
    service._wanted = str(tmp_path / f"{0:020d}")
    assert service.run_once()
    path = Path(service._ready.path)
    assert path.stat().st_blocks * 512 >= size
    assert path.read_bytes() == bytes(size)
    assert (len(calls), service._ready.wrote_position) == (syncs, 0)
    service._ready.append(b"x")
    with pytest.raises(ValueError, match="1 bytes were already appended"):
        service._ready.warm_up(None)
    service.finish()
    assert not path.exists()


def test_buffers_come_back(log):
    pool = TransientStorePool(2, SIZE)
    service = AllocateMappedFileService(SIZE, MessageStoreConfig(), pool)
    service._thread = threading.Thread()
    log.queue.allocate = service.allocate
    log.add(600)
    service.run_once()
    assert pool.available == 0
    log.add(600)
    assert pool.available == 0
    log.queue.commit()  # the first segment
    assert pool.available == 1
    service.finish()
    Path(log.queue.directories[0], f"{2048:020d}").touch()
    with pytest.raises(StoreWriteError, match="exists"):
        log.add(600)
    assert pool.available == 1
    log.queue.destroy()
    assert pool.available == 2


def test_buffers_are_borrowed_until_none_is_left(caplog):
    pool = TransientStorePool(2, 4096)
    first, second = pool.borrow(), pool.borrow()
    assert len(first) == len(second) == 4096
    assert (pool.borrow(), pool.available) == (None, 0)
    assert "in use" in caplog.text
    first[:3] = b"abc"
    pool.give_back(first)
    assert pool.borrow()[:3].tobytes() == b"abc"
    pool.close()
    pool.give_back(second)
    assert (pool.available, pool.borrow()) == (0, None)


def test_a_file_gives_its_buffer_back_when_it_is_written_or_closed(tmp_path):
    pool = TransientStorePool(1, 16)

    def file(offset):
        return MappedFile(
            str(tmp_path / f"{offset:020d}"),
            16,
            create=True,
            write_buffer=pool.borrow(),
            give_back=pool.give_back,
        )

    full = file(0)
    full.append(b"0123456789abcdef")
    assert pool.available == 0
    assert full.commit() == 16
    assert pool.available == 1
    assert Path(full.path).read_bytes() == b"0123456789abcdef"
    full.close()
    short = file(16)
    short.append(b"xyz")  # the rest of the buffer belongs to the file before
    short.append_last(b"-")
    short.commit()
    assert Path(short.path).read_bytes() == b"xyz-" + bytes(12)
    short.close()
    held = file(32)
    held.append(b"a")
    assert held.hold()
    held.close()
    assert pool.available == 0
    held.release()
    assert pool.available == 1
    with pytest.raises(StoreWriteError, match="was closed"):
        held.append(b"b")
