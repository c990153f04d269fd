# SPDX-License-Identifier: Apache-2.0
"""Small stores made of messages with the scalar codec, for tests to damage, cut and compare."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from store_core.codec.java_string import string_hash
from store_core.codec.message_codec import (
    StoredRecord,
    decode_message,
    encode_blank,
    encode_message,
    properties_to_bytes,
    split_keys,
    string_to_properties,
)
from store_core.codec.message_id import parse_host
from store_core.config.message_store_config import MessageStoreConfig
from store_core.index.index_file import key_hash
from store_core.layout import (
    BLANK_RECORD_BYTES,
    CHECKPOINT,
    CHECKPOINT_FILE_BYTES,
    CQ_UNIT,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_MASK,
    TRANSACTION_NOT_TYPE,
)

START_MS = 1_700_000_000_000
BORN_HOST = parse_host("10.0.0.1:4000")
STORE_HOST = parse_host("10.0.0.9:10911")
_DISPATCHED = (TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE)


@dataclass
class StoreFactory:
    """Appends messages in memory as a broker does; `write` puts the files below ``root``.

    ``data`` is the commit log from ``first_offset`` on, without its unwritten rest; ``records`` are
    its messages. Store times grow by ``step_ms`` a message.
    """

    root: Path
    segment_bytes: int = 4096
    units_per_file: int = 16
    slots: int = 8
    entries: int = 64
    first_offset: int = 0
    step_ms: int = 1000
    data: bytearray = field(default_factory=bytearray)
    records: list[StoredRecord] = field(default_factory=list)
    queues: dict[tuple[str, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    _indexed: list[tuple[int, int, int]] = field(default_factory=list)
    _clock_ms: int = START_MS

    @property
    def end_offset(self) -> int:
        """Where the next record goes if it fits the segment."""
        return self.first_offset + len(self.data)

    def add(
        self,
        topic: str = "TopicA",
        body: bytes = b"body",
        queue_id: int = 0,
        properties: dict[str, str] | None = None,
        *,
        dispatched: bool = True,
        topic_bytes: bytes | None = None,
        **fields: Any,
    ) -> StoredRecord:
        """Append a message; more fields as in `encode_message`. Rolls to the next segment."""
        self._clock_ms += self.step_ms
        queue = self.queues.setdefault((topic, queue_id), []) if dispatched else []
        values: dict[str, Any] = {
            "topic": topic.encode() if topic_bytes is None else topic_bytes,
            "body": body,
            "properties_raw": properties_to_bytes((properties or {}).items()),
            "queue_offset": len(queue),
            "queue_id": queue_id,
            "born_timestamp": self._clock_ms - 5,
            "born_host": BORN_HOST,
            "store_timestamp": self._clock_ms,
            "store_host": STORE_HOST,
            **fields,
        }
        size = len(encode_message(commit_log_offset=0, **values))
        if size + BLANK_RECORD_BYTES > self.left_in_segment:
            self.roll()
        at = self.end_offset
        data = encode_message(commit_log_offset=at, **values)
        self.data += data
        record = decode_message(data, 0, at, "")
        self.records.append(record)
        if dispatched and record.sys_flag & TRANSACTION_MASK in _DISPATCHED:
            self._dispatch(record, queue, topic)
        return record

    def add_bytes(self, data: bytes) -> None:
        """Append bytes that are not a record."""
        self.data += data

    def set_back(self, milliseconds: int) -> None:
        """Set the clock back for the following messages."""
        self._clock_ms -= milliseconds

    def roll(self) -> None:
        """Close the segment with a blank record."""
        left = self.left_in_segment
        self.data += encode_blank(left).ljust(left, b"\0")

    @property
    def left_in_segment(self) -> int:
        """Bytes from the end of the log to the end of its segment."""
        return self.segment_bytes - len(self.data) % self.segment_bytes

    def _dispatch(
        self, record: StoredRecord, queue: list[tuple[int, int, int]], topic: str
    ) -> None:
        properties = string_to_properties(record.properties_raw)
        tags = properties.get("TAGS", "")
        queue.append((record.commit_log_offset, record.total_size, string_hash(tags)))
        keys = [properties.get("UNIQ_KEY", ""), *split_keys(properties.get("KEYS", ""))]
        for key in filter(None, keys):
            self._indexed.append(
                (key_hash(topic, key), record.commit_log_offset, record.store_timestamp)
            )

    def write(
        self,
        *,
        abort: bytes | None = None,
        confirm_phy_offset: int = 0,
        spare_segments: int = 0,
        topics: bool = True,
    ) -> Path:
        """Write all files and return the root; ``abort`` is the content of that file."""
        self._write_segments(spare_segments)
        for (topic, queue_id), units in self.queues.items():
            self._write_queue(self.root / "consumequeue" / topic / str(queue_id), units)
        if self._indexed:
            self._write_index()
        times = [self._clock_ms, self._clock_ms, 0]
        numbers = CHECKPOINT.struct.pack(*times, 0, confirm_phy_offset, 0)
        self._put("checkpoint", numbers.ljust(CHECKPOINT_FILE_BYTES, b"\0"))
        self._put("lock", b"lock")
        if abort is not None:
            self._put("abort", abort)
        if topics:
            names = {topic for topic, _ in self.queues}
            table = {t: {"topicName": t, "readQueueNums": 4, "writeQueueNums": 4} for t in names}
            self._put("config/topics.json", json.dumps({"topicConfigTable": table}).encode())
        return self.root

    def segment_path(self, offset: int = 0) -> Path:
        """Return the file with an offset of the log."""
        return self.root / "commitlog" / f"{offset - offset % self.segment_bytes:020d}"

    def erase(self, record: StoredRecord) -> None:
        """Put zeros in the place of a record, in the file that `write` made."""
        with self.segment_path(record.commit_log_offset).open("r+b") as file:
            file.seek(record.commit_log_offset % self.segment_bytes)
            file.write(bytes(record.total_size))

    def _write_segments(self, spare_segments: int) -> None:
        size = self.segment_bytes
        count = max(-(-len(self.data) // size), 1) + spare_segments
        for number in range(count):
            part = bytes(self.data[number * size : (number + 1) * size]).ljust(size, b"\0")
            self._put(f"commitlog/{self.first_offset + number * size:020d}", part)

    def _write_queue(self, path: Path, units: list[tuple[int, int, int]]) -> None:
        file_bytes = self.units_per_file * CQ_UNIT.size
        for first in range(0, max(len(units), 1), self.units_per_file):
            part = units[first : first + self.units_per_file]
            data = b"".join(CQ_UNIT.struct.pack(*unit) for unit in part)
            self._put(path / f"{first * CQ_UNIT.size:020d}", data.ljust(file_bytes, b"\0"))

    def _write_index(self) -> None:
        held = self.entries - 1  # the first entry is unused
        for number, first in enumerate(range(0, len(self._indexed), held)):
            entries = self._indexed[first : first + held]
            self._put(f"index/2023111422132{number:04d}", self._index_file(entries))

    def _index_file(self, entries: list[tuple[int, int, int]]) -> bytes:
        slots, begin_ms, packed = [0] * self.slots, entries[0][2], [bytes(INDEX_ENTRY.size)]
        for number, (key, offset, time_ms) in enumerate(entries, 1):
            seconds = (time_ms - begin_ms) // 1000
            previous = slots[key % self.slots]
            packed.append(INDEX_ENTRY.struct.pack(key, offset, seconds, previous))
            slots[key % self.slots] = number
        header = INDEX_HEADER.struct.pack(
            begin_ms,
            entries[-1][2],
            entries[0][1],
            entries[-1][1],
            sum(map(bool, slots)),
            len(entries) + 1,
        )
        table = b"".join(INDEX_SLOT.struct.pack(slot) for slot in slots)
        return header + table + b"".join(packed).ljust(self.entries * INDEX_ENTRY.size, b"\0")

    def _put(self, name: str | Path, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def small_store(root: Path, count: int = 60, **sizes: Any) -> StoreFactory:
    """Return a factory with messages of two topics, three queues, tags, keys and IPv6 hosts."""
    factory = StoreFactory(root, **sizes)
    ipv6 = parse_host("[2001:db8::17]:10911")
    for number in range(count):
        factory.add(
            "TopicA" if number % 3 else "TopicB",
            b"body %d " % number * (number % 7),
            queue_id=number % 2,
            properties={"KEYS": f"k{number} all", "TAGS": f"tag{number % 4}", "n": str(number)},
            born_host=ipv6 if number % 5 == 0 else BORN_HOST,
            store_host=ipv6 if number % 11 == 0 else STORE_HOST,
        )
    return factory


PARTLY_INDEXED = MessageStoreConfig(
    max_hash_slot_num=8, max_index_num=16, mapped_file_size_commit_log=1024
)
"""Sizes of `partly_indexed`."""


def partly_indexed(
    root: Path, keys_of_messages: Sequence[Iterable[int]], indexed: int
) -> StoreFactory:
    """Return a factory with messages that have such keys (``k1``, …).

    Only the first ``indexed`` are in the index; none of them or all is allowed.
    """
    factory = StoreFactory(root, segment_bytes=1024, entries=16)
    known = 0
    for number, keys in enumerate(keys_of_messages):
        if number == indexed:
            known = len(factory._indexed)
        factory.add(properties={"KEYS": " ".join(f"k{key}" for key in keys)})
    if indexed < len(keys_of_messages):
        del factory._indexed[known:]
    return factory
