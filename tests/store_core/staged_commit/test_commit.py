# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import shutil
import threading

import pytest

from store_core.commit_job import Prefetch, close_committed
from store_core.errors import StoreWriteError
from store_core.files.store_directory import StoreDirectory
from store_core.log.commit_log import CommitLog
from store_core.staged_commit import staged_records
from store_core.staged_commit.job import Ledger
from store_core.staged_commit.log_tail import EarlySync
from store_core.staged_commit.staging import is_unfinished, open_intents
from store_core.tools.repair.store_recovery import plan_recovery, recover_store
from tests.store_core.staged_commit.support import (
    CONFIG,
    SEGMENT_BYTES,
    KilledError,
    commit,
    end_offset,
    job_name,
    messages,
    opened,
    problems,
    staged_job,
)


@pytest.fixture(autouse=True)
def _without_waiting_for_disks(monkeypatch):
    """A process that dies loses nothing that it wrote: only power failures require this."""
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def bodies(part, count=30):
    return [b"%d-%d " % (part, i) * (1 + i % 5) for i in range(count)]


def in_order(parts, queues=2, before=None):
    """Return the content of a store of these parts, from the next queue offsets on."""
    counters, found = dict(before or {}), []
    for part in parts:
        for i, body in enumerate(part):
            queue_offset = counters.get(i % queues, 0)
            counters[i % queues] = queue_offset + 1
            found.append(("TopicA", i % queues, queue_offset, body))
    return found


def test_a_new_store_gets_all_parts_in_order(tmp_path):
    parts = [bodies(0), [], bodies(1), bodies(2, 7)]
    job, directory = staged_job(tmp_path, "j", [p for p in parts if p])
    done = commit(tmp_path, job, directory)
    assert messages(tmp_path) == in_order(parts)
    assert problems(tmp_path) == []
    assert (done.start_offset, done.end_offset) == (0, end_offset(tmp_path))
    assert done.messages == 67
    assert [(q.queue_id, q.first_queue_offset, q.messages) for q in done.queues] == [
        (0, 0, 34),
        (1, 0, 33),
    ]
    assert not directory.exists()
    assert Ledger(str(tmp_path)).last_commit() == done


def test_a_second_job_goes_on_where_the_first_ended(tmp_path):
    first, second = [bodies(0, 11)], [bodies(1, 40)]
    one = commit(tmp_path, *staged_job(tmp_path, "a", first))
    two = commit(tmp_path, *staged_job(tmp_path, "b", second))
    assert two.start_offset == one.end_offset
    assert messages(tmp_path) == in_order(first + second)
    assert problems(tmp_path) == []


def test_staged_records_go_as_they_get_into_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(staged_records, "CHUNK_BYTES", 300)
    monkeypatch.setattr(staged_records, "FILE_BYTES", 600)
    job, directory = staged_job(tmp_path, "a", [bodies(0, 11), bodies(1, 40)])
    left = []

    def look(name):
        if name in {"before records", "before first segment sync"}:
            left.append(len(list(directory.glob("*.records"))))

    commit(tmp_path, job, directory, hook=look)
    assert len(left) > 10
    assert left == sorted(left, reverse=True)
    assert left[0] >= max(part.chunks[-1].file for part in job.parts)
    assert left[-1] <= 1  # the last one is being deleted
    assert messages(tmp_path) == in_order([bodies(0, 11), bodies(1, 40)])


def test_the_directory_is_deleted_after_the_files_in_it(tmp_path, monkeypatch):
    may_delete, left = threading.Event(), []
    delete, close = staged_records._delete, staged_records.FileDeleter.close

    def delete_late(path):
        assert may_delete.wait(10)
        delete(path)

    def close_it(deleter):
        may_delete.set()
        close(deleter)

    def look(name):
        if name == "before staging removal":
            left.extend(directory.glob("*.records"))

    monkeypatch.setattr(staged_records, "_delete", delete_late)
    monkeypatch.setattr(staged_records.FileDeleter, "close", close_it)
    job, directory = staged_job(tmp_path, "a", [bodies(0)])
    commit(tmp_path, job, directory, hook=look)
    assert left == []
    assert not directory.exists()


