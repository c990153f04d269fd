# SPDX-License-Identifier: Apache-2.0
"""A mirror of a store by the sink is killed, again and again; it has every message once."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path

import pytest

import rmqsource
from rmqsource.explore.diff_stores import BY_KEY, BY_POSITION, compare_stores
from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from tests.rmqsource.reading import parsed
from tests.rmqsource.stream.growing_store import GrowingStore
from tests.rmqsource.stream.killed_mirror import CALLS, CheckpointFiles
from tests.rmqsource.stream.mirror_query import MIRROR_STEPS, Deaths, MirrorQuery
from tests.rmqsource.stream.simulated_query import Checkpoint, KilledError
from tests.store_core.crash.by_hand import nothing_forced
from tests.store_core.test_killed_writer import Writers

pytestmark = pytest.mark.skipif(
    not STREAM_READER_GETS_LIMITS,
    reason="before Spark 4.2 a source is not told where a batch starts",
)
KILLS = 20
MOST_CALLS, MOST_BATCHES = 800, 5
"""A complete run has about this many calls and batches."""
BATCHES = 6
LIMITS = {"maxOffsetsPerTrigger": 5, "minPartitions": 2}


@pytest.fixture(scope="module")
def writers():
    made = Writers("tests.rmqsource.stream.killed_mirror")
    yield made
    made.close()


def check_same(a: Path, b: Path) -> int:
    """Check that the stores have the same messages in the same queues; return how many."""
    for by in (BY_KEY, BY_POSITION):
        found = compare_stores(parsed(a), parsed(b), by)
        assert found.rows == []
        assert found.same == found.messages_a == found.messages_b
    return found.same


def mirror_with_deaths(a: GrowingStore, b: Path, deaths: Deaths, kills: int) -> Checkpoint:
    """Kill a mirror so often, while its source grows and is reopened; then let it finish."""
    checkpoint = Checkpoint()
    while len(deaths.died) < kills:
        a.put(8)
        if len(deaths.died) % 3 == 1:
            a.reopen()
        with pytest.raises(KilledError):
            MirrorQuery(checkpoint, a.root, b, deaths, **LIMITS).all_available()
    a.put(8)
    a.close()
    MirrorQuery(checkpoint, a.root, b, deaths, **LIMITS).all_available()
    a.open()
    return checkpoint


@pytest.mark.parametrize(
    "steps", [*((step,) for step in MIRROR_STEPS), MIRROR_STEPS], ids=[*MIRROR_STEPS, "each step"]
)
def test_a_mirror_that_is_killed_at_named_steps(tmp_path, steps):
    """At each of the first batches; in the last case each is killed at all steps, one by one."""
    deaths = Deaths(tmp_path / "b", lambda number, step: number < BATCHES and step in steps)
    with nothing_forced(), GrowingStore(tmp_path / "a") as a:
        checkpoint = mirror_with_deaths(a, tmp_path / "b", deaths, BATCHES * len(steps))
        assert deaths.died == [(number, step) for number in range(BATCHES) for step in steps]
        assert check_same(a.root, tmp_path / "b") == len(a.put_bodies)
        assert [commit.version for commit in deaths.commits] == list(range(checkpoint.commits))
        assert len(checkpoint.offsets) == checkpoint.commits > BATCHES
        assert sum(commit.messages for commit in deaths.commits) == len(a.put_bodies)


def test_a_mirror_that_is_killed_anywhere(tmp_path, writers):
    """At steps and at system calls, in turn; the source's writer dies with it."""
    generator = random.Random(1)
    died: Counter[str] = Counter()
    run = 0
    while sum(died.values()) < KILLS:
        die_at = MIRROR_STEPS[run // 2 % len(MIRROR_STEPS)] if run % 2 else CALLS
        die_after = generator.randrange(1, MOST_CALLS if die_at == CALLS else MOST_BATCHES)
        step = run_mirror(tmp_path, writers, run, die_at, die_after)
        died.update([step] if step else [])
        run += 1
    assert run_mirror(tmp_path, writers, run, "", 0) is None
    messages = check_same(tmp_path / "a", tmp_path / "b")
    checkpoint = CheckpointFiles(tmp_path / "checkpoint")
    last = rmqsource.last_commit(str(tmp_path / "b"))
    assert len(checkpoint.offsets) == checkpoint.commits == last.version + 1 <= messages
    assert set(MIRROR_STEPS) <= died.keys()


def run_mirror(root: Path, writers: Writers, run: int, die_at: str, die_after: int) -> str | None:
    """Let a mirror run; return the step after which it was killed, None if it finished."""
    task: dict[str, object] = {"root": str(root), "run": run}
    status = writers.run({**task, "die_at": die_at, "die_after": die_after}, None)
    assert status in {0, signal.SIGKILL}, f"run {run} ended with {status}"
    return (root / "journal").read_text("utf-8").split("\n")[-2] if status else None
