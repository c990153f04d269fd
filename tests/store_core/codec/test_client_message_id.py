from __future__ import annotations

import time
from datetime import datetime

import pytest

from store_core.codec.message_id import ClientMessageIds, month_start_ms

NOW_MS = 1_700_000_000_123


def fields(text):
    data = bytes.fromhex(text)
    width = len(data) - 12
    return (
        data[:width],
        int.from_bytes(data[width : width + 2], "big"),
        int.from_bytes(data[width + 2 : width + 6], "big", signed=True),
        int.from_bytes(data[width + 6 : width + 10], "big"),
        int.from_bytes(data[width + 10 :], "big"),
    )


@pytest.mark.parametrize("address", [bytes([10, 1, 2, 3]), bytes(range(16))])
def test_the_parts_lie_where_a_client_puts_them(address):
    ids = ClientMessageIds(address, 0x12345, -2, NOW_MS)
    first, second = ids.next_ids(2).to_pylist()
    since = NOW_MS - month_start_ms(NOW_MS)
    assert fields(first) == (address, 0x2345, -2, since, 0)
    assert fields(second) == (address, 0x2345, -2, since, 1)
    assert first == first.upper()


def test_ids_never_repeat_when_the_counter_is_used_up():
    ids = ClientMessageIds(bytes(4), 1, 1, NOW_MS)
    taken = [*ids.next_ids(70_000).to_pylist(), *ids.next_ids(70_000).to_pylist()]
    assert len(set(taken)) == 140_000
    since = NOW_MS - month_start_ms(NOW_MS)
    assert fields(taken[-1])[3:] == (since + 2, 139_999 - 2 * 65_536)


def test_a_month_begins_at_local_midnight():
    now = datetime(2024, 2, 29, 23, 59).timestamp() * 1000
    assert month_start_ms(int(now)) == time.mktime((2024, 2, 1, 0, 0, 0, 0, 0, -1)) * 1000


def test_none_at_all_are_none():
    ids = ClientMessageIds(bytes(4), 1, 1, NOW_MS)
    assert ids.next_ids(0).to_pylist() == []
    assert fields(ids.next_ids(1)[0].as_py())[4] == 0
