from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.config.lenient_json import decode_lenient_json, parse_lenient_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, 1, "\t"]))
def test_strict_json_inside_a_lenient_object(value, indent):
    text = "{7:" + json.dumps(value, indent=indent) + ' ,\n-3 : {} , "x":[]}'
    assert parse_lenient_json(text) == {7: value, -3: {}, "x": []}


def test_objects_as_keys():
    text = '{"t":{{"brokerName":"a","queueId":2}:59,{"brokerName":"a","queueId":3}:60}}'
    keys = [frozenset({("brokerName", "a"), ("queueId", n)}) for n in (2, 3)]
    assert parse_lenient_json(text) == {"t": {keys[0]: 59, keys[1]: 60}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "{1",
        "{1:",
        "{1:2",
        "{1:2,",
        "{1:2}}",
        "{[1]:2}",
        '{{"a":[1]}:2}',
        "{1:[2}",
        "{1:tru}",
        '{1:"a}',
        "{1:-}",
        "{1:Infinity}",
        "{1:0x10}",
        "{1:4l}",
        "{a.b:1}",
        '{"\\q":1}',
        "# no comment\n{}",
        "{" * 100_000,
        "[" * 100_000,
        "{1:" * 100_000,
        "{" + "1" * 5000 + ":1}",
        "{1:" + "1" * 5000 + "}",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError):
        parse_lenient_json(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{1:2,}", {1: 2}),
        ("{1:[2,],}", {1: [2]}),
        ("{a:2,'b':\"c\"}", {"a": 2, "b": "c"}),
        ("{1:01,2:4L,3:1.5F,4:NaN}", {1: 1, 2: 4, 3: 1.5, 4: None}),
        ("{1:2 3:4}// end", {1: 2, 3: 4}),
        ("/* a */{/* b */1: // c\n2}", {1: 2}),
        ("{'\\x41\\u0042\\0\\'':'\\ud83d\\ude00\n'}", {"AB\0'": "\U0001f600\n"}),
        ('{"a":9007199254740993.0}', {"a": 2**53 + 1}),
        ("{}\0\0\0", {}),
    ],
)
def test_what_fastjson_takes_beside_json_is_taken(text, value):
    assert parse_lenient_json(text) == value


def test_bytes_that_are_not_utf8_and_a_byte_order_mark_are_taken():
    assert decode_lenient_json(b'\xef\xbb\xbf{"a":"\xff"}') == {"a": "\ufffd"}
