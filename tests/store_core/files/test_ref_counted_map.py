from __future__ import annotations

import os
import threading

import pytest

from store_core.errors import StoreReadError, StoreWriteError
from store_core.files.ref_counted_map import RefCountedMap

SIZE = 4096


@pytest.fixture
def held(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc".ljust(SIZE, b"\0"))
    made = RefCountedMap(str(path), SIZE, os.open(path, os.O_RDWR))
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
