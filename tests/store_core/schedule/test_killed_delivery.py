# SPDX-License-Identifier: Apache-2.0
"""A process that delivers is killed, again and again: nothing is lost, few messages repeat."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from store_core import Message, MessageStore, MessageStoreConfig, ScheduleMessageService
from store_core.config.config_files import load_delay_offsets
from store_core.files.store_directory import StoreDirectory
from store_core.layout import SCHEDULE_TOPIC
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_core.crash.killed_writer import ACKNOWLEDGEMENT, Death, fast_clock_ms, serve
from tests.store_core.crash.messages import config_of
from tests.store_core.schedule.delayed_store import queue_of
from tests.store_core.test_killed_writer import Writers, acknowledgements

STORES, KILLS_PER_STORE = 3, 16
_CLEAN = 0
_SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"flush_disk_type": "ASYNC_FLUSH"},  # a kill takes nothing from the system's memory
    {"enable_consume_queue_ext": True},
)
TOPICS = ("TopicA", "TopicB")
DELAYS_MS = (1_000, 20_000, 90_000)
_LEVELS = "1s 20s 90s"


@pytest.fixture(scope="module")
def writers():
    made = Writers("tests.store_core.schedule.test_killed_delivery")
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
        # A run that stops cleanly now and then saves, and repeats none of its own.
        judge_repeats(before, after, 1)
        before = after
    after = deliver_all(config, fast_clock_ms() + 10**7)
    judge_repeats(before, after, 1)
    assert acknowledged <= after.delivered.keys()
    return died


# A process that puts and delivers delayed messages, and dies while it does.
#
# ``python -m tests.store_core.schedule.test_killed_delivery``, see ``crash.killed_writer``.


def delay_config(root: Path, **settings: Any) -> MessageStoreConfig:
    """Return the configuration of a small store with short levels and offsets saved often."""
    given = {"flush_delay_offset_interval": 15, "message_delay_level": _LEVELS, **settings}
    return config_of(root, **given)


def level_of(number: int) -> int:
    """Return the delay level of a message."""
    return 1 + number % len(DELAYS_MS)


def place_of(number: int) -> tuple[str, int]:
    """Return real topic and queue of a message."""
    return TOPICS[number % 5 % 2], number // 3 % 2


def delayed_message(number: int) -> Message:
    """Return a message that waits; its body has its number."""
    topic, queue_id = place_of(number)
    body = b"%d:" % number + bytes([number % 251]) * (number * 37 % 200)
    properties = {"DELAY": str(level_of(number)), "KEYS": f"k{number}"}
    return Message(topic, body, queue_id=queue_id, properties=properties)


def work(
    root: str,
    settings: dict[str, Any],
    seed: int,
    first: int,
    acknowledgements: str,
    die_after: int,
    puts: int,
) -> None:
    """Open the store, put and deliver; stop cleanly now and then."""
    generator = random.Random(seed)
    log = os.open(acknowledgements, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if die_after >= 0:
        Death(die_after, generator).install()
    config, number = delay_config(Path(root), **settings), first
    while puts > 0:
        store = MessageStore(config, clock=fast_clock_ms)
        with store:
            service = ScheduleMessageService(store)
            for _ in range(min(puts, generator.randrange(5, 40))):
                assert store.put_message(delayed_message(number)).is_appended
                os.write(log, ACKNOWLEDGEMENT.pack(number, number + 1, True))
                number += 1
                puts -= 1
                if generator.random() < 0.3:
                    service.run_once()
            service.save()
    os._exit(0)


# Conditions on the delayed messages of a store whose process, or power, has gone.


@dataclass
class Deliveries:
    """Content of a store: the queue offset of each waiting message, and deliveries of each."""

    waited: dict[int, int] = field(default_factory=dict)
    delivered: Counter[int] = field(default_factory=Counter)
    saved: dict[int, int] = field(default_factory=dict)

    def may_come_again(self, number: int) -> bool:
        """Return whether the next process delivers it: it is at or after the saved offset."""
        return number not in self.waited or self.waited[number] >= self.saved.get(
            level_of(number), 0
        )


def look(store: MessageStore) -> Deliveries:
    """Return the content of an open store, after checking its times and order."""
    found = Deliveries()
    root = store.config.store_path_root_dir
    found.saved = load_delay_offsets(StoreDirectory(root)) or {}
    put_at: dict[int, int] = {}
    for level, _ in enumerate(DELAYS_MS, 1):
        numbers = []
        for record in queue_of(store, SCHEDULE_TOPIC, level - 1):
            number = int(record.body.split(b":")[0])
            if b"\0" in record.properties_raw:
                continue  # no CRC covers them: torn, of a message that was never flushed
            assert level_of(number) == level
            found.waited[number] = record.queue_offset
            put_at[number] = record.store_timestamp
            numbers.append(number)
        assert numbers == sorted(set(numbers))
    for topic in TOPICS:
        for queue_id in range(2):
            firsts: dict[int, list[int]] = defaultdict(list)
            for record in queue_of(store, topic, queue_id):
                number = int(record.body.split(b":")[0])
                assert place_of(number) == (topic, queue_id)
                waited_ms = record.store_timestamp - put_at[number]
                assert waited_ms >= DELAYS_MS[level_of(number) - 1], "delivered early"
                if not found.delivered[number]:
                    firsts[level_of(number)].append(number)
                found.delivered[number] += 1
            assert all(numbers == sorted(numbers) for numbers in firsts.values())
    # Messages that the file calls delivered must be there.
    lost = [n for n in found.waited if not found.may_come_again(n) and not found.delivered[n]]
    assert not lost, f"noted as delivered, and not there: {lost}"
    return found


def judge_repeats(before: Deliveries, after: Deliveries, runs: int) -> int:
    """Check that only messages are repeated that a broker would repeat; return how many."""
    repeated = 0
    for number, times in after.delivered.items():
        had = before.delivered[number]
        most = had + runs if before.may_come_again(number) else had
        assert had <= times <= most, (number, had, times)
        repeated += times - max(had, 1) if times > 1 else 0
    return repeated


def deliver_all(config: MessageStoreConfig, now: int) -> Deliveries:
    """Deliver all waiting messages, at a time when all are due, in a run of its own."""
    with without_threads(), MessageStore(config, clock=lambda: now) as store:
        service = ScheduleMessageService(store)
        dispatch_all(store)
        while service.run_once():
            pass
        service.save()
        dispatch_all(store)
        found = look(store)
        assert all(found.delivered[number] >= 1 for number in found.waited)
        again = ScheduleMessageService(store)
        assert not again.run_once()
    return found


if __name__ == "__main__":
    serve(work)
