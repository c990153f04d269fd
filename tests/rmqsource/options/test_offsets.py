# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle

import pytest

from rmqsource.errors import SourceOptionError
from rmqsource.options.offsets import (
    OffsetBound,
    check_batch_start,
    check_order,
    parse_ending_offsets,
    parse_starting_offsets,
)


def starting(text):
    return parse_starting_offsets("startingOffsets", text)


def batch_start(text):
    check_batch_start("startingOffsets", starting(text))


def ending(text):
    return parse_ending_offsets("endingOffsets", text)


def test_words():
    assert starting(" Earliest ") == OffsetBound("earliest")
    assert ending("LATEST") == OffsetBound("latest")


def test_offsets_by_topic_and_queue():
    bound = starting('{"a|b%":{"0":12,"3":0},"c":{"1":9223372036854775807}}')
    assert bound.kind == "specific"
    assert bound.offsets == {("a|b%", 0): 12, ("a|b%", 3): 0, ("c", 1): 2**63 - 1}
    assert bound.offset_of("a|b%", 0) == 12
    assert bound.offset_of("a|b%", 1) is None
    assert pickle.loads(pickle.dumps(bound)) == bound
    assert isinstance(hash(bound), int)


def test_numbers_of_the_words_leave_the_queue_unbounded():
    assert starting('{"a":{"0":-2,"1":4}}').offsets == {("a", 1): 4}
    assert ending('{"a":{"0":-1,"1":4}}').offsets == {("a", 1): 4}


def test_a_stream_starts_queues_at_their_ends():
    bound = starting('{"a":{"0":-1,"1":4,"2":-2}}')
    assert bound.latest == {("a", 0)}
    assert bound.offsets == {("a", 1): 4}
    assert starting("latest").kind == "latest"


@pytest.mark.parametrize(
    ("parse", "text", "named"),
    [
        (batch_start, "latest", "earliest"),
        (ending, "earliest", "latest"),
        (batch_start, '{"a":{"0":-1}}', "queue 0"),
        (ending, '{"a":{"0":-2}}', "queue 0"),
    ],
)
def test_bounds_that_read_nothing_are_refused(parse, text, named):
    with pytest.raises(SourceOptionError, match=named):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12",
        "[]",
        "{",
        "{}",
        '{"a":{}}',
        '{"a":3}',
        '{"":{"0":1}}',
        '{"a":{"x":1}}',
        '{"a":{"-1":1}}',
        '{"a":{"2147483648":1}}',
        '{"a":{"0":-3}}',
        '{"a":{"0":true}}',
        '{"a":{"0":1.0}}',
        '{"a":{"0":"1"}}',
        '{"a":{"0":null}}',
        '{"a":{"0":9223372036854775808}}',
        '{"a":{"0":1,"0":2}}',
        '{"a":{"0":1,"00":2}}',
        '{"a":{"0":1},"a":{"1":2}}',
        '{"a":' * 100_000,
    ],
)
def test_malformed(text):
    with pytest.raises(SourceOptionError, match=r"^option 'startingOffsets': "):
        starting(text)


def test_order():
    check_order(starting('{"a":{"0":5}}'), ending('{"a":{"0":5}}'))
    check_order(starting('{"a":{"0":5}}'), ending('{"a":{"1":4}}'))
    with pytest.raises(SourceOptionError, match="queue 0 starts at 5, after 4"):
        check_order(starting('{"a":{"0":5}}'), ending('{"a":{"0":4}}'))
