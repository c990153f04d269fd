# SPDX-License-Identifier: Apache-2.0
"""Disks that fail in the middle of a commit: the report must match the content of the store."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from pathlib import Path

import pytest

import rmqsource
from rmqsource.errors import SourceError
from rmqsource.sink.committing import commit_parts, discard
from rmqsource.sink.local_host import now_ms
from rmqsource.sink.prepared_write import sink_config
from rmqsource.sink.task import stage_part
from store_core.commit_job import close_committed, open_for_commit
from store_core.errors import CommitInDoubtError, StoreError
from store_core.staged_commit.staging import CrashPoints
from tests.rmqsource.sink.test_committing import bodies, numbers, plan_for, rows, write

BEFORE, AFTER = numbers(range(30)), numbers(range(90))
COMMIT_POINT = "after eight bytes sync"
CALLS = ("pwrite", "ftruncate", "fdatasync", "fsync", "unlink", "open", "mkdir", "rmdir", "replace")


@pytest.fixture
def _disk(monkeypatch):
    """Calls that do not wait for a disk; a test may replace them."""
    for name in ("fdatasync", "fsync"):
        monkeypatch.setattr(os, name, lambda _: None)


@pytest.fixture
def prepared(tmp_path, _disk):
    """Return a function that makes a new store with messages and a staged job at each call."""
    write(tmp_path / "made", [rows(0, 30)])
    count = itertools.count()

    def prepare():
        root = tmp_path / str(next(count))
        shutil.copytree(tmp_path / "made", root)
        plan = plan_for(root)
        return root, plan, [stage_part([rows(30, 60)], plan, 0)]

    return prepare


def opened_once_more(root, plan):
    """Do what the next write does first."""
    opened = open_for_commit(str(root), sink_config(plan.options), now_ms, CrashPoints())
    close_committed(opened, clean=True)


def outcome(root, plan, parts, hook=lambda _: None, stop=lambda: None):
    """Commit; check that the report matches the store, and return it."""
    text = ""
    try:
        reported = "committed" if commit_parts(plan, parts, hook=hook) else "nothing"
    except CommitInDoubtError as err:
        reported, text = "in doubt", str(err)
    except (StoreError, SourceError):
        reported = "absent"
    finally:
        stop()
    assert ("Do not write it again" in text) == (reported == "in doubt")
    discard([plan.job_directory])  # as Spark has it done after an error
    opened_once_more(root, plan)
    found = bodies(root)
    assert found in (BEFORE, AFTER)
    if reported != "in doubt":
        assert (reported == "committed") == (found == AFTER)
    last = rmqsource.last_commit(str(root))
    assert (last.messages == 60) == (found == AFTER)
    return reported


class FailingSteps:
    """Raises an OSError at the n-th moment of a commit, and at all later ones, or at that only."""

    def __init__(self, at, lasts):
        self.at, self.lasts, self.names = at, lasts, []

    def __call__(self, name):
        self.names.append(name)
        number = len(self.names) - 1
        if number == self.at or (self.lasts and number > self.at >= 0):
            raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("lasts", [False, True])
def test_an_error_at_any_step_is_an_absent_job_and_one_behind_the_commit_point_is_none(
    prepared, lasts
):
    watcher = FailingSteps(-1, False)
    assert outcome(*prepared(), watcher) == "committed"
    point = watcher.names.index(COMMIT_POINT)
    # A disk that fails for good before anything of the job is written is the simple case.
    first = point - 8 if lasts else 0
    names = watcher.names[first:]
    reported = [outcome(*prepared(), FailingSteps(first + at, lasts)) for at in range(len(names))]
    point -= first
    # The hook after a step makes the step fail: at the eight bytes they are taken back.
    doubtful = {names[at] for at in range(point + 1) if reported[at] == "in doubt"}
    begun = {"before eight bytes", "after eight bytes", "before eight bytes sync", COMMIT_POINT}
    assert doubtful == (begun if lasts else set())
    assert set(reported[:point]) - {"in doubt"} == {"absent"}
    assert set(reported[point + 1 :]) == {"committed"}
    assert len(reported) - point > 15


class FailingCalls:
    """Lets system calls fail that change files below a directory."""

    def __init__(self, monkeypatch, at, lasts):
        self.at, self.lasts, self.made, self.is_on = at, lasts, 0, True
        for name in CALLS:
            monkeypatch.setattr(os, name, self.around(name, getattr(os, name)))

    def around(self, name, true):
        def call(*args, **kwargs):
            if self.is_on and not (name == "open" and not args[1] & os.O_CREAT):
                self.made += 1
                if self.made == self.at or (self.lasts and self.made > self.at > 0):
                    raise OSError(errno.EIO, "Input/output error")
            return true(*args, **kwargs)

        return call

    def stop(self):
        self.is_on = False


@pytest.mark.parametrize("lasts", [False, True])
def test_a_call_of_the_system_that_fails_fails_no_job_that_is_in_the_log(prepared, lasts):
    reported = []
    for at in itertools.count(1):
        root, plan, parts = prepared()
        with pytest.MonkeyPatch.context() as patch:
            calls = FailingCalls(patch, at, lasts)
            reported.append(outcome(root, plan, parts, stop=calls.stop))
        if calls.made < at:
            break
    assert {"absent", "committed"} <= set(reported) <= {"absent", "committed", "in doubt"}
    assert set(reported[-10:]) == {"committed"}  # some calls before the commit are not essential


@pytest.mark.usefixtures("_disk")
def test_what_an_earlier_job_left_and_cannot_be_deleted_fails_no_later_job(tmp_path, caplog):
    write(tmp_path, [rows(0, 5)])
    old = Path(stage_part([rows(0, 5)], plan_for(tmp_path), 0).directory)
    (old / "someone-else.txt").touch()
    for path in (*old.iterdir(), old):
        os.utime(path, (1, 1))
    assert write(tmp_path, [rows(5, 5)]).messages == 5
    assert bodies(tmp_path) == numbers(range(10))
    assert "someone-else.txt" in caplog.text
    assert len(list(old.iterdir())) == 3
    with pytest.raises(StoreError, match=r"someone-else\.txt"):
        rmqsource.clean_staging(str(tmp_path))
