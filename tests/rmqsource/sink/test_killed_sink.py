# SPDX-License-Identifier: Apache-2.0
"""A write is killed, again and again; each job is in the store completely once, or not at all."""

from __future__ import annotations

import random
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store_core import MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.commit_job import close_committed, open_for_commit
from store_core.files.store_directory import StoreDirectory
from store_core.staged_commit.job import Ledger
from store_core.staged_commit.staging import CrashPoints, open_intents
from store_core.tools.check.finding_kinds import Severity
from store_core.tools.check.store_check import check_store
from tests.rmqsource.sink.killed_sink import APPLICATION, SIZES, body_of, rows_of
from tests.store_core.test_killed_writer import Writers

KILLS = 60
KILLS_PER_STORE = 15
MODULE = "tests.rmqsource.sink.killed_sink"
_NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def writers():
    made = Writers(MODULE)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(KILLS // KILLS_PER_STORE))
def test_a_killed_job_is_whole_or_absent(tmp_path, writers, seed):
    assert kill_jobs(tmp_path / "store", writers, seed, KILLS_PER_STORE) == KILLS_PER_STORE


def test_two_jobs_at_once_follow_each_other(tmp_path, writers):
    other = Writers(MODULE)
    for version in range(3):
        task = {"root": str(tmp_path / "store"), "seed": 0, "die_after": -1}
        for number, process in enumerate((writers, other)):
            process.begin({**task, "version": 2 * version + number, "application": str(number)})
        assert [writers.end(), other.end()] == [0, 0]
        judge_store(tmp_path / "store", list(range(2 * version + 2)), -1, version)
    other.close()


def kill_jobs(root: Path, writers: Writers, seed: int, kills: int) -> int:
    """Kill jobs on one store until so many died; return how many died."""
    generator = random.Random(seed)
    version = seed << 10
    committed: list[int] = []
    died = 0
    while died < kills:
        by_clock = generator.random() < 0.3
        task: dict[str, object] = {
            "root": str(root),
            "version": version,
            "seed": generator.randrange(1 << 30),
            "die_after": -1 if by_clock else generator.randrange(1, 260),
        }
        status = writers.run(task, generator.uniform(0, 0.15) if by_clock else None)
        assert status in {0, signal.SIGKILL}, f"job {task} ended with {status}"
        died += status != 0
        is_in = judge_store(root, committed, version, generator.randrange(4))
        assert is_in or status != 0
        if is_in:
            committed.append(version)
        if is_in or generator.random() < 0.3:
            version += 1
    return died


def judge_store(root: Path, committed: list[int], version: int, how: int) -> bool:
    """Return whether a job is in the store; earlier committed jobs must be there too.

    Parameters
    ----------
    how
        0: only read; the next job finds the store as it is. 1 and 2: first open and close it, as a
        writer does and as a commit does. 3: open it twice.
    """
    if not StoreDirectory(str(root)).stat(str(root / "commitlog")):
        return False
    config = MessageStoreConfig.from_properties({key: str(value) for key, value in SIZES.items()})
    is_in = _holds(root, config, committed, version)
    if how in {1, 3}:
        with MessageStore(replace(config, store_path_root_dir=str(root))) as store:
            assert store.wait_for_dispatch()
    if how in {2, 3}:
        opened = open_for_commit(str(root), config, lambda: _NOW_MS, CrashPoints())
        close_committed(opened, clean=True)
    if how:
        assert _holds(root, config, committed, version) == is_in
        assert not open_intents(StoreDirectory(str(root)))
        assert not (root / "abort").exists()
        assert Ledger(str(root)).is_committed(APPLICATION, version) == is_in
        assert _problems(root, config) == []
    return is_in


def _holds(root: Path, config: MessageStoreConfig, committed: list[int], version: int) -> bool:
    with StoreSnapshot(root, config) as snapshot:
        found = Counter(_bodies(snapshot))
    is_in = any(body.startswith(b"%d/" % version) for body in found)
    jobs = {*committed, *([version] if is_in else [])}
    assert found == Counter(body_of(job, row) for job in jobs for row in range(rows_of(job)))
    return is_in


def _bodies(snapshot: StoreSnapshot) -> list[bytes]:
    """Return the bodies of all messages in the log."""
    from store_core.codec.message_batch_codec import MessageColumns
    from store_core.log.commit_log import scan_frames
    from store_core.log.log_scan import skip_gap

    log, end = snapshot.log, snapshot.max_phy_offset
    found: list[Any] = []
    for frames in scan_frames(log, max(snapshot.min_phy_offset, 0), end, on_gap=skip_gap):
        assert frames.ok.all()
        found += MessageColumns(frames).column("body").to_pylist()
    return found


def _problems(root: Path, config: MessageStoreConfig) -> list[str]:
    with StoreSnapshot(root, config) as snapshot:
        findings = check_store(snapshot).findings
    return [str(one) for one in findings if one.severity is not Severity.INFORMATION]
