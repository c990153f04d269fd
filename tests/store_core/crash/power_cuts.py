# SPDX-License-Identifier: Apache-2.0
"""Stores written on a simulated disk, and checks of the states that a power loss leaves."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from store_core import MessageStore
from store_core.errors import LogDamageError, StoreError, StoreFormatError
from store_core.services.environment import Environment
from store_core.tools.repair.store_recovery import recover_store
from tests.store_core.crash.by_hand import (
    dispatch_all,
    nothing_forced,
    run_some_service,
    without_threads,
)
from tests.store_core.crash.judge import judge
from tests.store_core.crash.messages import config_of, make_message, numbers_in, put_some
from tests.store_core.simulated_disk import SimulatedDisk, fates

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"flush_disk_type": "ASYNC_FLUSH"},
    {"transient_store_pool_enable": True},
    {"flush_disk_type": "ASYNC_FLUSH", "transient_store_pool_enable": True},
    {"enable_consume_queue_ext": True},
    {"enabled_append_prop_crc": True, "warm_maped_file_enable": True},
)
_RUNS, _PUTS_A_RUN = 3, 8
_STEPS_MS = (0, 1, 700, 30_000, 90_000)  # the last two let queues and checkpoint be flushed
_SHARE_REBUILT, _SHARE_CLEANED = 0.3, 0.3
_SHARE_RECOVERING, _SHARE_GOING_ON = 0.1, 0.25
_MOMENTS_OF_RECOVERY = 3
_FULL, _ROOMY = 0.86, 0.1
_START_MS = 1_700_000_000_000
_LATER_MS = 1 << 32
_REFUSED = (LogDamageError, StoreFormatError)
"""Without ``--cut``, recovery must not cut dispatched records, nor empty a store of its log."""


@dataclass
class Written:
    """A recording, and the moments when messages were acknowledged as on the disk, or expired."""

    disk: SimulatedDisk
    settings: dict[str, Any]
    acknowledged: list[tuple[int, list[int]]] = field(default_factory=list)
    expired: list[tuple[int, set[int]]] = field(default_factory=list)
    put: set[int] = field(default_factory=set)

    def acknowledged_at(self, moment: int) -> set[int]:
        """Return the messages that must not be lost when the power goes at a moment."""
        kept = {n for time, numbers in self.acknowledged if time <= moment for n in numbers}
        return kept.difference(*(numbers for time, numbers in self.expired if time <= moment))


class _Life:
    """Writes a store: puts, services, now and then a new index and the end of old segments."""

    def __init__(self, root: Path, generator: random.Random, settings: dict[str, Any]) -> None:
        root.mkdir()
        self.written = Written(SimulatedDisk(root), settings)
        self._config, self._generator = config_of(root, **settings), generator
        self._now, self._ratio, self._number = _START_MS, _ROOMY, 0

    def lead(self) -> Written:
        """Open, write and close it some times."""
        with self.written.disk.recording(), without_threads():
            for _ in range(_RUNS):
                waiting: list[int] = []
                with self._opened() as store:
                    for _ in range(_PUTS_A_RUN):
                        waiting = self._put(store, waiting)
                    self._maintain(store)
                self._acknowledge(waiting)
        return self.written

    def _opened(self) -> MessageStore:
        environment = Environment(lambda: self._now, lambda _: self._ratio, lambda _: 12)
        return MessageStore(self._config, clock=lambda: self._now, environment=environment)

    def _put(self, store: MessageStore, waiting: list[int]) -> list[int]:
        generator = self._generator
        self._now += generator.choice(_STEPS_MS)
        self.written.put.update(range(self._number, self._number + 12))
        numbers = put_some(store, self._number, generator)
        self._number = numbers[-1] + 1
        waiting = [*waiting, *numbers]
        run_some_service(store, generator)
        if self._config.flush_disk_type == "ASYNC_FLUSH" and generator.random() < 0.7:
            return waiting
        assert store.flush() == store.max_phy_offset
        self._acknowledge(waiting)
        return []

    def _acknowledge(self, numbers: list[int]) -> None:
        self.written.acknowledged.append((self.written.disk.time, numbers))

    def _maintain(self, store: MessageStore) -> None:
        if self._generator.random() < _SHARE_REBUILT:
            dispatch_all(store)
            store.rebuild_index()
        if self._generator.random() < _SHARE_CLEANED:
            store.flush()
            dispatch_all(store)
            begin, services = self.written.disk.time, store.services
            self._ratio = _FULL
            services.clean_commit_log.run_once()
            self._ratio = _ROOMY
            services.correct_logic_offset.run_once()
            services.clean_consume_queue.run_once()
            left = {number for numbers in numbers_in(store).values() for number in numbers}
            self.written.expired.append((begin, self.written.put - left))


def cut_power(directory: Path, seed: int, moments: int) -> int:
    """Check the states left by a power loss, also during recovery; return the number of states."""
    generator = random.Random(seed)
    states = 0
    with nothing_forced():
        settings = SETTINGS[seed % len(SETTINGS)]
        written = _Life(directory / "store", generator, settings).lead()
        for moment in _sample(generator, written.disk, moments):
            acknowledged = written.acknowledged_at(moment)
            for fate in fates(generator):
                left = directory / "left"
                written.disk.build(moment, fate, left)
                if generator.random() < _SHARE_RECOVERING:
                    states += _cut_recovery(directory, left, written, acknowledged, generator)
                _judge(left, written, acknowledged, generator)
                shutil.rmtree(left)
                states += 1
    return states


def _cut_recovery(
    directory: Path,
    left: Path,
    written: Written,
    acknowledged: set[int],
    generator: random.Random,
) -> int:
    root = directory / "recovering"
    shutil.copytree(left, root)
    disk, states = SimulatedDisk(root), 0
    config = config_of(root, **written.settings)
    with disk.recording(), without_threads():
        try:
            with MessageStore(config) as store:
                dispatch_all(store)
        except _REFUSED as err:
            _cut_where_allowed(root, written, err)
    for moment in _sample(generator, disk, _MOMENTS_OF_RECOVERY):
        for fate in fates(generator):
            again = directory / "again"
            disk.build(moment, fate, again)
            _judge(again, written, acknowledged, generator)
            shutil.rmtree(again)
            states += 1
    shutil.rmtree(root)
    return states


def _judge(root: Path, written: Written, acknowledged: set[int], generator: random.Random) -> None:
    config = config_of(root, **written.settings)
    torn = set(written.put) - acknowledged
    try:
        found = judge(root, config, acknowledged, written.put, torn)
    except _REFUSED as err:
        _cut_where_allowed(root, written, err)
        found = judge(root, config, acknowledged, written.put, torn)
    if generator.random() < _SHARE_GOING_ON:  # cut bytes must not come back
        added = range(max(written.put) + 1, max(written.put) + 9)
        with without_threads(), MessageStore(config) as store:
            for number in added:
                assert store.put_message(make_message(number)).status.name == "PUT_OK"
        everything = [*found, *added]
        assert judge(root, config, everything, everything, torn) == everything


def _cut_where_allowed(root: Path, written: Written, refused: StoreError) -> None:
    """Cut, as the error advises, if units may reach the disk before the log does."""
    if written.settings.get("flush_disk_type") != "ASYNC_FLUSH":
        raise refused
    config = config_of(root, **written.settings)
    recover_store(str(root), config, clock=lambda: _START_MS + _LATER_MS, cut=True)


def _sample(generator: random.Random, disk: SimulatedDisk, count: int) -> list[int]:
    return sorted(generator.sample(range(disk.time + 1), min(count, disk.time + 1)))
