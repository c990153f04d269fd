# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqsource.explore.diff_stores import BY_POSITION, DIFF_COLUMNS, compare_stores
from rmqsource.options.source_options import SourceOptions, parse_options
from store_core import Message, MessageStore, MessageStoreConfig, PutMessageStatus
from tests.golden_store import GoldenStore, golden


def options_of(store: GoldenStore, **extra: str) -> SourceOptions:
    return parse_options({"path": str(store.root), **store.options, **extra})


@pytest.mark.parametrize("by", ["key", "position"])
@pytest.mark.parametrize("name", ["cluster-5x", "classic-5x", "batch-5x", "empty-5x"])
def test_a_store_equals_itself(name: str, by: str) -> None:
    store = golden(name)
    found = compare_stores(options_of(store), options_of(store), by)
    assert found.rows == []
    assert found.same == found.messages_a == found.messages_b


@pytest.mark.parametrize("by", ["key", "position"])
def test_what_was_cut_off_is_on_one_side_only(by: str) -> None:
    whole, cut = golden("crashed-5x"), golden("torn-5x", recovered=True)
    found = compare_stores(options_of(whole), options_of(cut), by)
    assert (found.messages_a, found.messages_b, found.same) == (900, 800, 800)
    kept = {m["commit_log_offset"] for m in cut.dump("messages")}
    lost = [m["msg_id"] for m in whole.dump("messages") if m["commit_log_offset"] not in kept]
    assert [row["message_id"] for row in found.rows] == lost
    assert {row["difference"] for row in found.rows} == {"only in A"}
    assert tuple(found.rows[0]) == DIFF_COLUMNS
    back = compare_stores(options_of(cut), options_of(whole), by)
    assert {row["difference"] for row in back.rows} == {"only in B"}
    assert sorted(row["message_id"] for row in back.rows) == sorted(lost)


def test_a_changed_record_differs(tmp_path: Path) -> None:
    store = golden("cluster-5x")
    root = store.copy_to(tmp_path)
    message = next(m for m in store.dump("messages") if m.get("topic") == "orders")
    place = message["commit_log_offset"] // 131072 * 131072
    segment = root / "commitlog" / f"{place:020d}"
    data = bytearray(segment.read_bytes())
    data[message["commit_log_offset"] - place + 19] = 77  # the last byte of the flag
    segment.write_bytes(bytes(data))
    changed = parse_options({"path": str(root), **store.options})
    for by in ("key", BY_POSITION):
        (row,) = compare_stores(options_of(store), changed, by).rows
        assert row["difference"] == "differs"
        assert row["message_id"] == row["other_message_id"] == message["msg_id"]
        assert row["other_store"] == str(root)


def test_filters_hold_on_each_side() -> None:
    store = golden("cluster-5x")
    orders, jobs = options_of(store, topic="orders"), options_of(store, topic="jobs")
    found = compare_stores(orders, jobs)
    assert (found.messages_a, found.messages_b, found.same) == (236, 16, 0)
    assert [row["difference"] for row in found.rows] == ["only in A"] * 236 + ["only in B"] * 16


def test_twice_here_is_not_once_there() -> None:
    store = golden("cluster-5x")
    paths = json.dumps([str(store.root), str(store.root) + "/"])
    twice = parse_options({"paths": paths, **store.options})
    found = compare_stores(twice, options_of(store))
    assert found.messages_a == 2 * found.messages_b
    assert len(found.rows) == found.same == found.messages_b
    assert {row["difference"] for row in found.rows} == {"only in A"}


def _store(root: Path, messages: list[Message]) -> SourceOptions:
    with MessageStore(MessageStoreConfig(store_path_root_dir=str(root))) as store:
        for message in messages:
            assert store.put_message(message).status is PutMessageStatus.PUT_OK
    return parse_options({"path": str(root)})


def _message(number: int, key: str | None, body: bytes = b"equal") -> Message:
    properties = {} if key is None else {"UNIQ_KEY": key}
    return Message(
        topic="t", queue_id=number % 2, body=body, born_timestamp=1, properties=properties
    )


@pytest.mark.parametrize("by", ["key", "position"])
def test_a_mirror_that_gave_messages_a_key_is_equal(tmp_path: Path, by: str) -> None:
    """All are equal except the keys that the mirror gave; each third has its own on both sides."""
    own = [f"own{number}" if number % 3 == 0 else None for number in range(200)]
    keys = [key or f"given{number}" for number, key in enumerate(own)]
    a = _store(tmp_path / "a", [_message(*each) for each in enumerate(own)])
    b = _store(tmp_path / "b", [_message(*each) for each in enumerate(keys)])
    for found in (compare_stores(a, b, by), compare_stores(b, a, by)):
        assert (found.rows, found.same, found.messages_a, found.messages_b) == ([], 200, 200, 200)


@pytest.mark.parametrize("by", ["key", "position"])
def test_without_a_key_the_place_tells_what_differs(tmp_path: Path, by: str) -> None:
    a = _store(tmp_path / "a", [_message(0, None), _message(2, None, b"changed"), _message(4, "k")])
    b = _store(tmp_path / "b", [_message(0, "x"), _message(2, "y"), _message(4, "other")])
    rows = compare_stores(a, b, by).rows
    differs = [(row["difference"], row["queue_offset"], row["unique_key"]) for row in rows]
    if by == "position":
        assert differs == [("differs", 1, None), ("differs", 2, "k")]
    else:
        assert differs == [("differs", 1, None), ("only in A", 2, "k"), ("only in B", 2, "other")]


def test_unknown_way() -> None:
    options = options_of(golden("onefile-5x"))
    with pytest.raises(ValueError, match="'key' or 'position'"):
        compare_stores(options, options, "size")
