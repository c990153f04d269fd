from __future__ import annotations

import json
from pathlib import Path

import pytest

from store_core.config_files import load_delay_offsets, load_topics
from store_core.config_writing import merge_delay_offsets, merge_topics
from store_core.errors import StoreFormatError
from store_core.files.store_directory import StoreDirectory


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


@pytest.mark.parametrize("text", ["{", "[]", '{"topicConfigTable":[]}', "\udcff"])
def test_what_no_broker_wrote_is_left_alone(tmp_path, text):
    path = config(tmp_path, "topics.json", "")
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(StoreFormatError, match=r"topics\.json"):
        merge_topics(str(tmp_path), {"a": 1}, 7, put)
    assert path.read_bytes() == text.encode(errors="surrogateescape")


def test_levels_begin_at_zero_and_stay_where_messages_wait(tmp_path):
    config(tmp_path, "delayOffset.json", '{"offsetTable":{1:5,2:7}}')
    directory = StoreDirectory(str(tmp_path))
    offsets = {1: (5, 9), 2: (8, 12), 3: (0, 0), 4: (6, 8)}
    assert merge_delay_offsets(str(tmp_path), offsets, 7, put)
    # Level 1 had nothing waiting, level 2 one message; of level 4 nobody knows.
    assert load_delay_offsets(directory) == {1: 9, 2: 7, 3: 0, 4: 0}
    assert not merge_delay_offsets(str(tmp_path), {3: (0, 0)}, 7, put)


def test_a_new_store_gets_a_file_without_levels(tmp_path):
    merge_delay_offsets(str(tmp_path), {}, 7, put)
    assert load_delay_offsets(StoreDirectory(str(tmp_path))) == {}
