# SPDX-License-Identifier: Apache-2.0
"""Checks on random histories, beside a second, plain implementation of RocketMQ's rules.

Intended differences of this project are left out (docs/differences.md): immune half messages,
answers for copies that are passed, and op messages that are not written yet.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import given, settings

from store_core.topics import DISCARD_TOPIC
from store_core.transaction_forms import TransactionState
from tests.examples import examples
from tests.store_core.crash.by_hand import dispatch_all
from tests.store_core.crash.messages import messages_in
from tests.store_core.transaction.transactions_by_hand import (
    COMMIT,
    ROLLBACK,
    START_MS,
    UNKNOWN,
    driven,
    sent_message,
)

_TIMEOUT_MS, _MOST_CHECKS, _RESERVED_MS = 6000, 3, 3_600_000
_STEPS_MS = (0, 1, 5999, 6000, 6001, 6001, 40_000, 40_000, -7000, _RESERVED_MS + 1)
_states = st.sampled_from([COMMIT, ROLLBACK, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN])


@dataclass(frozen=True)
class _Round:
    """Transactions are opened, time passes, answers come unasked, and a check runs."""

    born_ahead_ms: tuple[int, ...]
    """For each opened transaction: how far its producer's clock is ahead."""
    step_ms: int
    answered: int
    answer: TransactionState
    answers: tuple[TransactionState, ...]


_rounds = st.lists(
    st.builds(
        _Round,
        st.lists(st.sampled_from([0, 0, 0, 10_000, -3000]), max_size=2).map(tuple),
        st.sampled_from(_STEPS_MS),
        st.integers(0, 5),
        _states,
        st.tuples(*[_states] * 8),
    ),
    min_size=5,
    max_size=12,
)


@dataclass
class _Half:
    number: int
    born_ms: int
    stored_ms: int
    checks: int | None = None


@dataclass
class _Rules:
    """The half queue, and the broker's work on it."""

    halves: list[_Half] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    discarded: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    offset: int = 0

    def end(self, at: int, state) -> None:
        if state is not UNKNOWN and at not in self.ended and at >= self.offset:
            self.ended.add(at)
            if state is COMMIT:
                self.committed.append(self.halves[at].number)

    def is_open(self, number: int) -> bool:
        at = self.newest(number)
        return at >= self.offset and at not in self.ended

    def newest(self, number: int) -> int:
        return max(n for n, half in enumerate(self.halves) if half.number == number)

    def check(self, now: int, answer) -> list[int]:
        asked = []
        at, stop = self.offset, len(self.halves)
        while at < stop:  # a broker may reach its own new copies, and discard those immediately
            if at in self.ended:
                at += 1
                continue
            half = self.halves[at]
            age = now - half.born_ms
            if (half.checks is not None and half.checks >= _MOST_CHECKS) or age > _RESERVED_MS:
                self.discarded.append(half.number)
                self.ended.add(at)
                at += 1
                continue
            if half.stored_ms >= now or 0 <= age < _TIMEOUT_MS:
                break
            if not (age > _TIMEOUT_MS or age <= -1):
                break  # a broker waits a second, and checks again
            copy = _Half(half.number, half.born_ms, now, (half.checks or 0) + 1)
            self.halves.append(copy)
            self.ended.add(at)
            asked.append(half.number)
            at += 1
        self.offset = at
        for number in asked:  # no answer is back before the check is over
            self.end(self.newest(number), answer(number))
        return asked


@settings(max_examples=examples(25), deadline=None)
@given(_rounds)
def test_checks_follow_the_rules(rounds):
    clock, rules, places = [START_MS], _Rules(), []
    given_settings = {
        "transaction_check_max": _MOST_CHECKS,
        "file_reserved_time": 1,
        "mapped_file_size_commit_log": 1 << 20,
        "flush_disk_type": "ASYNC_FLUSH",
    }
    with (
        tempfile.TemporaryDirectory() as directory,
        driven(Path(directory, "store"), clock, **given_settings) as run,
    ):
        for turn in rounds:
            for ahead_ms in turn.born_ahead_ms:
                message = sent_message(len(places))
                message.born_timestamp = clock[0] + ahead_ms
                places.append(run.service.prepare_message(message).append_result)
                rules.halves.append(_Half(len(places) - 1, message.born_timestamp, clock[0]))
            clock[0] += turn.step_ms
            if turn.answered < len(places) and rules.is_open(turn.answered):
                run.end(places[turn.answered], turn.answer)
                rules.end(rules.newest(turn.answered), turn.answer)
            dispatch_all(run.store)
            _check_both(run, rules, clock[0], turn.answers)
        opened = range(rules.offset, len(rules.halves))
        still = [at for at in opened if at not in rules.ended]
        assert run.service.open_queue_offsets().tolist() == still
        assert sorted(int(key[1:]) for key in run.committed()) == sorted(rules.committed)
        given_up = [int(m.unique_key[1:]) for m in messages_in(run.store, DISCARD_TOPIC, 0)]
        assert given_up == rules.discarded


def _check_both(run, rules, now, states):
    def answer(number):
        return states[number % len(states)]

    run.answers = {f"U{number}": answer(number) for number in range(30)}
    run.asked.clear()
    before = len(rules.halves)
    run.service._ops.write(everything=True)
    result = run.check()
    asked = rules.check(now, answer)
    assert [int(half.unique_key[1:]) for half in run.asked] == asked
    assert result.half_offset == rules.offset
    copies = [half.properties["TRANSACTION_CHECK_TIMES"] for half in run.halves()[before:]]
    assert copies == [str(half.checks) for half in rules.halves[before:]]
