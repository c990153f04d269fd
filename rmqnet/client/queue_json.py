"""Queues in JSON, also as keys of objects, as RocketMQ's clients write and read it (fastjson)."""

from __future__ import annotations

import json
from typing import Any

from rmqnet.client.message_queue import MessageQueue
from store_core.config.lenient_json import json_object, json_whole_number, parse_lenient_json


def queue_from_json(data: Any) -> MessageQueue:
    """Return the queue that a JSON object, or an object that served as key, names."""
    fields = dict(data)
    return MessageQueue(str(fields["topic"]), str(fields["brokerName"]), int(fields["queueId"]))


def queue_json(queue: MessageQueue) -> dict[str, Any]:
    """Return a queue as brokers read it."""
    return {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}


def to_queue_json(value: Any) -> str:
    """Return a value as JSON in which keys may be queues, which become objects, or whole numbers.

    Other keys must be strings. What any parser but fastjson (and this project's) refuses is only
    an object that has such a key.
    """
    if isinstance(value, dict):
        entries = (f"{_key(key)}:{to_queue_json(each)}" for key, each in value.items())
        return "{" + ",".join(entries) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_queue_json, value)) + "]"
    return json.dumps(value, allow_nan=False)


def parse_queue_offsets(text: str, name: str = "offsetTable") -> dict[MessageQueue, int]:
    """Return a field of a JSON object that holds an offset for each queue.

    Raises
    ------
    ValueError
        The text is anything else.
    """
    data = json_object(parse_lenient_json(text), "offsets")
    return {
        queue: json_whole_number(offset, f"{name}: {queue}")
        for queue, offset in queue_table(data, name).items()
    }


def queue_table(data: dict[str, Any], name: str) -> dict[MessageQueue, Any]:
    """Return the field of an object that has queues as keys, sorted by queue.

    Raises
    ------
    ValueError
        It is anything else; the text names the field.
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
