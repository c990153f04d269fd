# SPDX-License-Identifier: Apache-2.0
"""Queues as JSON values and keys, in the form that RocketMQ's clients use (fastjson)."""

from __future__ import annotations

import json
from typing import Any

from rmqnet.client.message_queue import MessageQueue
from store_core.config.lenient_json import json_object, json_whole_number, parse_lenient_json


def queue_from_json(data: Any) -> MessageQueue:
    """Return the queue that a JSON object (a value or a key) describes."""
    fields = dict(data)
    return MessageQueue(str(fields["topic"]), str(fields["brokerName"]), int(fields["queueId"]))


def queue_json(queue: MessageQueue) -> dict[str, Any]:
    """Return a queue as the JSON object that brokers read."""
    return {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}


def to_queue_json(value: Any) -> str:
    """Return a value as JSON; keys may be strings, queues (written as objects) or whole numbers.

    Other parsers than fastjson and this project's reject objects with queues or numbers as keys.
    """
    if isinstance(value, dict):
        entries = (f"{_key(key)}:{to_queue_json(each)}" for key, each in value.items())
        return "{" + ",".join(entries) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_queue_json, value)) + "]"
    return json.dumps(value, allow_nan=False)


def parse_queue_offsets(text: str, name: str = "offsetTable") -> dict[MessageQueue, int]:
    """Return a field of a JSON object that gives an offset for each queue.

    Raises
    ------
    ValueError
        The text or the field has another form.
    """
    data = json_object(parse_lenient_json(text), "offsets")
    return {
        queue: json_whole_number(offset, f"{name}: {queue}")
        for queue, offset in queue_table(data, name).items()
    }


def queue_table(data: dict[str, Any], name: str) -> dict[MessageQueue, Any]:
    """Return an object's field that has queues as keys, sorted by queue.

    Raises
    ------
    ValueError
        The field has another form; the text names the field.
    """
    values = {}
    for key, value in json_object(data.get(name), name).items():
        try:
            values[queue_from_json(key)] = value
        except (KeyError, TypeError, ValueError) as err:
            raise ValueError(f"{name}: a queue was expected as key, not {key!r:.200}") from err
    return dict(sorted(values.items()))


def _key(key: Any) -> str:
    return to_queue_json(queue_json(key)) if isinstance(key, MessageQueue) else json.dumps(key)
