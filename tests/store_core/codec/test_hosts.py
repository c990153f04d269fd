from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.hosts import format_host, host_column, parse_host

IPV6 = "20010db8000000000000000000000017"


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
    with pytest.raises(ValueError, match="no host in the form"):
        parse_host(text)


@pytest.mark.parametrize("length", [0, 4, 9, 21])
def test_refuses_other_lengths(length):
    with pytest.raises(ValueError, match="8 or 20"):
        format_host(bytes(length))
    with pytest.raises(ValueError, match="8"):
        host_column(np.zeros((1, length), np.uint8))


@pytest.mark.parametrize("width", [8, 20])
@pytest.mark.parametrize("distinct", [1, 3, 500])
def test_column_equals_scalar(width, distinct):
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
