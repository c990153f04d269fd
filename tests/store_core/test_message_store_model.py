# SPDX-License-Identifier: Apache-2.0
"""The store against a plain list: puts, reads, cleaning, restarts and crashes in any order."""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from store_core import MessageStore
from store_core.services.environment import Environment
from tests.examples import examples
from tests.store_core.crash.by_hand import (
    dispatch_all,
    nothing_forced,
    run_some_service,
    without_threads,
)
from tests.store_core.crash.judge import assert_sound
from tests.store_core.crash.messages import (
    QUEUES,
    TOPICS,
    config_of,
    make_message,
    messages_in,
    place_of,
    put_some,
)

_HOUR_MS = 3_600_000
_YEAR_MS = 365 * 24 * _HOUR_MS
_START_MS = 1_700_000_000_000
_MAX_MS = 2**63 - 1


class StoreModel(RuleBasedStateMachine):
    """The expected content: for each queue the numbers of its messages, in order.

    No thread runs: services work only when a rule says so.
    """

    def __init__(self):
        super().__init__()
        self.store = None
        self.context = ExitStack()
        self.context.enter_context(without_threads())
        self.context.enter_context(nothing_forced())

    @initialize(flush=st.sampled_from(["SYNC_FLUSH", "ASYNC_FLUSH"]), pool=st.booleans())
    def begin(self, flush, pool):
        self.directory = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.root = self.directory / "store-0"
        self.settings = {"flush_disk_type": flush, "transient_store_pool_enable": pool}
        self.now = _START_MS
        self.numbers = {(topic, queue): [] for topic in TOPICS for queue in range(QUEUES)}
        self.first_left = dict.fromkeys(self.numbers, 0)
        self.number = self.copies = 0
        self.open()

    def open(self):
        self.store = MessageStore(
            config_of(self.root, **self.settings),
            clock=lambda: self.now,
            environment=Environment(lambda: self.now, lambda _: 0.1, lambda _: 12),
        )
        self.store.load()
        for place, numbers in self.numbers.items():
            assert self.store.get_max_offset_in_queue(*place) == len(numbers)
        self.store.start()

    def all_dispatched(self):
        """Let readers see all messages put: buffered ones are written first."""
        self.store.flush()
        dispatch_all(self.store)

    @rule(seed=st.integers(0, 1 << 20), times=st.integers(1, 5))
    def put(self, seed, times):
        generator = random.Random(seed)
        for _ in range(times):
            for number in put_some(self.store, self.number, generator):
                self.numbers[place_of(number)].append(number)
                self.number = number + 1
            run_some_service(self.store, generator)

    @rule(milliseconds=st.integers(-5_000, 100_000))
    def move_clock(self, milliseconds):
        self.now += milliseconds

    @rule()
    def flush(self):
        assert self.store.flush() == self.store.max_phy_offset

    @rule()
    def restart(self):
        self.store.shutdown()
        self.open()

    @rule()
    def crash(self):
        """Continue with the content of the files, as if the process had been killed."""
        if self.settings["transient_store_pool_enable"]:
            self.store.flush()  # messages that are only in a buffer are lost with the process
        self.copies += 1
        copy = self.directory / f"store-{self.copies}"
        shutil.copytree(self.root, copy)
        self.store.shutdown()
        shutil.rmtree(self.root)
        self.root = copy
        self.open()

    @rule()
    def clean(self):
        """Let all segments except the last expire."""
        self.all_dispatched()
        services = self.store.services
        self.now += 200 * _YEAR_MS  # files are as old as the test, not as the clock
        services.clean_commit_log.execute_delete_files_manually()
        while services.clean_commit_log.run_once():
            pass
        services.correct_logic_offset.run_once()
        services.clean_consume_queue.run_once()
        for place in self.numbers:
            least = self.store.get_min_offset_in_queue(*place)
            assert least >= self.first_left[place]
            self.first_left[place] = least

    @rule(data=st.data())
    def query(self, data):
        self.all_dispatched()
        left = [n for place, numbers in self.numbers.items() for n in numbers[self.least(place) :]]
        if not left:
            return
        number = data.draw(st.sampled_from(left))
        topic, _ = place_of(number)
        found = self.store.query_message(topic, f"k{number}", 32, 0, _MAX_MS).messages
        body = make_message(number).body
        assert [m.body for m in found if m.keys == [f"k{number}"]] == [body]
        exact = self.store.find_messages(topic, [f"U{number}"])
        assert [message.body for message in exact] == [body]
        assert self.store.look_message_by_offset(exact[0].commit_log_offset).body == body

    @rule()
    def read_everything(self):
        self.all_dispatched()
        for place, numbers in self.numbers.items():
            assert self.store.get_max_offset_in_queue(*place) == len(numbers)
            found = [m.body for m in messages_in(self.store, *place)]
            assert found == [make_message(n).body for n in numbers[self.least(place) :]]

    @invariant()
    def nothing_is_invented(self):
        if self.store is not None:
            for place, numbers in self.numbers.items():
                assert self.store.get_max_offset_in_queue(*place) <= len(numbers)

    def least(self, place):
        return self.store.get_min_offset_in_queue(*place)

    def teardown(self):
        try:
            if self.store is not None:
                self.store.shutdown()
                assert_sound(self.root, config_of(self.root, **self.settings))
                shutil.rmtree(self.directory)
        finally:
            self.context.close()


StoreModel.TestCase.settings = settings(
    max_examples=examples(50),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestStoreModel = StoreModel.TestCase
