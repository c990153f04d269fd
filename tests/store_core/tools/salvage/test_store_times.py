from __future__ import annotations

import numpy as np
import pytest

from store_core.tools.salvage.readable_rows import CorrectedTime, StoreTimes

T = 1_700_000_000_000


def looked_at(*batches):
    times, out = StoreTimes(), []
    for batch in batches:
        offsets = np.arange(len(batch), dtype=np.int64) * 100
        out += (times.plausible(np.array(batch, np.int64) + T, offsets) - T).tolist()
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


def test_the_first_of_all_is_told_by_those_behind():
    assert looked_at([9_000_000, 10, 20])[0] == [20, 10, 20]


@pytest.mark.parametrize("wrong", [-(10**12), 9_000_000])
def test_the_last_of_a_batch_is_told_by_the_record_after_it(wrong):
    times, offsets = StoreTimes(), np.arange(3, dtype=np.int64)
    assert times.plausible(np.array([0, 10, wrong]), offsets, 20).tolist() == [0, 10, 10]
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
