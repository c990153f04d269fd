from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.message_id import message_id, message_id_column, parse_message_id

hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
offsets = st.integers(-(2**63), 2**63 - 1)


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
