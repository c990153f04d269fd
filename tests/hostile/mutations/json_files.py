# SPDX-License-Identifier: Apache-2.0
"""Damage to JSON files, the broker's and this project's own."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

from tests.hostile.mutations.places import data_end, files_below

_NESTED = 100_000

_ODD_JSON = (
    b"", b"{", b"[]", b"null", b"1", b'""', b"{}", b"\xff\xfe{", b"\xef\xbb\xbf{}", b"NaN",
    b"[" * _NESTED, b'{"a":' * _NESTED, b"1" * 5000, b'{"a": 1e999}', b'{"a": "\\ud800"}',
    b'{"a": 1, "a": 2}', b"{}{}", b"\0\0\0\0",
)  # fmt: skip
_ODD_VALUES = (
    None, True, -1, 0, 1, 2**31, 2**63, -(2**63), 1.5, float("inf"), float("nan"), "", "x", "\0",
    "\ud800", [], {}, [[]], {"a": []}, "9" * 5000, "1" * 400, "-1", "\u202e", "../../x", 10**30,
)  # fmt: skip


def json_file(chance: random.Random, root: Path) -> str:
    known = ["topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"]
    found = [path.name for path in files_below(root, "config") if path.suffix == ".json"]
    name = chance.choice([*known, *found, "sinkCommits.json"])
    path = root / "config" / name
    if (root / "config").is_symlink() or (os.path.lexists(path) and not path.is_file()):
        return ""
    if (root / "config").exists() and not (root / "config").is_dir():
        return ""
    path.parent.mkdir(exist_ok=True)
    if chance.random() < 0.3 or not path.exists():
        data = chance.choice(_ODD_JSON)
        path.write_bytes(data)
        return f"{name}: {data[:20]!r}, {len(data)} bytes"
    return f"{name}: " + _odd_value(chance, path)


def _odd_value(chance: random.Random, path: Path) -> str:
    """Put an odd value into a JSON file, or drop a value."""
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return ""
    places = list(_places(values))
    if not places:
        return ""
    holder, key = chance.choice(places)
    if chance.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
        text = f"without {key!a}"
    else:
        holder[key] = chance.choice(_ODD_VALUES)
        text = f"{key!a} = {ascii(holder[key])[:40]}"
    path.write_bytes(json.dumps(values).encode("utf-8", "surrogatepass"))
    return text


def _places(values: object) -> list[tuple[object, object]]:
    found: list[tuple[object, object]] = []
    waiting = [values]
    while waiting:
        value = waiting.pop()
        keys = value.keys() if isinstance(value, dict) else ()
        keys = range(len(value)) if isinstance(value, list) else keys
        for key in keys:
            found.append((value, key))
            waiting.append(value[key])  # type: ignore[index]
    return found


def staging(chance: random.Random, root: Path) -> str:
    """Leave the remains of a job: a journal with odd values, parts, foreign files."""
    place = root / "_staging"
    if place.is_symlink() or (os.path.lexists(place) and not place.is_dir()):
        return ""
    name = chance.choice(["job", "0123456789abcdef", "part", ".hidden"])
    directory = place / name
    if os.path.lexists(directory) and not directory.is_dir():
        return ""
    directory.mkdir(parents=True, exist_ok=True)
    intent = directory / "intent.json"
    if os.path.lexists(intent):
        return ""
    intent.write_bytes(json.dumps(_journal(chance, root)).encode())
    text = ""
    if chance.random() < 0.6:
        text = _odd_value(chance, intent)
    elif chance.random() < 0.3:
        intent.write_bytes(chance.choice(_ODD_JSON))
        text = "odd JSON"
    if chance.random() < 0.3:
        (directory / "part-0.records").write_bytes(chance.randbytes(100))
    if chance.random() < 0.5:
        for path in (*sorted(directory.iterdir()), directory):
            os.utime(path, (1e9, 1e9))
    return f"{name}: {text}"


def _journal(chance: random.Random, root: Path) -> dict[str, object]:
    """Return a journal of a job whose place is the end of the log, or within the log."""
    segments = [path for path in files_below(root, "commitlog") if path.name.isdecimal()]
    end = 0
    if segments:
        path = segments[-1]
        end = int(path.name) + data_end(path, max(path.stat().st_size, 1))
    start = chance.choice([end, 0, max(end - 1000, 0), end + 1])
    return {
        "format": 1, "job": "job", "application": chance.choice([None, "app"]), "version": 3,
        "start_offset": start, "end_offset": start + chance.choice([0, 500, 100_000]),
        "first_bytes": "000000ffdaa320a7", "proof_offset": start, "proof_bytes": 255,
        "proof_crc": 12345, "store_timestamp": 1_700_000_000_000, "messages": 2,
        "record_bytes": 500, "dropped": {},
        "queues": [{"topic": "TopicA", "queue_id": 0, "first_queue_offset": 0, "messages": 2}],
    }  # fmt: skip
