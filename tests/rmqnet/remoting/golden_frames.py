# SPDX-License-Identifier: Apache-2.0
"""Frames between real clients and servers; see tests/golden/remoting/README.md."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2] / "golden" / "remoting"


@dataclass(frozen=True)
class RecordedHeader:
    """A header as values, and the known part of the body."""

    origin: str
    is_answer: bool
    request_code: int
    """Code of the request itself, or of the one that is answered."""
    header: dict[str, Any]
    body: bytes


@dataclass(frozen=True)
class RecordedFrame:
    """A whole frame, byte for byte."""

    origin: str
    is_answer: bool
    request_code: int
    frame: bytes


@functools.cache
def recorded_headers() -> list[RecordedHeader]:
    """Return the headers, all in JSON."""
    return [
        RecordedHeader(
            _origin(row),
            row["kind"] == "response",
            row["request_code"],
            row["header"],
            row["body"].encode() if "body" in row else bytes(row["body_bytes"]),
        )
        for row in _rows("headers.jsonl.gz")
    ]


@functools.cache
def recorded_frames() -> list[RecordedFrame]:
    """Return the frames, of both forms."""
    return [
        RecordedFrame(
            _origin(row),
            row["kind"] == "response",
            row["request_code"],
            base64.b64decode(row["frame"]),
        )
        for row in _rows("frames.jsonl.gz")
    ]


def _rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _origin(row: dict[str, Any]) -> str:
    return f"{row['from']} of a {row['client']} client, {row['kind']} {row['request_code']}"
