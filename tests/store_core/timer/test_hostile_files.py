"""Timer files with any bytes in them: what is delivered are messages that were put, or an error."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from store_core.errors import StoreError
from store_core.layout.timer import TIMER_CHECKPOINT, TIMER_LOG_UNIT, TIMER_SLOT
from tests.store_core.crash.by_hand import nothing_forced
from tests.store_core.timer.timed_store import (
    START_MS,
    Clock,
    bodies,
    put_timed,
    run,
    timed_store,
)

BODIES = {b"%d" % number for number in range(9)}
OUT_MS = START_MS + 4_000
SLOT_AT = OUT_MS // 1000 % 1_209_600 * TIMER_SLOT.size
EDGES = [0, 1, -1, 52, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63), OUT_MS, OUT_MS // 1000]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    root = tmp_path_factory.mktemp("good") / "store"
    with timed_store(root, Clock(START_MS)) as (store, service):
        for body in sorted(BODIES):
            put_timed(store, body, TIMER_DELAY_SEC="5")
        run(store, service)
    return root


def damaged(layout, at, fields):
    """Return where in a file which bytes are to be put."""
    return st.builds(
        lambda field, number, value: (
            at + number * layout.size + layout.at(field),
            _bytes_of(layout, field, value),
        ),
        st.sampled_from(fields),
        st.integers(0, 3 if layout is TIMER_LOG_UNIT else 0),
        st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1), st.integers(0, 600)),
    )


def _bytes_of(layout, field, value):
    width = layout.dtype[field].itemsize
    return (value % (1 << 8 * width)).to_bytes(width, "big")


DAMAGE = st.one_of(
    st.tuples(
        st.sampled_from([f"timerlog/{start:020d}" for start in (0, 224, 448)]),
        damaged(TIMER_LOG_UNIT, 0, TIMER_LOG_UNIT.dtype.names),
    ),
    st.tuples(st.just("timerwheel"), damaged(TIMER_SLOT, SLOT_AT, TIMER_SLOT.dtype.names)),
    st.tuples(
        st.just("config/timercheck"), damaged(TIMER_CHECKPOINT, 0, TIMER_CHECKPOINT.dtype.names)
    ),
)


@settings(max_examples=10, deadline=None)
@given(damage=st.lists(DAMAGE, min_size=1, max_size=4))
@example(damage=[("timerwheel", (SLOT_AT + 24, b"\x7f\xff\xff\xff"))])
@example(damage=[("timerwheel", (SLOT_AT + 16, bytes(8))), ("config/timercheck", (8, bytes(16)))])
def test_no_damage_makes_up_messages(damage, good, tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged") / "store"
    shutil.copytree(good, root, copy_function=_copy)
    for name, (at, data) in damage:
        with (root / name).open("r+b") as file:
            file.seek(at)
            file.write(data)
    with nothing_forced(), timed_store(root, Clock(START_MS)) as (store, service):
        try:
            run(store, service)
            run(store, service, START_MS + 60_000)
        except StoreError:
            return
        assert set(bodies(store)) <= BODIES
        put_timed(store, b"5", TIMER_DELAY_SEC="5")
        run(store, service, START_MS + 120_000)


@pytest.mark.parametrize("count", [2**31 - 1, -(2**31)])
def test_a_count_that_has_no_room_left(count, good, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(good, root, copy_function=_copy)
    with (root / "timerwheel").open("r+b") as file:
        file.seek(SLOT_AT + TIMER_SLOT.at("count"))
        file.write(_bytes_of(TIMER_SLOT, "count", count))
    with timed_store(root, Clock(START_MS)) as (store, service):
        for magic in ({}, {"TIMER_DEL_UNIQKEY": "T+x"}, {"TIMER_DEL_UNIQKEY": "T+y"}):
            put_timed(store, b"9", TIMER_DELAY_SEC="5", **magic)
            run(store, service)
        run(store, service, START_MS + 9_000)
        assert set(bodies(store)) == {*BODIES, b"9"}


def _copy(source, target):
    """Copy a file; of the wheel, which is nearly all holes, what is not zero."""
    if not source.endswith("timerwheel"):
        return shutil.copyfile(source, target)
    with open(source, "rb") as given, open(target, "wb") as made:  # noqa: PTH123 (shutil's names)
        given.seek(SLOT_AT)
        made.truncate(38_707_200)
        made.seek(SLOT_AT)
        made.write(given.read(TIMER_SLOT.size))
    return target
