from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.compression import CorruptBodyError
from store_core.codec.inner_batch import (
    InnerItem,
    inner_item_spans,
    is_inner_batch,
    split_inner_batch,
)


def encode_item(item, total_size=0):
    head = struct.pack(">iiiii", total_size, 0, 0, item.flag, len(item.body))
    return head + item.body + struct.pack(">h", len(item.properties_raw)) + item.properties_raw


ITEMS = [
    InnerItem(0, b"first", b"TAGS\x01a\x02"),
    InnerItem(-7, b"", b""),
    InnerItem(2**31 - 1, b"\xff" * 20, b"k\x01v"),
]
BODY = b"".join(map(encode_item, ITEMS))


@pytest.mark.parametrize(
    ("sys_flag", "answer"),
    [(0xC0, True), (0xC1, True), (0x40, False), (0x80, False), (0, False), (-1, True)],
)
def test_an_inner_batch_has_both_bits(sys_flag, answer):
    assert is_inner_batch(sys_flag) is answer


def test_splits_a_body():
    assert split_inner_batch(BODY) == ITEMS
    assert split_inner_batch(b"") == []


def test_sizes_of_items_are_ignored_as_in_rocketmq():
    assert split_inner_batch(encode_item(ITEMS[0], total_size=-99)) == ITEMS[:1]


def test_spans_are_positions_in_the_buffer():
    buf = np.frombuffer(b"before" + BODY + b"after", np.uint8)
    spans = inner_item_spans(buf, 6, 6 + len(BODY))
    assert spans.shape == (3, 5)
    assert spans[:, 0].tolist() == [item.flag for item in ITEMS]
    _, at, length, properties_at, properties_length = spans[0].tolist()
    assert buf[at : at + length].tobytes() == b"first"
    assert buf[properties_at : properties_at + properties_length].tobytes() == b"TAGS\x01a\x02"
    assert inner_item_spans(buf, 6, 6).shape == (0, 5)


def test_a_body_cut_off_anywhere_but_between_messages_is_an_error():
    whole = {0, len(encode_item(ITEMS[0])), len(encode_item(ITEMS[0]) + encode_item(ITEMS[1]))}
    for length in set(range(len(BODY))) - whole:
        with pytest.raises(CorruptBodyError):
            split_inner_batch(BODY[:length])


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 6])
def test_a_wrong_body_length_is_an_error(length):
    body = encode_item(ITEMS[0])
    damaged = body[:16] + struct.pack(">i", length) + body[20:]
    with pytest.raises(CorruptBodyError, match="inner message 0 at byte 0"):
        split_inner_batch(damaged)


@pytest.mark.parametrize("length", [-1, -(2**15), 2**15 - 1])
def test_a_wrong_properties_length_is_an_error(length):
    body = encode_item(ITEMS[1])
    with pytest.raises(CorruptBodyError, match=f"inner message 3 .* properties length {length}"):
        split_inner_batch(BODY + body[:-2] + struct.pack(">h", length))


@given(st.binary(max_size=200))
def test_any_bytes_are_split_or_refused(body):
    try:
        items = split_inner_batch(body)
    except CorruptBodyError:
        return
    assert sum(len(encode_item(item)) for item in items) == len(body)
