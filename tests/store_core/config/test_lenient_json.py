# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.config.config_checks import camel_case
from store_core.config.config_files import (
    SubscriptionGroupConfig,
    TopicConfig,
    find_config_file,
    parse_consumer_offsets,
    parse_delay_offsets,
    parse_group_configs,
    parse_topic_configs,
)
from store_core.config.consumer_filter_file import parse_consumer_filters
from store_core.config.lenient_json import decode_lenient_json, parse_lenient_json
from store_core.errors import StoreFormatError
from store_core.files.store_directory import StoreDirectory

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ANSWERS = json.loads(Path(__file__).with_name("fastjson_answers.json").read_text("utf-8"))
CASES = ANSWERS["cases"]


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


# Files of settings are read as by RocketMQ's own releases, whose answers are pinned.


def as_answers(kind, found):
    """Return the result of a read in the form of the answers."""
    if kind in {"offsets", "lmq"}:
        return {f"{topic}@{group}": queues for (group, topic), queues in found.items()}
    if kind in {"topics", "groups"}:
        return {name: differences(config) for name, config in found.items()}
    if kind == "filter":
        return [(f.topic, f.consumer_group, f.expression, f.born_timestamp) for f in found]
    return found


def differences(config):
    standard = type(config)("")
    assert isinstance(config, (TopicConfig, SubscriptionGroupConfig))
    return {
        camel_case(each.name): getattr(config, each.name)
        for each in fields(config)[1:]
        if getattr(config, each.name) != getattr(standard, each.name)
    }


def of_release(kind, answer):
    """Return an answer in the form of `as_answers`; brokers skip keys that name no group."""
    if kind == "lmq":
        answer = {key: {0: offset} for key, offset in answer.items()}
    if kind in {"offsets", "lmq"}:
        return {
            key: {int(queue_id): offset for queue_id, offset in queues.items()}
            for key, queues in answer.items()
            if all(key.partition("@"))
        }
    if kind == "delay":
        return {int(level): offset for level, offset in answer.items()}
    if kind == "filter":
        return [
            (topic, group, f.get("expression", ""), f.get("bornTime", 0))
            for topic, groups in answer.items()
            for group, f in groups.items()
        ]
    return answer


FILES = {
    "topics": ("topics.json", parse_topic_configs),
    "groups": ("subscriptionGroup.json", parse_group_configs),
    "offsets": ("consumerOffset.json", parse_consumer_offsets),
    "lmq": ("lmqConsumerOffset.json", parse_consumer_offsets),
    "delay": ("delayOffset.json", parse_delay_offsets),
    "filter": ("consumerFilter.json", parse_consumer_filters),
}


def read(tmp_path, kind, text):
    name, convert = FILES[kind]
    place = tmp_path / "config" / name
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(text.encode("latin-1"))
    try:
        found = find_config_file(StoreDirectory(str(tmp_path)), name, convert)
    except StoreFormatError:
        return None
    return as_answers(kind, {} if found is None else found[0])


@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_read_where_a_release_reads_it_and_as_that_release_does(tmp_path, kind):
    wrong = []
    for case_kind, text, *answers in CASES:
        if case_kind != kind:
            continue
        taken = [of_release(kind, a) for a in answers if a is not None and a != "untried"]
        found = read(tmp_path, kind, text)
        if (found is None) != (not taken) or (taken and found not in taken):
            wrong.append((text, found, taken))
    assert not wrong
