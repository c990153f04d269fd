# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from store_core.commit_job import open_for_commit
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreLockedError, StoreWriteError
from store_core.files.store_directory import StoreDirectory
from store_core.layout import CQ_UNIT
from store_core.message import Message
from store_core.message_store import MessageStore
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.staged_commit.staging import CrashPoints
from store_core.state.store_lock import StoreLock, refuse_links_out
from store_core.state.store_state import StoreState, store_state
from store_core.tools.repair.rebuild_in_place import rebuild_index_in_place, rebuild_queues_in_place
from store_core.tools.repair.store_recovery import recover_store
from tests.golden_store import tree_state
from tests.store_factory import small_store

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
CONFIG = {"max_hash_slot_num": 8, "max_index_num": 64, "mapped_file_size_commit_log": 4096}
PLACES = ["commitlog", "consumequeue", "index", "config", "consumequeue/TopicA"]


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
        # reading the file above closed a descriptor of it; take a new lock to test that alone
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
    assert ("is not running" in str(caught.value)) == (pid == "gone")
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


PLACES += ["consumequeue/TopicA/0"]


def config(root, **more):
    return MessageStoreConfig(store_path_root_dir=str(root), **CONFIG, **more)


def files_of(store):
    """Return the content of each file, including those that a link may lead to."""
    return {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}


@pytest.fixture
def store(tmp_path):
    return small_store(tmp_path / "store", 40).write(abort=b"1")


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_written_through_a_link_out_of_the_store(place, store, tmp_path):
    # As `cp -a` of a store whose administrator moved a directory to another disk.
    shutil.move(store / place, tmp_path / "elsewhere")
    (store / place).symlink_to(tmp_path / "elsewhere")
    before = tree_state(tmp_path)
    with pytest.raises(StoreWriteError, match="is a link that leads out of the store") as told:
        MessageStore(config(store)).load()
    assert told.value.path == str(store / place)
    assert str(tmp_path / "elsewhere") in str(told.value)
    assert tree_state(tmp_path) == before
    with StoreSnapshot(store, config(store)) as snapshot:
        assert snapshot.end_offset > 0, "reading goes through links"


@pytest.mark.parametrize("target", ["store/moved", "moved", "nowhere"])
def test_a_checkpoint_that_cannot_be_written_is_told_at_the_opening(target, store, tmp_path):
    # Noticed at shutdown, after messages were put, it would leave the store as after a crash.
    (store / "checkpoint").rename(store / "moved")
    shutil.copy(store / "moved", tmp_path / "moved")
    (store / "checkpoint").symlink_to(tmp_path / target)
    before = files_of(store)
    with pytest.raises(StoreWriteError, match=f"checkpoint: is a link to .*/{target}"):
        MessageStore(config(store)).load()
    assert files_of(store) == before


@pytest.mark.parametrize("target", ["TopicB/0/00000000000000000000", "../../outside"])
def test_a_queue_that_cannot_be_written_is_told_before_anything_is_changed(target, tmp_path):
    # Noticed when recovery cuts or dispatches, it would leave the store as after a crash.
    store = small_store(tmp_path / "store", 40).write()
    queue = store / "consumequeue/TopicA/0"
    last = max(queue.iterdir())
    last.rename(tmp_path / "outside")
    last.symlink_to(store / "consumequeue" / target)
    before = files_of(store)
    with pytest.raises(StoreWriteError, match=f"{last.name}: is a link to"):
        MessageStore(config(store)).load()
    assert files_of(store) == before


def test_an_abort_that_cannot_be_removed_is_told_at_the_opening(store):
    (store / "abort").unlink()
    (store / "abort").mkdir()
    with pytest.raises(StoreWriteError, match=r"abort: is a directory.*move it away"):
        MessageStore(config(store)).load()
    assert (store / "abort").is_dir()


@pytest.mark.parametrize("place", PLACES)
def test_links_inside_of_the_store_are_no_matter(place, store):
    shutil.move(store / place, store / "moved")
    (store / place).symlink_to(store / "moved")
    refuse_links_out(str(store))


def test_a_root_behind_a_link(store, tmp_path):
    (tmp_path / "link").symlink_to(store)
    refuse_links_out(str(tmp_path / "link"))


