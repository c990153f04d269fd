from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.properties import string_to_properties
from store_core.message import Message
from store_core.put.put_properties import (
    property_string,
    property_value,
    queue_names,
    set_property,
    waits_for_flush,
    with_light_offsets,
)

PAIRS = st.lists(
    st.tuples(st.sampled_from(["A", "AB", "WAIT"]), st.sampled_from(["1", "true", "x"]))
)


def raw_of(pairs, closed):
    text = "\2".join(f"{name}\1{value}" for name, value in pairs)
    return (text + "\2" * (closed and bool(text))).encode()


def test_properties_are_stored_in_their_order_and_raw_ones_unchanged():
    message = Message("T", properties={"b": "1", "a": "ü\ud800"}, tags="t")
    assert property_string(message) == "b\x011\2a\1ü?\2TAGS\1t\2".encode()
    assert property_string(Message("T")) == b""
    raw = b"\2no pair\2a\1\2a\0011"
    assert property_string(Message("T", properties={"x": "y"}, properties_raw=raw)) == raw


def test_a_property_that_is_no_string_is_told():
    with pytest.raises(TypeError, match="property 'b' is 1: names and values"):
        property_string(Message("T", properties={"a": "x", "b": 1}))
    with pytest.raises(TypeError, match="property 'a' is None"):
        property_string(Message("T", properties={"a": None}))


@given(PAIRS, st.booleans(), st.sampled_from(["A", "AB", "C"]))
def test_a_property_is_set_once_and_the_others_stay(pairs, closed, name):
    raw = raw_of(pairs, closed)
    done = set_property(raw, name, "new")
    assert string_to_properties(done) == {**string_to_properties(raw), name: "new"}
    assert done.count(b"new") == 1
    assert done.endswith(b"\2")
    place = [n for n, _ in pairs].index(name) if name in dict(pairs) else len(pairs)
    assert done.split(b"\2")[place] == name.encode() + b"\1new"


@given(PAIRS, st.booleans())
def test_only_wait_says_that_nobody_waits(pairs, closed):
    raw = raw_of(pairs, closed)
    assert waits_for_flush(raw) == (dict(pairs).get("WAIT", "true") == "true")
    assert property_value(raw, "A") == dict(pairs).get("A")


@pytest.mark.parametrize(
    ("value", "names"), [("%LMQ%a,b,,", ["%LMQ%a", "b"]), (" ", []), (",x", ["", "x"]), (",", [])]
)
def test_names_of_light_queues(value, names):
    assert queue_names(f"INNER_MULTI_DISPATCH\1{value}\2".encode()) == names
    assert queue_names(b"INNER_MULTI_DISPATCHED\1x\2") == []


def test_offsets_stand_where_the_light_queues_are_named():
    names = ["%LMQ%a", "other", "%LMQ%b", "%LMQ%a"]
    raw, light = with_light_offsets(b"x\0011", names, {"%LMQ%a": 5, "%LMQ%b": 12}.__getitem__)
    assert raw == b"x\0011\2INNER_MULTI_QUEUE_OFFSET\0015,,12,5\2"
    assert light == ["%LMQ%a", "%LMQ%b"]
