# SPDX-License-Identifier: Apache-2.0
"""Writes a store as large as a large broker's, for example 1 TiB, in sparse files (1 GB of disk).

``python -m bench.make_huge_store DIRECTORY`` creates one.
"""

from __future__ import annotations

import argparse
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from bench.index_writer import IndexWriter
from bench.make_store import write_small_files
from bench.store_content import BORN_HOST, FIRST_TIMESTAMP_MS, STORE_HOST, java_hash
from store_core.layout import (
    BLANK_MAGIC_CODE,
    COMMIT_LOG_DIR,
    CONFIG_DIR,
    CONSUME_QUEUE_DIR,
    CQ_UNIT,
    HEADER_IPV4,
    INDEX_DIR,
    MESSAGE_MAGIC_CODE,
    RECORD_PREFIX,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

BODY_BYTES = 100
KEYED_EVERY = 100
"""One in this many messages has a unique key and a key, and so two index entries."""
GROUPS_PER_TOPIC = 2
_DIGITS = 9
_UNIQUE, _KEY = b"UNIQ_KEY", b"KEYS"
_OTHER = {_UNIQUE: b"SEQUENCE", _KEY: b"NOTE"}  # as long, of messages without keys
_UNIQUE_PREFIX = b"7F00000100002A9F18B4000"
_TAG = b"tag0"


@dataclass(frozen=True)
class HugeSpec:
    """Dimensions of a store.

    Message ``i`` is of topic ``i % topics``; its queue is the next one of that topic. A blank
    record closes each segment and has most of its bytes. In one of ``big_every`` segments the
    records fill the segment, with bodies of zeros that are holes in the file.
    """

    segments: int = 1000
    segment_bytes: int = 1 << 30
    messages_per_segment: int = 1000
    topics: int = 1250
    queues: int = 8
    units_per_queue_file: int = 300_000
    big_every: int = 250
    index_files: int = 100
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000

    @property
    def messages(self) -> int:
        """Of the whole store."""
        return self.segments * self.messages_per_segment

    @property
    def entries_per_index_file(self) -> int:
        """Odd, so that a file ends with one of a message's two entries, as in RocketMQ."""
        return -(-2 * self.messages // KEYED_EVERY // self.index_files) | 1

    @property
    def big_body_bytes(self) -> int:
        """Chosen so that the records just fit into a segment."""
        return self.segment_bytes // self.messages_per_segment - 1024


def topic_of(number: int) -> str:
    """Return the name of a topic."""
    return f"Topic{number:04d}"


def key_of(message: int) -> str:
    """Return the KEYS property of a message that has one."""
    return f"order{message:0{_DIGITS}d}"


def make_huge_store(root: Path, spec: HugeSpec | None = None) -> None:
    """Write the store; ``root`` must not exist."""
    spec = spec or HugeSpec()
    root.mkdir(parents=True)
    index = IndexWriter(
        root / INDEX_DIR,
        spec.max_hash_slot_num,
        spec.max_index_num,
        rolled_after=spec.entries_per_index_file,
    )
    places = np.empty(spec.messages, np.int64)
    sizes = np.empty(spec.messages, np.int32)
    (root / COMMIT_LOG_DIR).mkdir()
    for segment in range(spec.segments):
        records, step = _records(spec, segment)
        start = segment * spec.segment_bytes
        with (root / COMMIT_LOG_DIR / f"{start:020d}").open("xb") as file:
            _write_segment(file, records, step, spec, is_last=segment + 1 == spec.segments)
        rows = slice(segment * spec.messages_per_segment, (segment + 1) * spec.messages_per_segment)
        places[rows] = records["header"]["commit_log_offset"]
        sizes[rows] = records["header"]["total_size"]
        keyed = np.arange(rows.start, rows.stop)
        keyed = keyed[keyed % KEYED_EVERY == 0]
        if len(keyed):
            index.put(
                _key_hashes(keyed, spec).ravel(),
                np.repeat(places[keyed], 2),
                np.repeat(_store_times(keyed), 2),
            )
    index.close()
    _write_queues(root / CONSUME_QUEUE_DIR, places, sizes, spec)
    names = [topic_of(number) for number in range(spec.topics)]
    last_ms = int(_store_times(np.array([spec.messages - 1]))[0])
    write_small_files(root, last_ms, index.full_end_timestamp, names, spec.queues)
    _write_consumer_offsets(root, spec)


def _store_times(numbers: Int64s) -> Int64s:
    return FIRST_TIMESTAMP_MS + 1000 * numbers


def _records(spec: HugeSpec, segment: int) -> tuple[npt.NDArray[np.void], int]:
    """Return the records of a segment, and the distance between their beginnings.

    If the distance exceeds the length of a record here, its body continues with zeros.
    """
    is_big = segment % spec.big_every == spec.big_every - 1
    body_bytes = spec.big_body_bytes if is_big else BODY_BYTES
    written = 0 if is_big else BODY_BYTES  # zeros are not written
    dtype = _record_dtype(written)
    numbers = segment * spec.messages_per_segment + np.arange(
        spec.messages_per_segment, dtype=np.int64
    )
    body = np.random.default_rng(1).integers(0, 256, written, np.uint8)
    records = np.zeros(len(numbers), dtype)
    step = dtype.itemsize - written + body_bytes
    header = records["header"]
    header["total_size"] = step
    header["magic_code"] = MESSAGE_MAGIC_CODE
    header["body_crc"] = zlib.crc32(bytes(body_bytes) if is_big else body.tobytes()) & 0x7FFFFFFF
    header["queue_id"] = numbers // spec.topics % spec.queues
    header["queue_offset"] = numbers // (spec.topics * spec.queues)
    header["commit_log_offset"] = segment * spec.segment_bytes + step * np.arange(len(numbers))
    header["born_timestamp"] = _store_times(numbers) - 2
    header["born_host"] = np.void(BORN_HOST)
    header["store_timestamp"] = _store_times(numbers)
    header["store_host"] = np.void(STORE_HOST)
    header["body_length"] = body_bytes
    records["body"] = body
    tail = records["tail"]
    tail["topic_length"] = len(topic_of(0))
    tail["topic"] = [topic_of(number).encode() for number in (numbers % spec.topics).tolist()]
    tail["properties"] = [_properties(number) for number in numbers.tolist()]
    tail["properties_length"] = len(_properties(0))
    return records, step


def _record_dtype(body_bytes: int) -> np.dtype[np.void]:
    tail = np.dtype(
        [
            ("topic_length", np.uint8),
            ("topic", f"S{len(topic_of(0))}"),
            ("properties_length", ">u2"),
            ("properties", f"S{len(_properties(0))}"),
        ]
    )
    body = ("body", np.uint8, (body_bytes,))
    return np.dtype([("header", HEADER_IPV4.dtype), body, ("tail", tail)])


def _properties(number: int) -> bytes:
    unique, key = _UNIQUE, _KEY
    if number % KEYED_EVERY:
        unique, key = _OTHER[unique], _OTHER[key]
    pairs = ((unique, _unique_key_of(number)), (key, key_of(number).encode()), (b"TAGS", _TAG))
    return b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs)


def _unique_key_of(number: int) -> bytes:
    return _UNIQUE_PREFIX + b"%09X" % number


def _write_segment(
    file: IO[bytes], records: npt.NDArray[np.void], step: int, spec: HugeSpec, *, is_last: bool
) -> None:
    file.truncate(spec.segment_bytes)
    if step == records.itemsize:
        file.write(memoryview(records.view(np.uint8)))
    else:  # header, a hole, tail
        for row, record in enumerate(records):
            file.seek(row * step)
            file.write(record["header"].tobytes())
            file.seek((row + 1) * step - record["tail"].nbytes)
            file.write(record["tail"].tobytes())
    end = len(records) * step
    if not is_last:
        file.seek(end)
        blank = spec.segment_bytes - end
        file.write(RECORD_PREFIX.pack(total_size=blank, magic_code=BLANK_MAGIC_CODE))


def _key_hashes(numbers: Int64s, spec: HugeSpec) -> Int64s:
    """Return the hashes of unique key and key of messages, one row per message.

    Source: RocketMQ ``IndexFile.indexKeyHashMethod`` (release 5.3.3).
    """
    rows = []
    for number in numbers.tolist():
        start = java_hash(topic_of(number % spec.topics).encode() + b"#")
        keys = (_unique_key_of(number), key_of(number).encode())
        rows.append([java_hash(key, start) for key in keys])
    signed = np.array(rows, np.uint32).view(np.int32).astype(np.int64)
    magnitude = np.abs(signed)
    return np.where(magnitude > 0x7FFFFFFF, 0, magnitude)


def _write_queues(
    directory: Path, places: Int64s, sizes: npt.NDArray[np.int32], spec: HugeSpec
) -> None:
    units = np.empty(spec.messages, CQ_UNIT.dtype)
    units["commit_log_offset"] = places
    units["message_size"] = sizes
    units["tags_code"] = java_hash(_TAG)
    file_bytes = spec.units_per_queue_file * CQ_UNIT.size
    for topic in range(spec.topics):
        of_topic = units[topic :: spec.topics]
        for queue in range(spec.queues):
            place = directory / topic_of(topic) / str(queue)
            place.mkdir(parents=True)
            of_queue = of_topic[queue :: spec.queues].tobytes()
            for start in range(0, max(len(of_queue), 1), file_bytes):
                with (place / f"{start:020d}").open("xb") as file:
                    file.write(of_queue[start : start + file_bytes])
                    file.truncate(file_bytes)


def _write_consumer_offsets(root: Path, spec: HugeSpec) -> None:
    """Write offsets of groups in the middle and at the end of a topic's queues."""
    held = spec.messages // (spec.topics * spec.queues)
    table = {
        f"{topic_of(topic)}@group{group}": {
            str(queue): held // (2 - group % 2) for queue in range(spec.queues)
        }
        for topic in range(spec.topics)
        for group in range(GROUPS_PER_TOPIC)
    }
    text = json.dumps({"offsetTable": table}, indent="\t")
    (root / CONFIG_DIR / "consumerOffset.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m bench.make_huge_store", description=__doc__)
    _parser.add_argument("directory", type=Path)
    make_huge_store(_parser.parse_args().directory)
