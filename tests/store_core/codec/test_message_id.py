# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.message_id import (
    ClientMessageIds,
    format_host,
    host_column,
    message_id,
    message_id_column,
    month_start_ms,
    parse_host,
    parse_message_id,
)

hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
offsets = st.integers(-(2**63), 2**63 - 1)
NOW_MS = 1_700_000_000_123
IPV6 = "20010db8000000000000000000000017"


def test_spells_the_id_as_rocketmq():
    host = bytes.fromhex("c0a8070800002a9f")
    assert message_id(host, 234) == "C0A8070800002A9F00000000000000EA"


@given(hosts, offsets)
def test_parses_what_it_makes(host, offset):
    text = message_id(host, offset)
    assert parse_message_id(text) == (host, offset)
    assert parse_message_id(text.lower()) == (host, offset)


@pytest.mark.parametrize("text", ["", "00" * 15, "00" * 17, "00" * 27, "0" * 31, "C0A80001B5F3"])
def test_refuses_other_lengths(text):
    with pytest.raises(ValueError, match="32 or 56"):
        parse_message_id(text)


@pytest.mark.parametrize("text", ["G" + "0" * 31, " " * 16 + "0" * 16, "\u0660" * 32])
def test_refuses_what_is_not_hex(text):
    with pytest.raises(ValueError, match="hex characters only"):
        parse_message_id(text)


@pytest.mark.parametrize("width", [8, 20])
@pytest.mark.parametrize("count", [0, 1, 100])
def test_column_equals_scalar(width, count):
    random = np.random.default_rng(count)
    raw = random.integers(0, 256, (count, width)).astype(np.uint8)
    at = random.integers(-(2**63), 2**63 - 1, count)
    want = [message_id(host.tobytes(), int(offset)) for host, offset in zip(raw, at)]
    column = message_id_column(raw, at)
    column.validate(full=True)
    assert column.to_pylist() == want


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


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("c0a8070800002a9f", "192.168.7.8:10911"),
        ("0000000000000000", "0.0.0.0:0"),
        ("ffffffff0000ffff", "255.255.255.255:65535"),
        ("01020304ffffffff", "1.2.3.4:-1"),
        (IPV6 + "00002a9f", "[2001:db8:0:0:0:0:0:17]:10911"),
        ("00" * 16 + "00000001", "[0:0:0:0:0:0:0:0]:1"),
        ("00" * 10 + "ffff" + "0a01020300003039", "10.1.2.3:12345"),  # IPv4-mapped
    ],
)
def test_formats_as_java(raw, text):
    raw = bytes.fromhex(raw)
    assert format_host(raw) == text
    assert host_column(np.frombuffer(raw, np.uint8).reshape(1, -1)).to_pylist() == [text]


@given(st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20))
def test_parses_what_it_formats(raw):
    if not raw.startswith(bytes(10) + b"\xff\xff"):
        assert parse_host(format_host(raw)) == raw


def test_parses_short_ipv6():
    assert parse_host("[2001:db8::17]:10911") == bytes.fromhex(IPV6 + "00002a9f")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.2.3.4",
        "1.2.3:80",
        "1.2.3.4:x",
        "2001:db8::17:80",
        "[::1]",
        "h:80",
        "1.2.3.4:99999999999",
    ],
)
def test_refuses_what_is_no_host(text):
    with pytest.raises(ValueError, match="expected a host"):
        parse_host(text)


@pytest.mark.parametrize("length", [0, 4, 9, 21])
def test_hosts_of_other_lengths_are_refused(length):
    with pytest.raises(ValueError, match="8 or 20"):
        format_host(bytes(length))
    with pytest.raises(ValueError, match="8"):
        host_column(np.zeros((1, length), np.uint8))


@pytest.mark.parametrize("width", [8, 20])
@pytest.mark.parametrize("distinct", [1, 3, 500])
def test_hosts_of_a_column_equal_scalar(width, distinct):
    random = np.random.default_rng(distinct)
    hosts = random.integers(0, 256, (distinct, width)).astype(np.uint8)
    if width == 20:
        hosts[0, :12] = [0] * 10 + [255, 255]
    raw = np.concatenate([hosts, hosts[random.integers(0, distinct, 500)]])
    want = [format_host(row.tobytes()) for row in raw]
    assert host_column(raw).to_pylist() == want
    assert host_column(raw[::2]).to_pylist() == want[::2]  # not contiguous


@pytest.mark.parametrize("width", [8, 20])
def test_column_of_no_rows(width):
    assert host_column(np.zeros((0, width), np.uint8)).to_pylist() == []
