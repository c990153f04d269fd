# SPDX-License-Identifier: Apache-2.0
"""Offsets as Spark stores them: read back unchanged, refused if they are something else."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.errors import SourceOptionError
from rmqsource.stream.stream_offset import (
    JOINED,
    RESUMED,
    STARTED,
    Begin,
    StoreOffset,
    StreamOffset,
    StreamOffsetError,
    check_selection,
    selection_of,
)
from store_core.read.log_watch import LogMark
from tests.rmqsource.reading import parsed

_OFFSETS = st.integers(0, 2**63 - 1)
_NAMES = st.text(st.characters(exclude_categories=["Cs"]))
_MARKS = st.builds(LogMark, _OFFSETS, st.text("0123456789abcdef"), st.integers(-(2**63), 2**63 - 1))
_QUEUES = st.dictionaries(st.tuples(_NAMES, st.integers(0, 2**31 - 1)), _OFFSETS, max_size=3)
_STORES = st.builds(
    StoreOffset,
    offset=_OFFSETS,
    first=st.none() | _MARKS,
    last=st.none() | _MARKS,
    queue_offsets=_QUEUES,
    begin=st.none()
    | st.builds(Begin, _OFFSETS, st.sampled_from([STARTED, JOINED, RESUMED]), _QUEUES),
    waiting=st.none() | _OFFSETS,
)


@given(st.dictionaries(_NAMES, _STORES, max_size=3), st.booleans())
def test_an_offset_reads_back_as_it_was_and_as_the_same_text(stores, is_initial):
    offset = StreamOffset(stores, {"table": "keys", "topic": ["a", "b"]}, is_initial)
    text = json.dumps(offset.to_json())
    again = StreamOffset.from_json(json.loads(text))
    assert again == offset
    assert json.dumps(again.to_json()) == text  # Spark compares texts


GOOD = StreamOffset({"/a": StoreOffset(5, LogMark(0, "00", 1), None)}, {"table": "messages"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda o: {}, "not an offset of rocketmq-store"),
        (lambda o: [1], "not an offset of rocketmq-store"),
        (lambda o: None, "not an offset of rocketmq-store"),
        (lambda o: {"topic": {"0": 5}}, "not an offset of rocketmq-store"),
        (lambda o: {**o, "version": 2}, "version 2, this release reads version 1"),
        (lambda o: {**o, "version": "1"}, "version '1'"),
        (lambda o: {"version": 1}, "cannot be read"),
        (lambda o: {**o, "stores": 3}, "cannot be read"),
        (lambda o: {**o, "stores": {"/a": 3}}, "cannot be read"),
        (lambda o: {**o, "stores": {"/a": {}}}, "offset"),
        (lambda o: {**o, "stores": {"/a": {"offset": -1}}}, "found -1"),
        (lambda o: {**o, "stores": {"/a": {"offset": 2**63}}}, "found 9223372036854775808"),
        (lambda o: {**o, "stores": {"/a": {"offset": True}}}, "found True"),
        (lambda o: {**o, "stores": {"/a": {"offset": "5"}}}, "found '5'"),
        (lambda o: {**o, "stores": {"/a": {"offset": 5, "last": 7}}}, "cannot be read"),
        (lambda o: {**o, "stores": {"/a": {"offset": 5, "last": {"offset": 1}}}}, "head"),
        (lambda o: {**o, "stores": {"/a": {"offset": 5, "begin": {"offset": 1, "why": "x"}}}}, "x"),
        (lambda o: {**o, "stores": {"/a": {"offset": 5, "from": {"t": {"x": 1}}}}}, "cannot be"),
    ],
)
def test_what_is_no_offset_is_refused(change, words):
    with pytest.raises(StreamOffsetError, match=r"^offset of the stream: ") as failure:
        StreamOffset.from_json(change(GOOD.to_json()))
    assert words in str(failure.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(1),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["version", "stores", "selection", "offset", "first", "begin", "/a"]
                ),
                inner,
                max_size=5,
            )
        ),
    )
)
def test_any_json_is_read_or_refused(found):
    with contextlib.suppress(StreamOffsetError):
        StreamOffset.from_json(found).to_json()


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"topic": "a,b"}, "topic"),
        ({"topicPattern": "a.*"}, "topicPattern"),
        ({"queueId": "1"}, "queueId"),
        ({"keys": "k"}, "keys"),
        ({"uniqueKeys": "k"}, "uniqueKeys"),
        ({"tags": "x"}, "tags"),
        ({"where": "queue_id > 3"}, "where"),
        ({"sqlFilter": "a > 3"}, "sqlFilter"),
        ({"sqlFilter": "a > 3", "sqlDialect": "4"}, "sqlDialect"),
        ({"table": "keys"}, "table"),
        ({"body": "raw"}, "body"),
        ({"access": "commitlog"}, "access"),
    ],
)
def test_options_that_change_the_rows_must_stay(changed, name):
    before, after = selection_of(parsed("/a")), selection_of(parsed("/a", **changed))
    assert json.loads(json.dumps(after)) == after
    check_selection(StreamOffset({}, after), after)
    for old, new in ((before, after), (after, before)):
        with pytest.raises(SourceOptionError, match=f"^option '{name}': the checkpoint was begun"):
            check_selection(StreamOffset({}, old), new)


@pytest.mark.parametrize(
    "changed",
    [
        {"mode": "PERMISSIVE"},
        {"failOnDataLoss": "false"},
        {"checkCRC": "true"},
        {"maxPartitionBytes": "1m"},
        {"startingTimestamp": "1700000000000"},
    ],
)
def test_other_options_may_change(changed):
    assert selection_of(parsed("/a", **changed)) == selection_of(parsed("/a"))
