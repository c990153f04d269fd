"""JSON laid out as brokers lay it out in their files (fastjson 1.2, ``PrettyFormat``)."""

from __future__ import annotations

import json
from typing import Any


def to_fastjson(value: Any, depth: int = 0) -> str:
    """Return a value as a broker writes it into a file: UTF-8 text without a final line end.

    Objects whose keys are texts have a line for each member, indented by tabs; those whose keys
    are whole numbers, which stand there bare, and lists have one line for all. The order is kept.

    Parameters
    ----------
    value
        Of JSON; keys of objects may be whole numbers.
    depth
        Tabs before the lines of an object.
    """
    if isinstance(value, dict):
        return _object(value, depth) if value else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(to_fastjson(each, depth) for each in value) + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value, allow_nan=False)


def _object(members: dict[Any, Any], depth: int) -> str:
    before = "\n" + "\t" * (depth + 1)
    parts = []
    for key, value in members.items():
        name = f"{before}{_text(key)}" if isinstance(key, str) else str(int(key))
        parts.append(f"{name}:{to_fastjson(value, depth + 1)}")
    return "{" + ",".join(parts) + "\n" + "\t" * depth + "}"


def _text(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    try:
        quoted.encode()
    except UnicodeEncodeError:  # half characters, which Java's strings may hold
        return json.dumps(text)
    return quoted
