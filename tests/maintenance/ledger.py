# SPDX-License-Identifier: Apache-2.0
"""The content of a store, read from its raw bytes without any code of the product."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MAGIC = {0xDAA320A7: ">b", 0xDAA320AB: ">h"}
_NOT_QUEUED = 0x4
_BORN_V6, _STORE_V6, _INNER_BATCH = 0x10, 0x20, 0x80
_SIMPLE_UNIT, _BATCH_UNIT = 20, 46


class Record(NamedTuple):
    """A message of the log with a whole frame, its own offset right, and a sound body."""

    start: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_ms: int
    sys_flag: int
    body: bytes
    properties: dict[str, str]

    @property
    def is_queued(self) -> bool:
        """It is neither a half message nor a rollback: a queue has it."""
        return not self.sys_flag & _NOT_QUEUED

    @property
    def messages(self) -> list[bytes]:
        """The bodies of its messages: several if it is an inner batch."""
        if not self.sys_flag & _INNER_BATCH:
            return [self.body]
        found, at = [], 0
        while at + 20 <= len(self.body):
            size, length = struct.unpack_from(">i12xi", self.body, at)
            found.append(self.body[at + 20 : at + 20 + length])
            at += max(size, 22)
        return found

    @property
    def key(self) -> str | None:
        """A word by which the index finds it, usable in a query: damaged bytes may be no text."""
        words = self.properties.get("KEYS", "").split(" ")
        return words[0] if words[0].isalnum() else None


class Ledger(NamedTuple):
    """The readable records of a store by place and body, and the records its queues refer to.

    ``begin`` is the offset of the first segment that exists.
    """

    records: dict[tuple[int, bytes], Record]
    units: dict[tuple[str, str], set[tuple[int, int]]]
    is_crashed: bool
    flushed_ms: int
    begin: int

    def is_referred_to(self, record: Record) -> bool:
        """Return whether any unit of the record's queue, at any queue offset, refers to it."""
        place = (record.topic, str(record.queue_id))
        return (record.start, record.size) in self.units.get(place, set())

    def delivered(self) -> set[tuple[int, bytes]]:
        """Return the readable records that a queue refers to."""
        return {key for key, record in self.records.items() if self.is_referred_to(record)}


def read_ledger(root: Path) -> Ledger:
    """Return the current content of the files below a store root."""
    records = {(r.start, r.body): r for path in _segments(root) for r in _records(path)}
    checkpoint = root / "checkpoint"
    times = checkpoint.read_bytes()[:8] if checkpoint.is_file() else b""
    flushed_ms = struct.unpack(">q", times)[0] if len(times) == 8 else 0
    begin = min((int(path.name) for path in _segments(root)), default=0)
    return Ledger(records, _units(root), (root / "abort").exists(), flushed_ms, begin)


def records_in(data: bytes, base: int) -> Iterator[Record]:
    """Yield the sound records in bytes of a log from an offset on; no two overlap."""
    end = 0
    for start in _candidates(data):
        if start < end:
            continue
        record = _record_at(data, start, base)
        if record is not None:
            end = start + record.size
            yield record


def _candidates(data: bytes) -> list[int]:
    found = []
    for magic in _MAGIC:
        at = data.find(magic.to_bytes(4, "big"))
        while at >= 0:
            found.append(at - 4)
            at = data.find(magic.to_bytes(4, "big"), at + 1)
    return sorted(start for start in found if start >= 0)


def _record_at(data: bytes, start: int, base: int) -> Record | None:
    """Return the record there; None if its frame or its body's CRC is wrong."""
    size, magic, crc, queue_id, _, queue_offset, place, sys_flag = struct.unpack_from(
        ">iIIiiqqi", data.ljust(start + 40, b"\0"), start
    )
    stop = start + size
    at = start + 48 + (20 if sys_flag & _BORN_V6 else 8)
    body_at = at + 8 + (20 if sys_flag & _STORE_V6 else 8) + 4 + 8
    if place != base + start or size < 91 or stop > len(data) or body_at + 4 > stop:
        return None
    (store_ms,) = struct.unpack_from(">q", data, at)
    (length,) = struct.unpack_from(">i", data, body_at)
    topic_at = body_at + 4 + length
    width = struct.calcsize(_MAGIC[magic])
    if length < 0 or topic_at + width + 2 > stop:
        return None
    body = data[body_at + 4 : topic_at]
    (topic_length,) = struct.unpack_from(_MAGIC[magic], data, topic_at)
    properties_at = topic_at + width + topic_length
    if topic_length < 0 or properties_at + 2 > stop or zlib.crc32(body) & 0x7FFFFFFF != crc:
        return None
    (properties_length,) = struct.unpack_from(">h", data, properties_at)
    if properties_length < 0 or properties_at + 2 + properties_length != stop:
        return None
    topic = data[topic_at + width : properties_at].decode("utf-8", "replace")
    text = data[properties_at + 2 : stop].decode("utf-8", "replace")
    properties = dict(p.split("\1", 1) for p in text.split("\2") if "\1" in p)
    return Record(
        base + start, size, topic, queue_id, queue_offset, store_ms, sys_flag, body, properties
    )


def _segments(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("commitlog/*") if _is_segment(path))


def _is_segment(path: Path) -> bool:
    return len(path.name) == 20 and path.name.isdecimal() and path.is_file()


def _records(path: Path) -> Iterator[Record]:
    yield from records_in(path.read_bytes(), int(path.name))


def _units(root: Path) -> dict[tuple[str, str], set[tuple[int, int]]]:
    found: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for kind, width in (("consumequeue", _SIMPLE_UNIT), ("batchconsumequeue", _BATCH_UNIT)):
        for path in root.glob(f"{kind}/*/*/*"):
            if _is_segment(path):
                places = found.setdefault((path.parent.parent.name, path.parent.name), set())
                data = path.read_bytes()
                for at in range(0, len(data) - width + 1, width):
                    places.add(struct.unpack_from(">qi", data, at))
    return found


def kept_records(root: Path) -> set[tuple[int, bytes]]:
    """Return place and body of the records in the copies of bytes that were cut."""
    copies = [path for path in root.glob("_cut/*/*") if _is_segment(path)]
    return {
        (record.start, record.body)
        for path in copies  # which lack the zeros at their ends
        for record in records_in(path.read_bytes() + bytes(100), int(path.name))
    }
