# SPDX-License-Identifier: Apache-2.0
"""Delivery by a service whose store is closed and opened, and by two services."""

from __future__ import annotations

import pytest

from store_core import ScheduleMessageService
from store_core.errors import StoreClosedError, StoreFormatError, StoreLockedError
from tests.store_core.schedule.delayed_store import (
    Clock,
    bodies,
    delayed_store,
    deliver,
    put_delayed,
)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def opened(tmp_path, clock):
    with delayed_store(tmp_path, clock) as found:
        yield found


def test_a_store_that_is_opened_again_under_its_service(opened, clock):
    """No other service delivered in between: messages delivered but not saved do not come again."""
    store, service = opened
    put_delayed(store, 1, b"a")
    clock.now += 2000
    deliver(store, service)
    store.shutdown()
    with pytest.raises(StoreClosedError):
        service.run_once()
    store.load()
    store.start()
    put_delayed(store, 1, b"b")
    clock.now += 2000
    deliver(store, service)
    assert bodies(store) == [b"a", b"b"]


@pytest.mark.parametrize("saves_first", [False, True])
def test_a_store_that_somebody_had_meanwhile(opened, tmp_path, clock, saves_first):
    store, service = opened
    for number in range(4):
        put_delayed(store, 1, b"%d" % number)
    deliver(store, service)
    store.shutdown()
    clock.now += 2000
    with delayed_store(tmp_path, clock) as (other_store, other):
        deliver(other_store, other)
        other.save()
    store.load()
    store.start()
    if saves_first:
        service.save()
    deliver(store, service)
    assert bodies(store) == [b"0", b"1", b"2", b"3"]
    assert service.delivered == 0
    assert service.offsets[1] == 4


def test_one_service_delivers(opened):
    store, service = opened
    other = ScheduleMessageService(store)
    with service:
        service.start()
        with pytest.raises(StoreLockedError, match="stop that one"):
            other.start()
    with other:
        assert other.is_running


@pytest.mark.parametrize(
    "content",
    [
        '{"offsetTable":{"x":5,1:0}}',
        '{"offsetTable":{"1_0":5}}',
        '{"offsetTable":{" 1":0}}',
        '{"dataVersion":{"counter":"x"},"offsetTable":{1:0}}',
    ],
)
def test_a_file_that_could_not_be_saved_again_is_refused_before_anything_is_delivered(
    opened, tmp_path, clock, content
):
    store, service = opened
    put_delayed(store, 1, b"a")
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "delayOffset.json").write_text(content)
    clock.now += 2000
    with pytest.raises(StoreFormatError, match="would be delivered again"):
        deliver(store, service)
    assert bodies(store) == []
