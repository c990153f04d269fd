from __future__ import annotations

import json
from pathlib import Path

import pytest

from store_core.config.consumer_filter_file import (
    ConsumerFilterData,
    load_consumer_filters,
    save_consumer_filters,
)
from store_core.files.store_directory import StoreDirectory
from tests.golden_store import CLUSTER_NAMES, golden


def put(path, data):
    Path(path).write_bytes(data)


def loaded(root):
    return load_consumer_filters(StoreDirectory(str(root)))


def given(root, text):
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerFilter.json").write_text(text)
    return root


@pytest.mark.parametrize("name", CLUSTER_NAMES)
def test_a_brokers_file_is_written_as_it_was_read(name, tmp_path):
    root = golden(name).root
    filters = loaded(root)
    save_consumer_filters(str(tmp_path), filters, put)
    texts = [(r / "config" / "consumerFilter.json").read_text() for r in (root, tmp_path)]
    assert json.loads(texts[0]) == json.loads(texts[1])
    assert loaded(tmp_path) == tuple(sorted(filters, key=lambda data: data.consumer_group))
    first, topic = filters[0], golden(name).config["topics"]["filter"]
    assert (first.topic, first.expression_type, first.bit_count) == (topic, "SQL92", 112)
    assert 0 < first.born_timestamp < first.dead_timestamp
    assert first.is_dead


def test_what_is_missing_has_defaults(tmp_path):
    text = '{"filterDataByTopic":{"t":{"groupFilterData":{"g":{"expression":"a"}}}}}'
    assert loaded(given(tmp_path, text)) == (ConsumerFilterData("t", "g", "a"),)
    save_consumer_filters(str(tmp_path), loaded(tmp_path), put)
    assert loaded(tmp_path) == (ConsumerFilterData("t", "g", "a"),)


@pytest.mark.parametrize("text", ["[]", "{not json", '{"filterDataByTopic":7}'])
def test_what_cannot_be_read_is_kept_when_the_file_is_written(tmp_path, text, caplog):
    given(tmp_path, text)
    filters = (ConsumerFilterData("t", "g", "a"),)
    for _ in range(2):
        save_consumer_filters(str(tmp_path), filters, put)
    assert loaded(tmp_path) == filters
    kept = tmp_path / "config" / "consumerFilter.json.unreadable"
    assert kept.read_text() == text
    assert caplog.text.count(str(kept)) == 1


def test_no_file_and_an_empty_one(tmp_path):
    assert loaded(tmp_path) is None
    assert loaded(given(tmp_path, "{}")) == ()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"filterDataByTopic":[]}',
        '{"filterDataByTopic":{"t":{"groupFilterData":{"g":null}}}}',
        '{"filterDataByTopic":{"t":{"groupFilterData":{"g":7}}}}',
        '{"filterDataByTopic":{"t":{"groupFilterData":{"g":{"bornTime":"x"}}}}}',
        '{"filterDataByTopic":{"t":{"groupFilterData":{"g":{"bloomFilterData":{"bitPos":7}}}}}}',
        '{"filterDataByTopic":{"t":{"groupFilterData":{"g":{"bloomFilterData":{"bitPos":["x"]}}}}}}',
    ],
)
def test_a_file_that_no_broker_writes_counts_as_missing_with_a_warning(text, tmp_path, caplog):
    assert loaded(given(tmp_path, text)) is None
    assert "consumerFilter.json: not what a broker writes" in caplog.text
