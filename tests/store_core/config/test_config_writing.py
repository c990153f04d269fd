# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from store_core.config.config_files import load_delay_offsets, load_topics
from store_core.config.config_writing import (
    merge_delay_offsets,
    merge_topics,
    to_fastjson,
    write_delay_offsets,
)
from store_core.config.lenient_json import parse_lenient_json
from store_core.errors import StoreFormatError, StoreWriteError
from store_core.files.store_directory import StoreDirectory
from tests.golden_store import golden


def put(path, data):
    Path(path).write_bytes(data)


def config(root, name, text=None):
    path = root / "config" / name
    if text is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return path


def test_new_topics_are_added_as_a_broker_writes_them(tmp_path):
    assert merge_topics(str(tmp_path), {"b": 3, "a": 1}, 7, put)
    text = config(tmp_path, "topics.json").read_text()
    assert text.startswith('{\n\t"dataVersion":{\n\t\t"counter":1,')
    assert list(json.loads(text)["topicConfigTable"]) == ["a", "b"]
    topics = load_topics(StoreDirectory(str(tmp_path)))
    assert (topics["b"].read_queue_nums, topics["b"].write_queue_nums, topics["b"].perm) == (
        3,
        3,
        6,
    )


def test_what_is_there_stays_but_for_queues_that_nobody_would_read(tmp_path):
    known = {"topicName": "a", "perm": 4, "readQueueNums": 2, "writeQueueNums": 2, "order": True}
    given = {
        "dataVersion": {"counter": 4, "timestamp": 1},
        "topicConfigTable": {"a": known, "c": {"topicName": "c"}},
        "x": 1,
    }
    path = config(tmp_path, "topics.json", json.dumps(given))
    assert not merge_topics(str(tmp_path), {"a": 2, "c": 16}, 7, put)
    assert json.loads(path.read_text()) == given
    assert merge_topics(str(tmp_path), {"a": 5}, 7, put)
    changed = json.loads(path.read_text())
    assert changed["topicConfigTable"]["a"] == {**known, "readQueueNums": 5}
    assert changed["dataVersion"] == {"counter": 5, "stateVersion": 0, "timestamp": 7}
    assert changed["x"] == 1


def test_an_empty_file_is_that_of_before(tmp_path):
    config(tmp_path, "topics.json", "")
    config(tmp_path, "topics.json.bak", '{"topicConfigTable":{"old":{"topicName":"old"}}}')
    merge_topics(str(tmp_path), {"new": 1}, 7, put)
    assert set(load_topics(StoreDirectory(str(tmp_path)))) == {"old", "new"}


DAMAGED_TOPICS = {
    '{"topicConfigTable":{"a":[]}}': "topicConfigTable.a: an object was expected, not []",
    '{"topicConfigTable":{"a":{"readQueueNums":"x"}}}': "topicConfigTable.a.readQueueNums: a whole",
    '{"topicConfigTable":{},"dataVersion":[1]}': "dataVersion: an object was expected",
    '{"topicConfigTable":{},"dataVersion":{"counter":"x"}}': "dataVersion.counter: a whole number",
    "{": "a key was expected",
    "[]": "the file: an object was expected, not []",
    "\0" * 100: "a value was expected",
    '{"topicConfigTable":{},"dataVersion":{"stateVersion":{}}}': "dataVersion.stateVersion: a",
    '{"topicConfigTable":{{"x":1}:2}}': "an object as a key: {'x': 1}",
    '{"topicConfigTable":{},"x":1e999}': "JSON compliant",
    '{"x":' * 3000 + "1" + "}" * 3000: "nested too deeply",
}


DAMAGED_DELAYS = {
    '{"offsetTable":[1]}': "offsetTable: an object was expected, not [1]",
    '{"offsetTable":{"3":"x"}}': "offsetTable.3: a whole number was expected, not 'x'",
    '{"offsetTable":{3:[4]}}': "offsetTable.3: a whole number was expected, not [4]",
    '{"offsetTable":{"x":4}}': "offsetTable: a whole number was expected, not 'x'",
    '{"offsetTable":{},"dataVersion":7}': "dataVersion: an object was expected, not 7",
    '{"offsetTable":{},"dataVersion":{"counter":[]}}': "dataVersion.counter: a whole number",
}


@pytest.mark.parametrize("suffix", ["", ".bak"])
@pytest.mark.parametrize(("text", "said"), DAMAGED_TOPICS.items())
def test_topics_that_cannot_be_read_are_made_anew_and_kept(tmp_path, caplog, text, said, suffix):
    path = config(tmp_path, "topics.json" + suffix, text)
    assert merge_topics(str(tmp_path), {"a": 99}, 7, put)
    assert said in caplog.text
    assert load_topics(StoreDirectory(str(tmp_path)))["a"].read_queue_nums == 99
    kept = path if suffix else path.with_name("topics.json.unreadable")
    assert kept.read_text() == text
    assert kept.name in caplog.text


@pytest.mark.parametrize("suffix", ["", ".bak"])
@pytest.mark.parametrize(("text", "said"), DAMAGED_DELAYS.items())
def test_delay_offsets_that_cannot_be_read_are_named_and_left_alone(tmp_path, text, said, suffix):
    path = config(tmp_path, "delayOffset.json" + suffix, text)
    with pytest.raises(StoreFormatError, match=re.escape(said)) as told:
        merge_delay_offsets(str(tmp_path), {1: (0, 0)}, 7, put)
    assert told.value.path == str(path)
    assert path.read_text() == text
    assert not merge_delay_offsets(str(tmp_path), {}, 7, put)


