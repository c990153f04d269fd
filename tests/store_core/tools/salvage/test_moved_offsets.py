# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.tools.check.log_check import StoreTimeCheck
from store_core.tools.salvage.log_copy import CorrectedTime, StoreTimes
from store_core.tools.salvage.moved_offsets import MovedOffsets, OffsetRun, RecordRuns

T = 1_700_000_000_000


def longs(*numbers):
    return np.array(numbers, np.int64)


def queue(*batches):
    offsets = MovedOffsets()
    new = [offsets.assign(longs(*old), np.ones(len(old), np.int64)).tolist() for old in batches]
    return offsets, [number for part in new for number in part]


def test_nothing_moves_without_loss():
    offsets, new = queue([7, 8, 9], [10, 11])
    assert new == [7, 8, 9, 10, 11]
    assert not offsets.has_moved
    assert offsets.runs == [OffsetRun(7, 7, 5)]
    assert [offsets.new_offset(old) for old in (7, 9, 12, 50)] == [7, 9, 12, 12]
    assert offsets.lost(100) == []


def test_what_lies_behind_a_loss_closes_up():
    offsets, new = queue([7, 8, 12], [13, 20])
    assert new == [7, 8, 9, 10, 11]
    assert offsets.has_moved
    # Messages not consumed yet are consumed: lost ones are skipped, none comes twice.
    assert [offsets.new_offset(old) for old in (0, 8, 9, 11, 12, 14, 20, 21)] == [
        *(7, 8, 9, 9, 9, 11, 11, 12)
    ]
    assert offsets.lost(100) == [(9, 12), (14, 20)]
    assert offsets.lost(3) == [(9, 12)]


def test_of_a_topic_that_was_made_anew_the_last_life_counts():
    offsets, new = queue([5, 6, 7], [0, 1, 2])
    assert new == [5, 6, 7, 8, 9, 10]
    assert [offsets.new_offset(old) for old in (0, 1, 3)] == [8, 9, 11]
    assert offsets.lost(100) == []


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("wrong", [-1, 2**62, 2**40])
def test_one_damaged_offset_moves_nothing(at, wrong):
    old = list(range(3, 9))
    old[at] = wrong
    offsets, new = queue(old, [9, 10])
    assert new == list(range(3, 11))
    assert [offsets.new_offset(n) for n in range(3, 12)] == list(range(3, 12))
    assert offsets.lost(0) == []


def test_batches_take_as_many_offsets_as_they_have_messages():
    offsets = MovedOffsets()
    assert offsets.assign(longs(0, 4, 9), longs(4, 1, 2)).tolist() == [0, 4, 5]
    assert offsets.next_offset == 7
    assert offsets.runs == [OffsetRun(0, 0, 5), OffsetRun(9, 5, 2)]


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 1000), st.data())
def test_every_surviving_message_is_found_by_its_old_offset(survived, first, data):
    old = [first + n for n, there in enumerate(survived) if there]
    if not old:
        return
    cut = data.draw(st.integers(0, len(old)))
    offsets, new = queue(*[part for part in (old[:cut], old[cut:]) if part])
    assert new == list(range(new[0], new[0] + len(old)))
    assert new[0] == old[0]
    assert [offsets.new_offset(number) for number in old] == new
    for number in range(first, first + len(survived) + 2):
        behind = sum(other < number for other in old)
        assert offsets.new_offset(number) == new[0] + behind


def test_record_places():
    places = RecordRuns()
    places.add(longs(0, 10, 20), longs(10, 10, 10), longs(0, 10, 20), longs(10, 10, 10))
    places.add(longs(30, 50), longs(10, 10), longs(30, 40), longs(10, 10))
    assert places.runs == [OffsetRun(0, 0, 40), OffsetRun(50, 40, 10)]
    assert [places.new_offset(old) for old in (0, 30, 39, 40, 49, 50, 60, -1)] == [
        *(0, 30, 39, None, None, 40, None, None)
    ]


def test_a_record_that_grew_shifts_those_behind():
    places = RecordRuns()
    places.add(longs(0, 10, 20), longs(10, 10, 10), longs(0, 10, 22), longs(10, 12, 10))
    assert [places.new_offset(old) for old in (0, 10, 20)] == [0, 10, 22]


def looked_at(*batches):
    times, out = StoreTimes(), []
    for number, batch in enumerate(batches):
        offsets = np.arange(len(batch), dtype=np.int64) * 100
        behind = [time for later in batches[number + 1 :] for time in later][:4]
        out += (times.plausible(longs(*batch) + T, offsets, longs(*behind) + T) - T).tolist()
    return out, times.corrected