class Killer:
    """Raises at the n-th call."""

    def __init__(self, at):
        self.left, self.names = at, []

    def __call__(self, name):
        self.names.append(name)
        self.left -= 1
        if self.left == 0:
            raise KilledError(name)


def steps_of_a_commit(root):
    watcher = Killer(0)
    commit(root, *staged_job(root, "watched", [bodies(5, 36)]), hook=watcher)
    return watcher.names


@pytest.mark.parametrize(("small_first", "is_slow"), [(False, False), (True, False), (False, True)])
def test_killed_at_every_step_the_job_is_whole_or_absent(
    tmp_path, monkeypatch, small_first, is_slow
):
    if is_slow:  # the thread that deletes staged files has not yet begun
        monkeypatch.setattr(staged_records.FileDeleter, "delete", lambda *_: None)
    # With 27 messages the job's first record does not fit the segment: a blank comes first.
    prepared = tmp_path / "prepared"
    commit(prepared, *staged_job(prepared, "before", [bodies(9, 27 if small_first else 10)]))

    def prepare(root):
        shutil.copytree(prepared, root)

    prepare(tmp_path / "watched")
    names = steps_of_a_commit(tmp_path / "watched")
    before, after = messages_before_and_after(tmp_path, prepare)
    outcomes = set()
    for at in range(1, len(names) + 1):
        root = tmp_path / str(at)
        prepare(root)
        job, directory = staged_job(root, "j", [bodies(5, 36)], application="app", version=7)
        with pytest.raises(KilledError):
            commit(root, job, directory, hook=Killer(at))
        is_in = at > names.index("after eight bytes")
        assert messages(root) == (after if is_in else before), names[at - 1]  # to a mere reader
        close_committed(opened(root), clean=True)
        assert messages(root) == (after if is_in else before), names[at - 1]
        assert problems(root) == [], names[at - 1]
        assert open_intents(StoreDirectory(str(root))) == {}
        assert Ledger(str(root)).is_committed("app", 7) == is_in
        outcomes.add(is_in)
    assert outcomes == {False, True}


def messages_before_and_after(tmp_path, prepare):
    root = tmp_path / "model"
    prepare(root)
    before = messages(root)
    commit(root, *staged_job(root, "j", [bodies(5, 36)]))
    return before, messages(root)


def killed_before_the_eight_bytes(root, count):
    """Return the open journal of a job that reached its commit point."""
    commit(root, *staged_job(root, "before", [bodies(9, count)]))
    job, directory = staged_job(root, "j", [bodies(5, 60)], application="app", version=7)
    with pytest.raises(KilledError):
        commit(root, job, directory, hook=KillBefore("before eight bytes"))
    return open_intents(StoreDirectory(str(root)))[str(directory)]


class KillBefore:
    """Raises at a step."""

    def __init__(self, name):
        self.name = name

    def __call__(self, name):
        if name == self.name:
            raise KilledError(name)


def segment_of(root, offset):
    start = offset - offset % SEGMENT_BYTES
    return root / "commitlog" / f"{start:020d}", offset - start


