"""JSON with queues as keys, as RocketMQ's clients write and read it (fastjson)."""

from __future__ import annotations

import json
from typing import Any

from rmqnet.client.broker_client import queue_json, queue_of
from rmqnet.client.message_queue import MessageQueue
from store_core.config.lenient_json import json_object, json_whole_number, parse_lenient_json


def to_queue_json(value: Any) -> str:
    """Return a value as JSON in which keys may be queues: they become objects.

    Other keys must be strings. What any parser but fastjson (and this project's) refuses is only
    an object that has such a key.
    """
    if isinstance(value, dict):
        entries = (f"{_key(key)}:{to_queue_json(each)}" for key, each in value.items())
        return "{" + ",".join(entries) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_queue_json, value)) + "]"
    return json.dumps(value, allow_nan=False)


def parse_queue_offsets(text: str) -> dict[MessageQueue, int]:
    """Return the field ``offsetTable`` of a JSON object: an offset for each queue.

    Raises
    ------
    ValueError
        The text is anything else.
    """
    table = json_object(
        json_object(parse_lenient_json(text), "offsets").get("offsetTable"), "offsetTable"
    )
    offsets = {}
    for key, offset in table.items():
        try:
            queue = queue_of(key)
        except (KeyError, TypeError, ValueError) as err:
            raise ValueError(f"offsetTable: a queue was expected as key, not {key!r:.200}") from err
        offsets[queue] = json_whole_number(offset, f"offsetTable: {queue}")
    return offsets


def _key(key: Any) -> str:
    return to_queue_json(queue_json(key)) if isinstance(key, MessageQueue) else json.dumps(key)
