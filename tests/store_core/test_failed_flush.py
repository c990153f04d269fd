# SPDX-License-Identifier: Apache-2.0
"""A flush fails, its pages are lost for good, and the next flush reports success."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from store_core import MessageStore, StoreWriteError
from store_core.errors import StoreError
from store_core.staged_commit.job import Ledger
from tests.store_core.crash.by_hand import dispatch_all, nothing_forced, without_threads
from tests.store_core.crash.judge import judge
from tests.store_core.crash.messages import config_of, make_message
from tests.store_core.simulated_disk import SimulatedDisk, fates
from tests.store_core.staged_commit.support import commit, messages, opened, staged_job

_NOTHING_ELSE_IS_LOST = list(fates(random.Random(0)))[1]
_PUTS = 70  # more than a segment
_STEP = 9  # of some hundred flushes
_SMALL = 10


def lead(root, first=0):
    """Put messages from a number on, flush and stop; return those put, and those acknowledged."""
    put, acknowledged, now = [], [], [1_700_000_000_000 + 1000 * first]
    store = MessageStore(config_of(root), clock=lambda: now[0])
    try:
        store.load()
        store.start()
        for number in range(first, first + _PUTS):
            now[0] += 1000
            put.append(number)
            if store.put_message(make_message(number)).status.name == "PUT_OK":
                acknowledged.append(number)
            if number % 16 == 15:
                maintain(store)
    except StoreError:
        pass
    with suppress(StoreWriteError):  # it reports the failure again
        store.shutdown()
    return put, acknowledged


def maintain(store):
    """Let the services work; repeat each one that failed, as its thread would."""
    services = store.services
    for _ in range(2):
        for work in (
            lambda: dispatch_all(store),
            services.flush_queues.finish,
            services.checkpoint.run_once,
        ):
            try:
                work()
            except StoreWriteError:
                continue


def syncs_of_a_life(directory):
    root = directory / "counted"
    root.mkdir()
    disk = SimulatedDisk(root)
    with disk.recording():
        lead(root)
    return disk.syncs


def test_a_store_counts_nothing_that_a_failed_flush_covered(tmp_path):
    with nothing_forced(), without_threads():
        count = syncs_of_a_life(tmp_path)
        for number in range(random.Random(count).randrange(_STEP), count, _STEP):
            root, left = tmp_path / f"store-{number}", tmp_path / f"left-{number}"
            root.mkdir()
            disk = SimulatedDisk(root)
            disk.fail_sync = number
            with disk.recording():
                put, acknowledged = lead(root)
            disk.build(disk.time, _NOTHING_ELSE_IS_LOST, left)
            is_clean = not (left / "abort").exists()
            wanted = put if is_clean and put == acknowledged else acknowledged
            judge(left, config_of(left), wanted, put, set(put) - set(acknowledged))
    assert count > 20


def test_the_next_process_goes_on_from_what_the_disk_has(tmp_path):
    """Memory still has lost records; a process that trusted it would acknowledge later ones."""
    lost = 0
    with nothing_forced(), without_threads():
        count = syncs_of_a_life(tmp_path)
        for number in range(random.Random(~count).randrange(_STEP), count, _STEP):
            root, left = tmp_path / f"store-{number}", tmp_path / f"left-{number}"
            root.mkdir()
            disk = SimulatedDisk(root)
            disk.fail_sync = number
            with disk.recording():
                put, acknowledged = lead(root)
                more, acknowledged_more = lead(root, _PUTS)
            disk.build(disk.time, _NOTHING_ELSE_IS_LOST, left)
            assert not (left / "abort").exists()
            assert acknowledged_more == more
            everything, safe = put + more, acknowledged + more
            judge(left, config_of(left), safe, everything, set(everything) - set(safe))
            lost += put != acknowledged
    assert lost


@pytest.mark.parametrize("count", [_SMALL, 27])  # with 27 a blank record comes first
def test_a_job_whose_commit_point_was_not_forced_is_there_if_the_ledger_says_so(tmp_path, count):
    outcomes = set()
    with nothing_forced():
        number = 0
        while True:
            root, left = tmp_path / f"store-{number}", tmp_path / f"left-{number}"
            commit(root, *staged_job(root, "before", [[b"x" * 40] * count]))
            before = messages(root)
            job, directory = staged_job(root, "j", [[b"y" * 50] * 60], application="a", version=7)
            disk = SimulatedDisk(root)
            disk.fail_sync = number
            with disk.recording():
                try:
                    commit(root, job, directory)
                except (StoreError, OSError):
                    opened(root).close(clean=True)
            if disk.syncs <= number:
                break
            disk.build(disk.time, _NOTHING_ELSE_IS_LOST, left)
            opened(left).close(clean=True)  # resolves open jobs
            is_committed = Ledger(str(left)).is_committed("a", 7)
            found = messages(left)
            assert found[: len(before)] == before, number
            assert len(found) == len(before) + (60 if is_committed else 0), number
            outcomes.add(is_committed)
            number += 1 if count == _SMALL else 3
    assert outcomes == {True, False}
