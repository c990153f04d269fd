from __future__ import annotations

import threading

import pytest

from store_core.staged_commit.commit import Prefetch


def counted(count, made, fail_at=-1):
    try:
        for number in range(count):
            if number == fail_at:
                raise OSError("the disk")
            made.append(number)
            yield number
    finally:
        made.append("closed")


@pytest.mark.parametrize("most", [1, 3, 20])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_all_items_come_in_order(most, count):
    made = []
    with Prefetch(counted(count, made), most) as items:
        assert list(items) == list(range(count))
    assert made == [*range(count), "closed"]


def test_no_more_are_made_than_may_wait():
    made = []
    with Prefetch(counted(9, made), 2) as items:
        for item in items:
            items._coming[-1].result()  # what is under way may end
            assert made == list(range(min(item + 3, 9))) + ["closed"] * (item > 6)


def test_the_first_ones_are_made_before_they_are_asked_for():
    made, begun = [], threading.Event()

    def telling():
        for item in counted(5, made):
            begun.set()
            yield item

    with Prefetch(telling(), 3) as items:
        assert made == []
        items.begin()
        assert begun.wait(30)
        items._coming[-1].result()
        assert made == [0, 1, 2]
        assert list(items) == [0, 1, 2, 3, 4]


def test_what_fails_is_told_in_its_turn_and_closing_closes_the_items():
    made, got = [], []
    with pytest.raises(OSError, match="the disk"), Prefetch(counted(5, made, 2), 4) as items:
        got.extend(items)
    assert got == [0, 1]
    assert made == [0, 1, "closed"]


def test_nobody_has_to_take_them():
    made = []
    with Prefetch(counted(5, made), 2) as items:
        items.begin()
    assert made[-1:] in ([], ["closed"])
    assert len(made) <= 3
    with Prefetch(counted(5, made)):
        pass
