# SPDX-License-Identifier: Apache-2.0
"""Whatever the order of puts, times, restarts and crashes: the timers follow the rules."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

from store_core import MessageStore, TimerMessageStore
from store_core.codec.message_codec import string_to_properties
from tests.examples import examples
from tests.store_core.crash.by_hand import dispatch_all, nothing_forced, without_threads
from tests.store_core.timer.timed_store import (
    START_MS,
    Clock,
    SavedFiles,
    put_timed,
    queue_of,
    timed_config,
)

FAR_MS = 1_000_000
HOUR_MS = 3_600_000
DELAYS_MS = [1, 999, 1_000, 1_001, 2_500, 3_000, 7_777, 12_000, 40_000]
TICKS_MS = [1, 400, 999, 1_000, 2_600, 30_000, -1, -1_500]
CRASHES = ["killed", "power", "checkpoint lost"]


def operations(*, ticks=tuple(TICKS_MS), crashes=()):
    kinds = [
        st.tuples(st.just("put"), st.sampled_from(DELAYS_MS)),
        st.tuples(st.just("put"), st.sampled_from(DELAYS_MS)),
        st.tuples(st.just("clock"), st.sampled_from(ticks)),
        st.tuples(st.just("run"), st.none()),
        st.tuples(st.just("save"), st.none()),
        st.tuples(st.just("restart"), st.none()),
    ]
    if crashes:
        kinds.append(st.tuples(st.just("crash"), st.sampled_from(crashes)))
    return st.lists(st.one_of(kinds), max_size=30)


class Play:
    """A store and its timers, and the known state of its messages."""

    def __init__(self, root, **settings):
        self.root, self.clock = root, Clock(START_MS)
        self.config = timed_config(root, **settings)
        self.deliver_at, self.repeats = {}, Counter()
        self.seen = self.seen_when_saved = 0
        self.saved = None
        self.open()

    def open(self):
        self.store = MessageStore(self.config, clock=self.clock, handle_timer_message=True)
        self.store.load()
        self.store.start()
        self.service = TimerMessageStore(self.store)
        self.service.load()

    def put(self, delay_ms):
        body = b"%d" % len(self.deliver_at)
        self.deliver_at[body] = self.clock.now + delay_ms
        put_timed(self.store, body, TIMER_DELAY_MS=str(delay_ms))

    def run(self):
        dispatch_all(self.store)
        while self.service.run_once():
            dispatch_all(self.store)
        dispatch_all(self.store)
        records = queue_of(self.store)
        for record in records[self.seen :]:
            properties = string_to_properties(record.properties_raw)
            assert int(properties["TIMER_DEQUEUE_MS"]) == self.clock.now
            assert self.clock.now >= self.deliver_at[record.body]  # never early
        self.seen = len(records)

    def save(self):
        self.service.save()
        self.saved, self.seen_when_saved = SavedFiles(self.root), self.seen

    def restart(self):
        self.service.finish()
        self.store.shutdown()
        self.open()
        self.save()

    def crash(self, kind):
        """End without saving, and leave the files of a kill, or of a power failure."""
        self.run()
        self.repeats.update(r.body for r in queue_of(self.store)[self.seen_when_saved :])
        if kind == "checkpoint lost":  # as if it ended between wheel and checkpoint
            self.service._files.log.flush()
            self.service._files.wheel.flush()
        self.service._close_files()
        if self.saved is not None and kind == "power":
            self.saved.restore("log")
        self.store.shutdown()
        self.open()

    def found(self):
        return Counter(record.body for record in queue_of(self.store))

    def close(self):
        self.service.finish()
        self.store.shutdown()

    def play(self, given_operations):
        for name, value in given_operations:
            if name == "put":
                self.put(value)
            elif name == "clock":
                self.clock.now += value
            elif name == "crash":
                self.crash(value)
            else:
                getattr(self, name)()
        self.run()
        self.clock.now += FAR_MS
        for _ in range(30):  # rounds of those that roll
            self.run()
            self.clock.now += 1_000


@settings(max_examples=15, deadline=None)
@given(given_operations=operations())
def test_each_message_comes_once_and_in_time(given_operations, tmp_path_factory):
    with nothing_forced(), without_threads():
        play = Play(tmp_path_factory.mktemp("model"))
        play.play(given_operations)
        assert play.found() == Counter(play.deliver_at.keys())
        play.close()


@settings(max_examples=15, deadline=None)
@given(given_operations=operations(ticks=(400, 1_000, 2_600, 9_000)))
def test_so_it_does_in_several_rounds(given_operations, tmp_path_factory):
    with nothing_forced(), without_threads():
        play = Play(tmp_path_factory.mktemp("rolls"), timer_roll_window_slot=4)
        play.play(given_operations)
        assert play.found() == Counter(play.deliver_at.keys())
        play.close()


STALE_SLOT = [
    *(("put", 1), ("crash", "checkpoint lost"), ("clock", 1000), ("put", 1)),
    *(("crash", "power"), ("crash", "killed")),
]
"""A slot of the saved wheel names a place where the timer log now has another unit."""


@settings(max_examples=examples(20), deadline=None)
@example(given_operations=STALE_SLOT)
@given(given_operations=operations(crashes=CRASHES))
def test_a_crash_loses_nothing_and_repeats_what_was_not_saved(given_operations, tmp_path_factory):
    with nothing_forced(), without_threads():
        play = Play(tmp_path_factory.mktemp("crashes"))
        play.save()
        play.play(given_operations)
        found = play.found()
        assert found.keys() == play.deliver_at.keys()
        for body, times in found.items():
            assert times <= 1 + play.repeats[body]
        play.close()


@settings(max_examples=15, deadline=None)
@given(given_operations=operations(ticks=(1, 400, 1_000, 2_600)))
def test_a_message_is_there_one_step_after_its_time(given_operations, tmp_path_factory):
    with nothing_forced(), without_threads():
        play = Play(tmp_path_factory.mktemp("late"))
        for operation in given_operations:
            play_one(play, *operation)
            play.run()
            late = {b for b, at in play.deliver_at.items() if at + 1_000 <= play.clock.now}
            assert late <= play.found().keys()
        play.close()


@settings(max_examples=15, deadline=None)
@given(given_operations=operations(ticks=(400, 1_000, 2_600, HOUR_MS, -HOUR_MS, -2_000)))
def test_so_it_is_after_the_clock_was_an_hour_ahead(given_operations, tmp_path_factory):
    """Messages due while it ran, by that clock, have come by then."""
    with nothing_forced(), without_threads():
        play = Play(tmp_path_factory.mktemp("ahead"))
        for operation in given_operations:
            play_one(play, *operation)
            play.run()
            late = {b for b, at in play.deliver_at.items() if at + 1_000 <= play.clock.now}
            assert late <= play.found().keys()
        play.clock.now += FAR_MS
        play.run()
        assert play.found() - Counter(play.deliver_at.keys()) == Counter(), "none comes twice"
        play.close()


def play_one(play, name, value):
    if name == "put":
        play.put(value)
    elif name == "clock":
        play.clock.now += value
    else:
        getattr(play, name)()
