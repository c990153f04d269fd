from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.config.lenient_json import parse_lenient_json

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
        "{1:2,}",
        "{,}",
        "{1:2}}",
        "{1.5:2}",
        "{a:2}",
        "{'a':2}",
        "{true:2}",
        "{[1]:2}",
        '{{"a":[1]}:2}',
        "{1:[2,]}",
        "{1:[2}",
        "{1:tru}",
        "{1:01}",
        "{1:NaN}",
        "[NaN]",
        '{1:"a}',
        "{1:2 3:4}",
        "{1:-}",
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