def test_what_a_torn_file_said_before_counts(tmp_path):
    config(tmp_path, "topics.json", '{"topicConfigTable":{"old":{"topi')
    config(tmp_path, "topics.json.bak", '{"topicConfigTable":{"old":{"perm":4}}}')
    merge_topics(str(tmp_path), {"new": 1}, 7, put)
    topics = load_topics(StoreDirectory(str(tmp_path)))
    assert {name: topic.perm for name, topic in topics.items()} == {"old": 4, "new": 6}


def test_bare_numbers_as_keys_are_the_same_topics_and_levels(tmp_path):
    config(tmp_path, "topics.json", '{"topicConfigTable":{1:{"readQueueNums":2},"b":{}}}')
    merge_topics(str(tmp_path), {"1": 3, "c": 1}, 7, put)
    topics = load_topics(StoreDirectory(str(tmp_path)))
    queues = {name: topic.read_queue_nums for name, topic in topics.items()}
    assert queues == {"1": 3, "b": 16, "c": 1}


def test_levels_begin_at_zero_and_stay_where_messages_wait(tmp_path):
    config(tmp_path, "delayOffset.json", '{"offsetTable":{1:5,2:7}}')
    directory = StoreDirectory(str(tmp_path))
    offsets = {1: (5, 9), 2: (8, 12), 3: (0, 0), 4: (6, 8)}
    assert merge_delay_offsets(str(tmp_path), offsets, 7, put)
    # Level 1 had nothing waiting, level 2 one message; nothing is known of level 4.
    assert load_delay_offsets(directory) == {1: 9, 2: 7, 3: 0, 4: 0}
    assert not merge_delay_offsets(str(tmp_path), {3: (0, 0)}, 7, put)


def test_a_new_store_gets_a_file_without_levels(tmp_path):
    merge_delay_offsets(str(tmp_path), {}, 7, put)
    assert load_delay_offsets(StoreDirectory(str(tmp_path))) == {}


_VERSION = '"dataVersion":{\n\t\t"counter":%d,\n\t\t"stateVersion":0,\n\t\t"timestamp":%d\n\t},\n\t'


@pytest.mark.parametrize("name", ["cluster-4x", "cluster-5x", "cluster-5x-ext"])
def test_delay_offsets_are_written_as_a_broker_wrote_them(tmp_path, name):
    written = (golden(name).root / "config" / "delayOffset.json").read_text()
    levels = load_delay_offsets(StoreDirectory(str(golden(name).root)))
    path = config(tmp_path, "delayOffset.json", written)
    write_delay_offsets(str(tmp_path), levels, 7, put)
    counted = re.sub(r'"counter":5|"timestamp":[0-9]+', _counted, written)
    assert path.read_text() == counted
    assert path.with_name("delayOffset.json.bak").read_text() == written


def _counted(found):
    return '"counter":6' if "counter" in found.group() else '"timestamp":7'


def test_levels_that_nobody_names_and_other_content_stay(tmp_path):
    path = config(tmp_path, "delayOffset.json", '{"offsetTable":{2:5,9:1},"a":{"offsetTable":{}}}')
    write_delay_offsets(str(tmp_path), {1: 3, 2: 6}, 7, put)
    expected = '{\n\t"a":{\n\t\t"offsetTable":{}\n\t},\n\t"offsetTable":{1:3,2:6,9:1\n\t}\n}'
    assert path.read_text() == expected


def test_delay_offsets_of_a_new_store_have_a_version(tmp_path):
    write_delay_offsets(str(tmp_path), {2: 6}, 7, put)
    expected = "{\n\t" + _VERSION % (1, 7) + '"offsetTable":{2:6\n\t}\n}'
    assert config(tmp_path, "delayOffset.json").read_text() == expected
    assert not config(tmp_path, "delayOffset.json.bak").exists()


def test_delay_offsets_that_cannot_be_written_name_their_file(tmp_path):
    def fails(path, data):
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreWriteError, match=r"delayOffset\.json"):
        write_delay_offsets(str(tmp_path), {1: 1}, 7, fails)


@pytest.mark.parametrize("name", ["cluster-4x", "cluster-5x", "cluster-5x-ext"])
def test_files_of_brokers_are_written_again_byte_for_byte(name):
    files = [
        path
        for path in (golden(name).root / "config").iterdir()
        if path.name.removesuffix(".bak").endswith(".json")
    ]
    assert len(files) >= 10
    for path in files:
        assert to_fastjson(parse_lenient_json(path.read_text())) == path.read_text(), path


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ({"a": [], "b": {}}, '{\n\t"a":[],\n\t"b":{}\n}'),
        ({'ä\n\t"': None}, '{\n\t"ä\\n\\t\\"":null\n}'),
        ({"a": {1: True, -2: "x"}}, '{\n\t"a":{1:true,-2:"x"\n\t}\n}'),
        (["\ud800"], '["\\ud800"]'),
    ],
)
def test_forms(value, text):
    assert to_fastjson(value) == text
    assert parse_lenient_json(text) == value
