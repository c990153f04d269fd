"""The order in which RocketMQ writes properties anew, asked of RocketMQ."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from store_core.codec.java_hash_map import hash_map_string, hash_map_strings
from store_core.codec.java_string import string_hash
from store_core.codec.properties import string_to_properties
from tests.interop import java_oracle

pytestmark = pytest.mark.interop

_COUNT = 20_000
_USUAL = (
    *("KEYS", "TAGS", "UNIQ_KEY", "CLUSTER", "WAIT", "DELAY", "REAL_TOPIC", "REAL_QID", "PGROUP"),
    *("MSG_REGION", "TRACE_ON", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "TRAN_MSG", "Aa", "BB"),
)
_LETTERS = "abcXYZ_09 ößü价格🚀\t\x00\x03"
_MOST_IN_A_BIN = 7  # more may become a tree


def _name(generator: random.Random) -> str:
    if generator.random() < 0.5:
        return generator.choice(_USUAL)
    return "".join(generator.choices(_LETTERS, k=generator.randrange(1, 9)))


def _properties(generator: random.Random) -> bytes:
    count = generator.choice((1, 3, 8, 12, 13, 30, 95, 97, 200))
    if count > len(_USUAL):
        count = count if generator.random() < 0.1 else 5
    parts = [
        f"{_name(generator)}\1{generator.choice(('v', 'ö', 'a b', chr(1), ''))}"
        for _ in range(count)
    ]
    raw = "\2".join(parts).encode() + b"\2" * generator.randrange(3)
    if generator.random() < 0.1:
        raw = raw[: generator.randrange(len(raw) + 1)] + b"\xff\xed\xa0" + raw[4:]
    return raw


def _has_tree(raw: bytes) -> bool:
    """Return whether some bin, of however large a map, may hold too many names."""
    names = string_to_properties(raw)
    spread = [(code := string_hash(name) & 0xFFFFFFFF) ^ code >> 16 for name in names]
    return max(Counter(code & 127 for code in spread).values(), default=0) > _MOST_IN_A_BIN


def test_properties_are_written_anew_in_rocketmqs_order() -> None:
    generator = random.Random(11)
    asked = [_properties(generator) for _ in range(_COUNT)]
    asked = [raw for raw in asked if not _has_tree(raw)]
    assert len(asked) > 0.9 * _COUNT
    expected = java_oracle.encode_anew(asked)
    assert len(set(map(len, expected))) > 100
    assert [hash_map_string(string_to_properties(raw)) for raw in asked] == expected
    closed = pa.array([raw + b"\2" if raw else raw for raw in asked], pa.binary())
    assert hash_map_strings(closed).to_pylist() == expected