def write_bytes(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("count", [10, 27])
def test_the_eight_bytes_torn_in_any_way_are_no_record(tmp_path, count):
    intent = killed_before_the_eight_bytes(tmp_path, count)
    path, at = segment_of(tmp_path, intent.start_offset)
    wanted = bytes.fromhex(intent.first_bytes)
    log = CommitLog(StoreDirectory(str(tmp_path)), CONFIG)
    for subset in range(256):
        torn = bytes(b if subset >> i & 1 else 0 for i, b in enumerate(wanted))
        is_blank = count == 27
        if is_blank:  # the length is there before
            torn = wanted[:4] + torn[4:]
        write_bytes(path, at, torn)
        assert is_unfinished(log, intent) == (torn != wanted), subset
    log.close()


@pytest.mark.parametrize("subset", [0b00001111, 0b11110000, 0b01111111, 0b11111011, 0b11111111])
@pytest.mark.parametrize("count", [10, 27])
def test_a_torn_commit_point_leaves_the_old_end(tmp_path, count, subset):
    intent = killed_before_the_eight_bytes(tmp_path, count)
    path, at = segment_of(tmp_path, intent.start_offset)
    wanted = bytes.fromhex(intent.first_bytes)
    for i, byte in enumerate(wanted):
        if subset >> i & 1:
            write_bytes(path, at + i, bytes([byte]))
    whole = path.read_bytes()[at : at + 8] == wanted
    close_committed(opened(tmp_path), clean=True)
    found = messages(tmp_path)
    assert len(found) == count + (60 if whole else 0)
    assert problems(tmp_path) == []
    if not whole:
        assert end_offset(tmp_path) == intent.start_offset
        files = sorted((tmp_path / "commitlog").iterdir())
        behind = b"".join(file.read_bytes() for file in files)[intent.start_offset :]
        assert behind.count(0) == len(behind)


def test_what_a_broker_appended_in_between_is_left_alone(tmp_path):
    intent = killed_before_the_eight_bytes(tmp_path, 10)
    journal = (tmp_path / "_staging" / job_name("j") / "intent.json").read_bytes()
    close_committed(opened(tmp_path), clean=True)
    commit(tmp_path, *staged_job(tmp_path, "other", [bodies(7, 60)]))
    before = messages(tmp_path)
    (tmp_path / "_staging" / job_name("j")).mkdir()
    (tmp_path / "_staging" / job_name("j") / "intent.json").write_bytes(journal)
    assert intent.end_offset <= end_offset(tmp_path)
    close_committed(opened(tmp_path), clean=True)
    assert messages(tmp_path) == before
    assert not Ledger(str(tmp_path)).is_committed("app", 7)
    assert open_intents(StoreDirectory(str(tmp_path))) == {}


@pytest.mark.parametrize("count", [10, 27])
def test_a_full_disk_leaves_the_store_as_it_was(tmp_path, monkeypatch, count):
    commit(tmp_path, *staged_job(tmp_path, "before", [bodies(9, count)]))
    before = {p: p.read_bytes() for p in (tmp_path / "commitlog").iterdir()}
    job, directory = staged_job(tmp_path, "j", [bodies(5, 60)])
    calls = []

    def full(name):
        calls.append(name)
        if name == "before records" and calls.count(name) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreWriteError, match="free space"):
        commit(tmp_path, job, directory, hook=full, clean=True)
    assert {p: p.read_bytes() for p in (tmp_path / "commitlog").iterdir()} == before
    assert open_intents(StoreDirectory(str(tmp_path))) == {}
    assert problems(tmp_path) == []
    commit(tmp_path, *staged_job(tmp_path, "again", [bodies(5, 60)]))
    assert len(messages(tmp_path)) == count + 60


@pytest.mark.parametrize("sync", ["segment sync", "first segment sync"])
def test_a_segment_that_cannot_be_forced_is_named(tmp_path, sync):
    job, directory = staged_job(tmp_path, "j", [bodies(0, 120)])

    def fail(name):
        if name == f"before {sync}":
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StoreWriteError, match="Input/output error") as raised:
        commit(tmp_path, job, directory, fail)
    first = sync == "first segment sync"
    assert raised.value.path.endswith(f"{0:020d}") == first
    assert messages(tmp_path) == []