@pytest.mark.parametrize(
    "steps",
    [
        [0],
        [0, 9],
        [0, 5, 5, 900, 86_400_000, 86_400_001],
        [0, 10, 20, -50_000, -49_990, -49_000, 5],  # the clock was set back, and forward
        [500, 0, 1000],
        [0, 5_000, 6_000],
    ],
)
def test_a_clock_that_moves_on_or_is_set_is_believed(steps):
    assert looked_at(steps) == (steps, [])
    assert looked_at(steps[:2], steps[2:])[0] == steps if len(steps) > 2 else True


@pytest.mark.parametrize("wrong", [-(10**12), -5_000, 5_000, 10**15])
@pytest.mark.parametrize("at", range(1, 5))
def test_a_single_record_out_of_line_gets_the_time_before(at, wrong):
    steps = [0, 10, 20, 30, 40, 50]
    steps[at] = wrong
    found, corrected = looked_at(steps)
    assert found == [*steps[:at], steps[at - 1], *steps[at + 1 :]]
    assert corrected == [CorrectedTime(at * 100, T + wrong, T + steps[at - 1])]


def test_of_a_leap_and_a_fall_behind_it_one_is_odd():
    steps = [0, 10, 150_000, 100_000, 150_020]
    assert looked_at(steps)[0] == [0, 10, 150_000, 150_000, 150_020]


class Records:
    """Store times as in frames of records; all were born at the same time."""

    def __init__(self, times):
        self._times = np.array(times, np.int64) + T

    def column(self, name):
        return self._times if name == "store_timestamp" else np.arange(len(self._times))


def outliers(times):
    check = StoreTimeCheck()
    return [*check.add(Records(times)), *check.finish()]


@pytest.mark.parametrize(
    "odd", [(10**12, -(10**10)), (-(10**12), 10**10), (10**12, 10**12 + 5, -(10**10))]
)
def test_odd_times_in_a_row_are_all_corrected(odd):
    times, _ = looked_at([0, 10, *odd, 150_000, 150_020])
    assert (times[:2], times[-2:]) == ([0, 10], [150_000, 150_020])
    assert not outliers(times)


STEPS = st.lists(st.integers(0, 90_000), min_size=4, max_size=20)
ODD = st.dictionaries(st.integers(0, 19), st.integers(-(10**13), 10**13), max_size=4)


@given(STEPS, ODD, st.integers(1, 19))
def test_check_finds_no_odd_time_in_what_was_corrected(steps, odd, cut):
    times = [odd.get(row, time) for row, time in enumerate(np.cumsum(steps).tolist())]
    found, _ = looked_at(*(part for part in (times[:cut], times[cut:]) if part))
    assert not outliers(found)


def test_the_first_of_all_is_told_by_those_behind():
    assert looked_at([9_000_000, 10, 20])[0] == [20, 10, 20]


def test_the_first_of_all_is_not_told_by_an_odd_one():
    found, corrected = looked_at([222, -779, -315_360_000_781, 222])
    assert min(found) >= -779
    assert [one.commit_log_offset for one in corrected] == [0, 200]


@pytest.mark.parametrize("wrong", [-(10**12), 9_000_000])
def test_the_last_of_a_batch_is_told_by_the_record_after_it(wrong):
    times, offsets = StoreTimes(), np.arange(3, dtype=np.int64)
    assert times.plausible(np.array([0, 10, wrong]), offsets, longs(20)).tolist() == [0, 10, 10]
    assert times.plausible(np.array([20, 30]), offsets[:2]).tolist() == [20, 30]


def test_the_first_of_a_batch_is_told_by_the_batch_before():
    assert looked_at([0, 10], [9_000_000, 20, 30])[0] == [0, 10, 10, 20, 30]


DECADES = 20 * 365 * 86_400_000


@pytest.mark.parametrize("wrong", [-DECADES, -(2**62), 2**62])
def test_the_last_of_all_may_not_be_decades_away(wrong):
    assert looked_at([0, 10, wrong])[0] == [0, 10, 10]
    assert looked_at([0, 10], [wrong])[0] == [0, 10, 10]


def test_the_first_of_all_may_not_be_decades_early():
    assert looked_at([-DECADES, 10, 20])[0] == [10, 10, 20]
    assert looked_at([-DECADES])[0] == [-DECADES]


def test_what_check_would_report_while_the_clock_is_set_back_is_corrected():
    assert looked_at([100_000, 10**12, 90_000, 90_001])[0] == [100_000, 100_000, 90_000, 90_001]
    assert looked_at([100_000, 10**15, 90_000, 90_001])[0] == [100_000, 100_000, 90_000, 90_001]
