# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec import message_batch_codec
from store_core.codec.java_string import decode_utf8, string_hash
from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.message_codec import (
    encode_message,
    split_keys,
    string_to_properties,
)
from store_core.codec.record_frames import RecordFrames
from store_core.index.index_entries import index_entries
from store_core.index.index_file import key_hash, tag_hash
from tests.examples import examples
from tests.store_factory import BORN_HOST, STORE_HOST

NAMES = {"UNIQ_KEY": "unique", "KEYS": "keys", "TAGS": "tags"}
ROLLBACK, PREPARED, COMMIT = 0xC, 0x4, 0x8
BASE = 1 << 40
words = st.text(st.sampled_from("ab é漢😀#"), max_size=12)
any_bytes = st.binary(max_size=12).map(lambda raw: raw.translate(None, b"\1\2"))
raw_keys = st.one_of(words.map(str.encode), any_bytes)
messages = st.fixed_dictionaries(
    {
        "topic": st.sampled_from([b"A", "Thème".encode(), b"\xff\xe9", "😀".encode()]),
        "unique": st.none() | raw_keys,
        "keys": st.none() | raw_keys,
        "tags": st.none() | raw_keys,
        "sys_flag": st.sampled_from([0, 0, ROLLBACK, PREPARED, COMMIT]),
        "store_timestamp": st.integers(-(2**63), 2**63 - 1),
    }
)


@pytest.fixture(autouse=True, scope="module", params=[0, 1000], ids=["columns", "one by one"])
def _way(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_batch_codec, "_FEW_ROWS", request.param)
        yield


def frames_of(rows):
    data, starts = bytearray(), []
    for row in rows:
        tags = row.get("tags", b"t")
        pairs = [("UNIQ_KEY", row.get("unique")), ("TAGS", tags), ("KEYS", row.get("keys"))]
        raw = b"".join(n.encode() + b"\1" + v + b"\2" for n, v in pairs if v is not None)
        starts.append(len(data))
        data += encode_message(
            topic=row["topic"],
            body=b"body",
            properties_raw=raw,
            commit_log_offset=BASE + len(data),
            queue_offset=0,
            queue_id=0,
            sys_flag=row.get("sys_flag", 0),
            born_timestamp=0,
            born_host=BORN_HOST,
            store_timestamp=row.get("store_timestamp", 5),
            store_host=STORE_HOST,
        )
    frames = RecordFrames(np.frombuffer(bytes(data), np.uint8), BASE, np.array(starts, np.int64))
    assert frames.ok.all()
    return frames


def entries_of(frames, *, with_tags=False):
    return index_entries(MessageColumns(frames), with_tags=with_tags)


def expected(rows, frames, *, with_tags=False):
    """Return the entries record by record, as ``IndexService.buildIndex`` makes them."""
    found = []
    for row, offset in zip(rows, frames.column("commit_log_offset").tolist()):
        if row.get("sys_flag", 0) == ROLLBACK:
            continue
        pairs = {name: row.get(key) for name, key in NAMES.items()}
        raw = b"".join(n.encode() + b"\1" + v + b"\2" for n, v in pairs.items() if v is not None)
        properties = string_to_properties(raw)
        keys = [properties.get("UNIQ_KEY"), *split_keys(properties.get("KEYS", ""))]
        if with_tags and "TAGS" in properties:
            keys.append(f"T#{properties['TAGS']}")
        topic = decode_utf8(row["topic"])
        time = row.get("store_timestamp", 5)
        found += [(key_hash(topic, key), offset, time) for key in keys if key]
    return found


def as_rows(entries):
    return list(zip(*(column.tolist() for column in entries[:3])))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(messages, min_size=1, max_size=8), st.booleans())
def test_entries_equal_those_made_one_by_one(rows, with_tags):
    frames = frames_of(rows)
    entries = entries_of(frames, with_tags=with_tags)
    assert as_rows(entries) == expected(rows, frames, with_tags=with_tags)
    assert entries.last_record_offset == BASE + int(frames.position[-1])
    assert [column.dtype.name for column in entries[:3]] == ["int32", "int64", "int64"]


def test_unique_key_comes_first_and_repeats_stay():
    frames = frames_of([{"topic": b"T", "keys": b"a  b a ", "unique": b"U"}])
    hashes = [key_hash("T", key) for key in ("U", "a", "b", "a")]
    assert entries_of(frames).key_hash.tolist() == hashes


def test_tags_come_last_as_one_text():
    frames = frames_of([{"topic": b"T", "keys": b"a", "unique": b"U", "tags": b"b c"}])
    hashes = [key_hash("T", key) for key in ("U", "a", "T#b c")]
    assert entries_of(frames, with_tags=True).key_hash.tolist() == hashes
    assert tag_hash("T", "b c") == hashes[-1]


def test_known_hashes():
    frames = frames_of([{"topic": b"TopicA", "keys": b"k0 common", "unique": b"U0"}])
    hashes = [1903241332, 1903240650, 1869674884]
    assert entries_of(frames).key_hash.tolist() == hashes


def test_the_lowest_hash_is_zero():
    # seven characters from "0" on are digits of base 31, enough for any number of 32 bits
    rest = (-(2**31) - string_hash("T#" + "0" * 7)) % 2**32
    digits = [rest // 31**place % 31 for place in range(6, -1, -1)]
    key = "".join(chr(ord("0") + digit) for digit in digits)
    assert string_hash("T#" + key) == -(2**31)
    frames = frames_of([{"topic": b"T", "keys": key.encode()}])
    assert entries_of(frames).key_hash.tolist() == [0]


def test_the_longest_key():
    key = "k" * (32767 - len("UNIQ_KEY\1\2") - len("TAGS\1t\2"))
    frames = frames_of([{"topic": b"T", "unique": key.encode()}])
    assert entries_of(frames).key_hash.tolist() == [key_hash("T", key)]


@pytest.mark.parametrize("sys_flag", [0, ROLLBACK])
def test_records_without_entries_are_seen(sys_flag):
    keys = b"a" if sys_flag else None
    frames = frames_of([{"topic": b"T", "keys": keys, "sys_flag": sys_flag}])
    entries = entries_of(frames)
    assert len(entries.key_hash) == 0
    assert entries.last_record_offset == BASE


def test_no_records():
    entries = entries_of(frames_of([{"topic": b"T"}]).take(np.empty(0, np.int64)))
    assert as_rows(entries) == []
    assert entries.last_record_offset == -1
