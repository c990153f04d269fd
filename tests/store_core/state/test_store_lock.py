from __future__ import annotations

import os
import subprocess
import sys

import pytest

from store_core.errors import StoreLockedError, StoreWriteError
from store_core.files.store_directory import StoreDirectory
from store_core.state.store_lock import StoreLock
from store_core.state.store_state import StoreState, store_state

_TRY = """
import fcntl, sys
with open(sys.argv[1], "rb+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        print("locked")
    else:
        print("free")
"""
_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "ab+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def seen_by_others(path):
    done = subprocess.run(
        [sys.executable, "-c", _TRY, str(path)], stdout=subprocess.PIPE, check=True, text=True
    )
    return done.stdout.strip()


def test_others_see_the_lock_until_it_is_released(tmp_path):
    with StoreLock(str(tmp_path / "store")) as lock:
        path = tmp_path / "store" / "lock"
        assert lock.is_held
        assert path.read_bytes() == b"lock"
        # reading the file above closed a descriptor of it; take a new lock to look at that alone
    assert not lock.is_held
    with StoreLock(str(tmp_path / "store")):
        assert seen_by_others(path) == "locked"
    assert seen_by_others(path) == "free"
    assert path.read_bytes() == b"lock"


def test_a_second_store_of_the_process_is_refused_and_takes_nothing_away(tmp_path):
    with StoreLock(str(tmp_path)):
        with pytest.raises(StoreLockedError, match="of this process"):
            StoreLock(str(tmp_path / ".." / tmp_path.name)).acquire()
        assert seen_by_others(tmp_path / "lock") == "locked"
    with StoreLock(str(tmp_path)):
        pass


def test_looking_at_the_state_keeps_the_lock(tmp_path):
    directory = StoreDirectory(str(tmp_path))
    with StoreLock(str(tmp_path)) as lock:
        assert store_state(directory) is StoreState.STOPPED
        lock.create_abort()
        assert store_state(directory) is StoreState.LIVE
        assert seen_by_others(tmp_path / "lock") == "locked"
    assert store_state(directory) is StoreState.CRASHED


def test_a_forked_child_does_not_count_as_the_holder(tmp_path):
    with StoreLock(str(tmp_path)):
        child = os.fork()
        if child == 0:
            try:
                StoreLock(str(tmp_path)).acquire()
            except StoreLockedError as err:
                os._exit(0 if "of this process" not in str(err) else 1)
            except BaseException:  # the child must not return to pytest
                os._exit(2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("pid", ["own", "gone", None])
def test_the_error_says_who_has_it(tmp_path, pid):
    text = {"own": str(os.getpid()), "gone": "2147483600", None: ""}[pid]
    (tmp_path / "abort").write_text(text)
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreLockedError) as caught:
            StoreLock(str(tmp_path)).acquire()
        holder.stdin.close()
    assert "stop that broker first" in str(caught.value)
    assert (f"process {os.getpid()} has this" in str(caught.value)) == (pid == "own")
    assert ("does not run" in str(caught.value)) == (pid == "gone")
    with StoreLock(str(tmp_path)):  # the holder has gone
        pass


def test_abort_names_the_process(tmp_path):
    lock = StoreLock(str(tmp_path))
    assert not lock.is_aborted()
    (tmp_path / "abort").write_text("123456789012345")
    lock.create_abort()
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    assert lock.is_aborted()
    lock.remove_abort()
    lock.remove_abort()
    assert not (tmp_path / "abort").exists()


def test_a_lock_file_that_cannot_be_looked_at_is_named_and_not_held(tmp_path, monkeypatch):
    lock, true = StoreLock(str(tmp_path)), os.fstat
    with monkeypatch.context() as patch:

        def fails(fd):
            if lock_text(fd):
                raise OSError(5, "Input/output error")
            return true(fd)

        def lock_text(fd):
            path = tmp_path / "lock"
            return path.exists() and os.path.samestat(true(fd), path.stat()) and path.stat().st_size

        patch.setattr(os, "fstat", fails)
        with pytest.raises(StoreWriteError, match="lock: Input/output error"):
            lock.acquire()
    assert not lock.is_held
    assert seen_by_others(tmp_path / "lock") == "free"
