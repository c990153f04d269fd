from __future__ import annotations

import sys

import pytest

from store_core.files.store_directory import StoreDirectory
from store_core.state.running_flags import RunningFlag, RunningFlags
from store_core.state.store_state import StoreState, store_state, written_by_5x
from tests.golden_store import golden, tree_state
from tests.store_core.log.test_log_end import lock_held
from tests.store_core.remote import RemoteDirectory
from tests.store_factory import small_store


@pytest.fixture
def store(tmp_path):
    return small_store(tmp_path / "store", 3)


def state(root):
    return store_state(StoreDirectory(str(root)))


def test_abort_tells_a_crash_from_a_clean_stop(store):
    assert state(store.write()) is StoreState.STOPPED
    assert state(store.write(abort=b"")) is StoreState.CRASHED


@pytest.mark.skipif(sys.platform != "linux", reason="locks are asked for on Linux only")
def test_a_held_lock_tells_a_broker_at_work(store):
    root = store.write(abort=b"77")
    before = tree_state(root)
    with lock_held(root):
        assert state(root) is StoreState.LIVE
        assert store_state(RemoteDirectory(str(root))) is StoreState.CRASHED  # not to be known
        assert tree_state(root) == before
    assert state(root) is StoreState.CRASHED


def test_a_lock_without_abort_is_not_asked(store):
    root = store.write()
    (root / "lock").unlink()
    assert state(root) is StoreState.STOPPED
    (root / "abort").write_bytes(b"")
    assert state(root) is StoreState.CRASHED


def test_5x_writes_its_process_id(store):
    directory = StoreDirectory(str(store.write()))
    assert not written_by_5x(directory)
    store.write(abort=b"")
    assert not written_by_5x(directory)
    store.write(abort=b"4711")
    assert written_by_5x(directory)
    (store.root / "abort").unlink()
    (store.root / "abort.bak").write_bytes(b"")
    assert written_by_5x(directory)


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "crashed-5x"])
def test_golden_stores(name):
    expected = StoreState.CRASHED if name.startswith("crashed") else StoreState.STOPPED
    assert state(golden(name).root) is expected


@pytest.mark.parametrize(
    ("flag", "bit", "allowed"),
    [
        (RunningFlag.NOT_READABLE, 1, (False, True, True)),
        (RunningFlag.NOT_WRITEABLE, 2, (True, False, False)),
        (RunningFlag.WRITE_LOGICS_QUEUE_ERROR, 4, (True, False, False)),
        (RunningFlag.WRITE_INDEX_FILE_ERROR, 8, (True, False, False)),
        (RunningFlag.DISK_FULL, 16, (True, False, True)),
        (RunningFlag.FENCED, 32, (True, False, True)),
        (RunningFlag.LOGIC_DISK_FULL, 64, (True, False, False)),
    ],
)
def test_what_a_flag_forbids(flag, bit, allowed):
    flags = RunningFlags()
    assert (flags.is_readable, flags.is_writeable, flags.is_cq_writeable) == (True, True, True)
    assert flags.set(flag)
    assert not flags.set(flag)
    assert flags.flags == bit
    assert (flags.is_readable, flags.is_writeable, flags.is_cq_writeable) == allowed
    assert flags.clear(flag)
    assert not flags.clear(flag)
    assert flags.is_writeable


def test_flags_do_not_clear_each_other():
    flags = RunningFlags()
    flags.set(RunningFlag.DISK_FULL)
    flags.set(RunningFlag.FENCED)
    flags.clear(RunningFlag.DISK_FULL)
    assert flags.flags == RunningFlag.FENCED
    assert not flags.is_writeable
