# SPDX-License-Identifier: Apache-2.0
"""A child that was forked must not touch the store that its parent has open."""

from __future__ import annotations

import json
import os
import threading
import warnings

import pyarrow as pa
import pytest

from store_core import Message, MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.errors import StoreError
from store_core.state.store_lock import StoreLock

SIZES = {"mapped_file_size_commit_log": 1 << 16, "max_hash_slot_num": 8, "max_index_num": 64}


def in_child(work):
    """Fork, and return the result of the work in the child: a value, or the name of its error."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads are the point of this test
        pid = os.fork()
    if pid == 0:
        try:
            found = work()
        except StoreError as err:
            found = [type(err).__name__, str(err)]
        except BaseException as err:
            found = ["unexpected", repr(err)]
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        found = json.loads(answer.read())
    assert os.waitpid(pid, 0)[1] == 0
    return found


@pytest.fixture
def store(tmp_path):
    config = MessageStoreConfig(store_path_root_dir=str(tmp_path / "store"), **SIZES)
    with MessageStore(config) as opened:
        put(opened, range(5))
        assert opened.wait_for_dispatch(10)
        opened.flush()
        yield opened


def put(store, numbers):
    for number in numbers:
        result = store.put_message(Message("A", b"%d" % number))
        assert result.append_result.queue_offset == number


def files_of(root):
    # Closing a descriptor of the lock file releases the lock.
    found = (path for path in root.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path): path.read_bytes() for path in found}


CALLS = {
    "put_message": lambda store: store.put_message(Message("A", b"x")),
    "put_messages": lambda store: store.put_messages([Message("A", b"x")]),
    "append_batch": lambda store: store.append_batch(
        pa.record_batch({"topic": ["A"], "body": [b""]})
    ),
    "get_message": lambda store: store.get_message("g", "A", 0, 0, 9),
    "flush": lambda store: store.flush(),
    "start": lambda store: store.start(),
    "load": lambda store: store.load(),
    "destroy": lambda store: store.destroy(),
    "rebuild_index": lambda store: store.rebuild_index(),
    "rebuild_consume_queue": lambda store: store.rebuild_consume_queue(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_child_is_refused_and_changes_nothing(store, tmp_path, name):
    before = files_of(tmp_path)
    error, text = in_child(lambda: str(CALLS[name](store)))
    assert error in {"StoreClosedError", "StoreLockedError"}
    assert f"process {os.getpid()}" in text or "a broker has the store open" in text
    assert files_of(tmp_path) == before
    put(store, range(5, 8))


def test_a_child_that_ends_as_a_block_does_leaves_the_store_open(store, tmp_path):
    before = files_of(tmp_path)
    assert in_child(lambda: store.__exit__(None, None, None)) is None
    assert files_of(tmp_path) == before
    assert (tmp_path / "store" / "abort").exists()
    root = str(tmp_path / "store")
    assert in_child(lambda: StoreLock(root).acquire())[0] == "StoreLockedError"
    put(store, range(5, 8))
    store.shutdown()
    with StoreSnapshot(root) as snapshot:
        bodies = [m.body for m in snapshot.get_message("g", "A", 0, 0, 32).messages]
    assert bodies == [b"%d" % number for number in range(8)]


def test_a_child_does_not_wait_for_what_threads_of_its_parent_hold(store):
    def hold(entered, leave):
        with store._changing:
            entered.set()
            leave.wait()

    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, args=(entered, leave))
    thread.start()
    entered.wait()
    try:
        assert in_child(store.shutdown) is None
        assert in_child(store.load)[0] == "StoreLockedError"
    finally:
        leave.set()
        thread.join()


def test_a_child_may_open_the_store_when_its_parent_has_closed_it(store, tmp_path):
    store.shutdown()

    def work():
        with store:
            put(store, range(5, 7))

    assert in_child(work) is None
    store.load()
    store.start()
    put(store, range(7, 9))


def test_a_lock_of_the_parent_is_none_of_the_child(tmp_path):
    with StoreLock(str(tmp_path)) as lock:
        lock.create_abort()
        assert in_child(lambda: lock.is_held) is False
        for call in (lock.remove_abort, lock.create_abort, lock.acquire):
            assert in_child(call)[0] == "StoreLockedError"
        assert in_child(lock.release) is None
        assert lock.is_aborted()
        assert in_child(StoreLock(str(tmp_path)).acquire)[0] == "StoreLockedError"