def test_the_log_elsewhere_can_be_named(store, tmp_path):
    shutil.move(store / "commitlog", tmp_path / "elsewhere")
    named = config(store, store_path_commit_log=str(tmp_path / "elsewhere"))
    with MessageStore(named) as opened:
        assert opened.max_phy_offset > 0


WAYS = {
    "load": lambda root: MessageStore(config(root)).load(),
    "recover": lambda root: recover_store(str(root), config(root), clock=lambda: 0),
    "commit": lambda root: open_for_commit(str(root), config(root), lambda: 0, CrashPoints()),
    "rebuild queues": lambda root: rebuild_queues_in_place(str(root), config(root)),
    "rebuild index": lambda root: rebuild_index_in_place(str(root), config(root), clock=lambda: 0),
}


ZERO = f"{0:020d}"


def store_units(queue):
    data = np.frombuffer(queue.read_bytes(), CQ_UNIT)
    return data[data["message_size"] > 0]


def snapshot_of(store, target, only=""):
    """Link a store's files into another directory, as `cp -al` does; or link one, copy others."""

    def put(source, to):
        is_linked = not only or source == str(store / only)
        return (os.link if is_linked else shutil.copy2)(source, to)

    shutil.copytree(store, target, copy_function=put)
    return target


@pytest.mark.parametrize("done", list(WAYS))
@pytest.mark.parametrize("is_clean", [False, True])
def test_nothing_is_written_through_hard_links(done, is_clean, store, tmp_path):
    if is_clean:
        with MessageStore(config(store)):
            pass
    snapshot_of(store, tmp_path / "backup")
    before = tree_state(tmp_path)
    with pytest.raises(StoreWriteError, match=r"has 2 names \(hard links\).*cp -a") as told:
        WAYS[done](store)
    assert Path(told.value.path).parent in (store, store / "commitlog", store / "index")
    assert tree_state(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["lock", "checkpoint", f"commitlog/{ZERO}", f"consumequeue/TopicA/0/{ZERO}"]
)
def test_one_file_of_two_names_is_named_and_left_alone(name, store, tmp_path):
    with MessageStore(config(store)):
        pass
    queue = store / f"consumequeue/TopicA/0/{ZERO}"
    with queue.open("r+b") as file:  # a unit that recovery restores
        file.seek(20 * len(store_units(queue)) - 20)
        file.write(bytes(20))
    other = snapshot_of(store, tmp_path / "backup", name) / name
    before = other.read_bytes()
    with pytest.raises(StoreWriteError, match="hard links") as told:
        recover_store(str(store), config(store), clock=lambda: 0, cut=True)
    assert told.value.path == str(store / name)
    assert other.read_bytes() == before
    other.unlink()
    recover_store(str(store), config(store), clock=lambda: 0, cut=True)


def test_a_store_with_hard_links_is_read_and_its_copy_written(store, tmp_path):
    snapshot_of(store, tmp_path / "backup")
    with StoreSnapshot(store, config(store)) as snapshot:
        assert snapshot.end_offset > 0
    shutil.copytree(store, tmp_path / "copy")
    with MessageStore(config(tmp_path / "copy")) as opened:
        assert opened.max_phy_offset > 0


def test_nothing_of_our_own_has_two_names(store):
    recover_store(str(store), config(store), clock=lambda: 0)
    with MessageStore(config(store)) as opened:
        opened.put_message(Message(topic="TopicA", body=b"x" * 4000, queue_id=0))
    rebuild_index_in_place(str(store), config(store), clock=lambda: 0)
    rebuild_queues_in_place(str(store), config(store))
    assert {file.stat().st_nlink for file in store.rglob("*") if file.is_file()} == {1}


@pytest.mark.parametrize("name", ["lock", "abort", "checkpoint"])
def test_no_file_outside_is_written(name, store, tmp_path):
    (store / name).unlink(missing_ok=True)
    (tmp_path / "mine").write_bytes(b"mine" * 20)
    (store / name).symlink_to(tmp_path / "mine")
    is_refused = pytest.raises(StoreWriteError, match="is a link to")
    # An existing abort is not written, and a clean stop removes only the link to it.
    with nullcontext() if name == "abort" else is_refused, MessageStore(config(store)):
        pass
    assert (tmp_path / "mine").read_bytes() == b"mine" * 20
