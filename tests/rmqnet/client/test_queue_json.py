from __future__ import annotations

import json

import pytest

from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.queue_json import parse_queue_offsets, to_queue_json


def test_queues_as_keys() -> None:
    offsets = {MessageQueue("t", "b", 3): 4, MessageQueue('a"b', "é", 0): -1}
    text = to_queue_json({"offsetTable": offsets})
    assert text.startswith('{"offsetTable":{{"topic":"t","brokerName":"b","queueId":3}:4,')
    assert parse_queue_offsets(text) == offsets


def test_all_else_is_json() -> None:
    value = {"a": [1, True, None, "é"], "b": {"c": 1.5, "d": {}}}
    assert json.loads(to_queue_json(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"offsetTable":{"a":1}}',
        '{"offsetTable":{{"topic":"t"}:1}}',
        '{"offsetTable":{1:1}}',
        '{"offsetTable":{{"topic":"t","brokerName":"b","queueId":0}:"x"}}',
    ],
)
def test_no_offsets_of_queues(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_queue_offsets(text)


def test_no_table() -> None:
    assert parse_queue_offsets("{}") == {}
