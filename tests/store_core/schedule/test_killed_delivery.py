"""A process that delivers is killed, again and again: nothing is lost, little comes twice."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from store_core import MessageStore
from tests.store_core.crash.killed_writer import fast_clock_ms
from tests.store_core.schedule.judge import Deliveries, deliver_all, judge_repeats, look
from tests.store_core.schedule.killed_delivery import delay_config
from tests.store_core.test_killed_writer import Writers, acknowledgements

STORES, KILLS_PER_STORE = 3, 16
_CLEAN = 0
_SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"flush_disk_type": "ASYNC_FLUSH"},  # a kill takes nothing from the system's memory
    {"enable_consume_queue_ext": True},
)


@pytest.fixture(scope="module")
def writers():
    made = Writers("tests.store_core.schedule.killed_delivery")
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(STORES))
def test_nothing_is_lost_or_early_and_only_that_repeated_which_was_not_noted(
    tmp_path, writers, seed
):
    assert kill_some(tmp_path, writers, seed, KILLS_PER_STORE) == KILLS_PER_STORE


def kill_some(directory: Path, writers: Writers, seed: int, kills: int) -> int:
    """Kill processes that deliver from one store until so many died; return how many died."""
    generator = random.Random(seed)
    settings = _SETTINGS[seed % len(_SETTINGS)]
    root = directory / "store"
    config = delay_config(root, **settings)
    acknowledged: set[int] = set()
    before = Deliveries()
    number = turn = died = 0
    while died < kills:
        turn += 1
        log = directory / f"acknowledged-{turn}"
        by_clock = generator.random() < 0.3
        task = {
            "root": str(root),
            "settings": settings,
            "seed": generator.randrange(1 << 30),
            "first": number,
            "acknowledgements": str(log),
            "die_after": -1 if by_clock else generator.randrange(1, 300),
            "puts": 10_000 if by_clock else 60,
        }
        status = writers.run(task, generator.uniform(0, 0.12) if by_clock else None)
        assert status in {_CLEAN, signal.SIGKILL}, f"{json.dumps(task)} ended with {status}"
        died += status != _CLEAN
        for first, stop, _ in acknowledgements(log):
            acknowledged.update(range(first, stop))
            number = max(number, stop)
        if not root.exists():
            continue
        with MessageStore(config, clock=fast_clock_ms) as store:
            assert store.wait_for_dispatch()
            after = look(store)
        assert acknowledged <= after.waited.keys()
        number = max([number - 1, *after.waited]) + 1
        # A run that stops cleanly now and then saves, and repeats nothing of its own.
        judge_repeats(before, after, 1)
        before = after
    after = deliver_all(config, fast_clock_ms() + 10**7)
    judge_repeats(before, after, 1)
    assert acknowledged <= after.delivered.keys()
    return died