def test_stale_records_behind_the_end_do_not_come_back(tmp_path):
    commit(tmp_path, *staged_job(tmp_path, "before", [bodies(9, 3)]))
    path, at = segment_of(tmp_path, end_offset(tmp_path))
    write_bytes(path, at + 500, b"stale")
    job, directory = staged_job(tmp_path, "j", [bodies(5, 1)])
    commit(tmp_path, job, directory)
    assert b"stale" not in path.read_bytes()
    assert problems(tmp_path) == []


def test_the_next_commit_validates_the_last_record_only(tmp_path):
    commit(tmp_path, *staged_job(tmp_path, "before", [bodies(9, 20)]))
    recovery = opened_and_closed(tmp_path)
    assert (recovery.records, recovery.log_end) == (1, end_offset(tmp_path))
    close_committed(opened(tmp_path), clean=False)
    assert opened_and_closed(tmp_path).records == 20  # after a crash all of the segment


def opened_and_closed(root):
    """Open a store for a commit that does not come; return the result of recovery."""
    store = opened(root)
    close_committed(store, clean=True)
    return store.recovery


def test_a_dry_run_of_recovery_takes_nothing_of_an_uncommitted_job_for_a_loss(tmp_path):
    intent = killed_before_the_eight_bytes(tmp_path, 10)
    planned = plan_recovery(str(tmp_path), CONFIG).log
    assert (planned.log_end, planned.records_behind) == (intent.start_offset, 0)
    assert recover_store(str(tmp_path), CONFIG, clock=lambda: 0).log.log_end == planned.log_end
    assert problems(tmp_path) == []


def test_what_is_erased_is_forced_after_all_that_was_under_way(tmp_path, monkeypatch):
    """Forcing a file reports a failure once, perhaps to a thread that still forces it."""
    order = []
    monkeypatch.setattr(EarlySync, "wait", lambda _: order.append("wait"))

    def fail(name):
        order.append(name)
        if name == "before records" and order.count(name) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    commit(tmp_path, *staged_job(tmp_path, "before", [bodies(9, 1)]))
    job, directory = staged_job(tmp_path, "j", [bodies(0, 5), bodies(1, 5)])
    order.clear()
    with pytest.raises(StoreWriteError, match="free space"):
        commit(tmp_path, job, directory, fail, clean=True)
    assert order[order.index("before undo erase") - 1] == "wait"


def counted(count, made, fail_at=-1):
    try:
        for number in range(count):
            if number == fail_at:
                raise OSError("the disk")
            made.append(number)
            yield number
    finally:
        made.append("closed")


@pytest.mark.parametrize("most", [1, 3, 20])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_all_items_come_in_order(most, count):
    made = []
    with Prefetch(counted(count, made), most) as items:
        assert list(items) == list(range(count))
    assert made == [*range(count), "closed"]


def test_no_more_are_made_than_may_wait():
    made = []
    with Prefetch(counted(9, made), 2) as items:
        for item in items:
            items._coming[-1].result()  # the one in progress may end
            assert made == list(range(min(item + 3, 9))) + ["closed"] * (item > 6)


def test_the_first_ones_are_made_before_they_are_asked_for():
    made, begun = [], threading.Event()

    def telling():
        for item in counted(5, made):
            begun.set()
            yield item

    with Prefetch(telling(), 3) as items:
        assert made == []
        items.begin()
        assert begun.wait(30)
        items._coming[-1].result()
        assert made == [0, 1, 2]
        assert list(items) == [0, 1, 2, 3, 4]


def test_what_fails_is_told_in_its_turn_and_closing_closes_the_items():
    made, got = [], []
    with pytest.raises(OSError, match="the disk"), Prefetch(counted(5, made, 2), 4) as items:
        got.extend(items)
    assert got == [0, 1]
    assert made == [0, 1, "closed"]


def test_nobody_has_to_take_them():
    made = []
    with Prefetch(counted(5, made), 2) as items:
        items.begin()
    assert made[-1:] in ([], ["closed"])
    assert len(made) <= 3
    with Prefetch(counted(5, made)):
        pass
