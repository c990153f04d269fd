# SPDX-License-Identifier: Apache-2.0
"""Arbitrary records, and their values by the scalar codec: the reference for the columnar one."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from store_core.codec.compression import deflate
from store_core.codec.message_codec import decode_message, encode_message
from store_core.layout import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    INNER_ITEM,
    NEED_UNWRAP_FLAG,
)

host = (
    st.binary(min_size=8, max_size=8)
    | st.binary(min_size=20, max_size=20)
    | st.binary(min_size=8, max_size=8).map(lambda b: bytes(10) + b"\xff\xff" + b)
)
int4 = st.integers(-(2**31), 2**31 - 1)
int8 = st.integers(-(2**63), 2**63 - 1)
time_ms = st.one_of(
    int8,
    st.sampled_from([-62135596800001, -62135596800000, 253402300799999, 253402300800000, 0, -1]),
    st.integers(1_600_000_000_000, 1_800_000_000_000),
)
_NAMES = [
    b"KEYS",
    b"TAGS",
    b"UNIQ_KEY",
    b"INNER_BASE",
    b"a",
    b"ab",
    b"b",
    "ü".encode(),
    b"\xed\xa0",
]
# Separators anywhere, Java's encoded surrogates, bytes that are not UTF-8, NUL, spaces.
_PIECES = st.sampled_from(
    [b"\0", b"\1", b"\2", b" ", b"k", b"\xff", b"\xed\xa0\x80\xed\xb0\x80", "é€𝄞".encode(), b"7"]
)
odd_bytes = st.lists(_PIECES, max_size=6).map(b"".join)
_PLAIN = st.sampled_from([b"v", b"k1 k2", b" k1  k2 ", b" ", b"12", b"-3", b"+9", "٣".encode()])
_pair = st.tuples(st.sampled_from(_NAMES), _PLAIN | odd_bytes)


def _joined(pairs, closed) -> bytes:
    text = b"\2".join(name + b"\1" + value for name, value in pairs)
    return text + b"\2" if closed and text else text


usual = st.lists(st.tuples(st.sampled_from(_NAMES[:7]), _PLAIN), max_size=5).map(
    lambda pairs: _joined(pairs, closed=True)
)
many = st.integers(65, 90).map(
    lambda n: _joined([(b"n%d" % (i % 80), b"v%d" % i) for i in range(n)], closed=True)
)
property_bytes = st.one_of(
    usual,
    odd_bytes,
    st.builds(_joined, st.lists(_pair, max_size=5), st.booleans()),
    st.binary(max_size=30),
    many,
)


def pack_items(items) -> bytes:
    """Return the body of an inner batch of (flag, body, properties)."""
    return b"".join(
        INNER_ITEM.pack(total_size=0, magic_code=0, body_crc=0, flag=flag, body_length=len(body))
        + body
        + len(properties).to_bytes(2, "big")
        + properties
        for flag, body, properties in items
    )


inner_items = st.lists(st.tuples(int4, st.binary(max_size=20), property_bytes), max_size=4)
_KINDS = st.sampled_from([0x000, 0x100, 0x200, 0x300, 0x700])


@st.composite
def _bodies(draw):
    """Return (body, bits of the sys flag)."""
    body = draw(st.binary(max_size=60))
    flags = draw(st.sampled_from([0, 0, 4, 8, 0xC, NEED_UNWRAP_FLAG, INNER_BATCH_FLAG]))
    if draw(st.integers(0, 2)) == 0:
        flags |= NEED_UNWRAP_FLAG | INNER_BATCH_FLAG
        if draw(st.integers(0, 3)):
            body = pack_items(draw(inner_items))
    if draw(st.booleans()):
        kind = draw(_KINDS)
        flags |= COMPRESSED_FLAG | kind
        if kind != 0x700 and draw(st.integers(0, 3)):
            body = deflate(body, kind)
    if draw(st.integers(0, 9)) == 0:
        body = body[: len(body) // 2]
    return body, flags


@st.composite
def _fields(draw):
    body, flags = draw(_bodies())
    magic = None
    return {
        "topic": draw(st.sampled_from([b"T", b"", b"\xff\xed\xa0\x80", b"x" * 127, b"y" * 200])),
        "body": body,
        "properties_raw": draw(property_bytes),
        "queue_offset": draw(int8),
        "queue_id": draw(int4),
        "born_timestamp": draw(time_ms),
        "born_host": draw(host),
        "store_timestamp": draw(time_ms),
        "store_host": draw(host),
        "flag": draw(int4),
        "sys_flag": (draw(int4) & ~0x7FD) | flags,
        "reconsume_times": draw(int4),
        "prepared_transaction_offset": draw(int8),
        "stored_body_crc": draw(st.none() | int4),
        "magic_code": magic,
    }


def place_records(fields, base_offset):
    """Encode records back to back from ``base_offset`` on; return bytes, positions, decoded."""
    data, positions, records = b"", [], []
    for values in fields:
        at = len(data)
        data += encode_message(commit_log_offset=base_offset + at, **values)
        positions.append(at)
        records.append(decode_message(data, at, base_offset + at, "log"))
    return np.frombuffer(data, np.uint8), np.array(positions, np.int64), records


record_lists = st.builds(
    place_records, st.lists(_fields(), max_size=8), st.sampled_from([0, 7, 2**40, 2**62])
)
