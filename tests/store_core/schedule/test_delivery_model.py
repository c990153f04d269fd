# SPDX-License-Identifier: Apache-2.0
"""Whatever the clock does and whenever it is restarted, delivery follows RocketMQ's rules."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import MessageStore, ScheduleMessageService
from tests.examples import examples
from tests.store_core.crash.by_hand import dispatch_all, nothing_forced, without_threads
from tests.store_core.schedule.delayed_store import Clock, bodies, config_of, put_delayed

LEVELS_MS = {1: 1_000, 2: 2_000, 3: 10_000}
_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(sorted(LEVELS_MS))),
        st.tuples(
            st.just("clock"), st.sampled_from([1, 999, 1_001, 9_000, 10**6, -1, -900, -5_000])
        ),
        st.tuples(st.just("run"), st.none()),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    max_size=40,
)


class Model:
    """RocketMQ's rules, one message after the other."""

    def __init__(self):
        self.due_at = {level: [] for level in LEVELS_MS}
        self.offsets = dict.fromkeys(LEVELS_MS, 0)
        self.saved = dict(self.offsets)
        self.delivered = []

    def run(self, now):
        for level, delay_ms in LEVELS_MS.items():
            queue = self.due_at[level]
            while self.offsets[level] < len(queue):
                due_at = queue[self.offsets[level]]
                if due_at > now + delay_ms:
                    due_at = now
                if due_at > now:
                    break
                self.delivered.append((level, self.offsets[level]))
                self.offsets[level] += 1


@settings(max_examples=examples(80), deadline=None)
@given(operations=_OPERATIONS)
def test_each_message_is_delivered_when_the_rules_say_so(operations, tmp_path_factory):
    root, clock, model = tmp_path_factory.mktemp("model") / "store", Clock(), Model()
    config = config_of(root, message_delay_level="1s 2s 10s")
    with nothing_forced(), without_threads():
        store = MessageStore(config, clock=clock)
        store.load()
        store.start()
        service = ScheduleMessageService(store)
        for name, given_value in [*operations, ("run", None)]:
            if name == "put":
                queue = model.due_at[given_value]
                put_delayed(store, given_value, b"%d:%d" % (given_value, len(queue)))
                queue.append(clock.now + LEVELS_MS[given_value])
            elif name == "clock":
                clock.now += given_value
            elif name == "run":
                dispatch_all(store)
                while service.run_once():
                    pass
                model.run(clock.now)
            else:
                if given_value:
                    service.save()
                    model.saved = dict(model.offsets)
                model.offsets = dict(model.saved)
                store.shutdown()
                store = MessageStore(config, clock=clock)
                store.load()
                store.start()
                service = ScheduleMessageService(store)
        dispatch_all(store)
        found = bodies(store)
        assert Counter(found) == Counter(b"%d:%d" % place for place in model.delivered)
        for level in LEVELS_MS:
            of_level = [body for body in found if body.startswith(b"%d:" % level)]
            assert of_level == [b"%d:%d" % place for place in model.delivered if place[0] == level]
            assert service.offsets.get(level, 0) == model.offsets[level]
        store.shutdown()
