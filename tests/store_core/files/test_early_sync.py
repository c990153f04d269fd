from __future__ import annotations

import os
import threading
from contextlib import closing

import pytest

from store_core.staged_commit import log_tail
from store_core.staged_commit.log_tail import EarlySync

MUCH = log_tail._EARLY_BYTES


class Disk:
    """Takes the place of the call that forces a file; it lasts until it is let go."""

    def __init__(self):
        self.forced = []
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.failure = None

    def force(self, fd):
        self.forced.append(fd)
        self.begun.set()
        assert self.may_end.wait(30)
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def disk(monkeypatch):
    made = Disk()
    monkeypatch.setattr(log_tail, "sync_data", made.force)
    yield made
    made.may_end.set()


def test_a_little_is_left_to_the_writer(disk):
    with closing(EarlySync()) as early:
        early.wrote(7, MUCH - 1)
        early.wait()
    assert disk.forced == []


def test_the_writer_goes_on_while_much_is_forced(disk):
    with closing(EarlySync()) as early:
        early.wrote(7, MUCH)
        assert disk.begun.wait(30)
        early.wrote(7, 3 * MUCH)  # returns though the first is under way: no second one beside it
        assert disk.forced == [7]
        disk.may_end.set()
        early.wait()
        early.wrote(8, MUCH)
    assert disk.forced == [7, 8]


def test_what_came_while_one_was_under_way_counts_for_the_next(disk):
    with closing(EarlySync()) as early:
        early.wrote(7, MUCH)
        assert disk.begun.wait(30)
        early.wrote(7, MUCH)
        disk.may_end.set()
        early._under_way.result()
        early.wrote(7, 1)
        early.wait()
    assert disk.forced == [7, 7]


@pytest.mark.parametrize("tell", [lambda early: early.wait(), lambda early: early.wrote(7, MUCH)])
def test_a_failure_is_told_once_it_is_known(disk, tell):
    disk.failure = OSError(5, "Input/output error")
    disk.may_end.set()
    with closing(EarlySync()) as early:
        early.wrote(7, MUCH)
        with pytest.raises(OSError, match="Input/output"):
            _until_known(early, tell)
        early.wait()  # told once, as the system tells it
    assert disk.forced == [7]


def _until_known(early, tell):
    early._under_way.exception()
    tell(early)


def test_closing_waits_and_says_nothing(disk):
    early = EarlySync()
    early.wrote(7, MUCH)
    assert disk.begun.wait(30)
    disk.failure = OSError(5, "")
    closing = threading.Thread(target=early.close)
    closing.start()
    assert closing.is_alive()  # else its file could be closed under the thread
    disk.may_end.set()
    closing.join(30)
    assert not closing.is_alive()


def test_real_bytes_are_forced(tmp_path):
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with closing(EarlySync()) as early:
        os.write(fd, b"x")
        early.wrote(fd, MUCH)
        early.wait()
        os.close(fd)
        early.wrote(fd, MUCH)  # whoever closes it too early is told
        with pytest.raises(OSError, match="Bad file"):
            early.wait()
