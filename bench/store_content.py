# SPDX-License-Identifier: Apache-2.0
"""The messages in the benchmark stores: message ``i`` is a function of ``i``.

They look like those of ``JavaBaseline.message``: four properties, 16 queues, one key each.
Names have fixed widths, so that all records between two powers of ten are equally long and a
run of them is one numpy array.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.layout import HEADER_IPV4, MESSAGE_MAGIC_CODE

if TYPE_CHECKING:
    import numpy.typing as npt

SMALL_TOPIC = "TopicSmall"
"""As long as the other names, so that one in a hundred messages is one in a hundred bytes."""
SMALL_EVERY = 100
TENTH_TOPIC = "TopicTenth"
"""A tenth of the small topic: in a store ten times as large, it has the small topic's size."""
TENTH_EVERY = 1000
QUEUES = 4
TAGS = 7
FIRST_TIMESTAMP_MS = 1_700_000_000_000
BORN_HOST = bytes([10, 1, 2, 3]) + (12345).to_bytes(4, "big")
STORE_HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
BODY_POOL = 1024
"""Number of different bodies in a store; at 1 KB, too many for any cache level."""

_UNIQ_PREFIX = b"7F00000100002A9F18B40000"
_UNIQ_PREFIX_TEXT = _UNIQ_PREFIX.decode()
_KEY_PREFIX = b"order"


def topic_names(topics: int) -> list[str]:
    """Return the names by topic number; the small topics come last."""
    if not 1 <= topics <= 10:
        raise ValueError(f"topics must be 1 to 10, not {topics}")
    return [f"TopicTest{number}" for number in range(topics)] + [SMALL_TOPIC, TENTH_TOPIC]


def topic_numbers(index: npt.NDArray[np.int64], topics: int) -> npt.NDArray[np.int64]:
    """Return the topic number of each message."""
    small = index % SMALL_EVERY == SMALL_EVERY - 1
    tenth = index % TENTH_EVERY == TENTH_EVERY // 2
    return np.where(small, topics, np.where(tenth, topics + 1, index % topics))


def topic_of(index: int, topics: int = 4) -> str:
    """Return the topic name of message ``index``."""
    if index % SMALL_EVERY == SMALL_EVERY - 1:
        return SMALL_TOPIC
    return TENTH_TOPIC if index % TENTH_EVERY == TENTH_EVERY // 2 else f"TopicTest{index % topics}"


def key_of(index: int) -> str:
    """Return the KEYS property of message ``index``."""
    return f"order{index}"


def unique_key_of(index: int) -> str:
    """Return the UNIQ_KEY property of message ``index``."""
    return f"{_UNIQ_PREFIX_TEXT}{index:08X}"


def java_hash(text: bytes, start: int = 0) -> int:
    """Return Java's ``String.hashCode`` of ASCII ``text`` as an unsigned number."""
    value = start
    for byte in text:
        value = (value * 31 + byte) & 0xFFFFFFFF
    return value


def tags_codes() -> npt.NDArray[np.int64]:
    """Return the tags code of ``tag0``, ``tag1``, …: the signed hash."""
    hashes = np.array([java_hash(b"tag%d" % tag) for tag in range(TAGS)], np.uint32)
    return hashes.view(np.int32).astype(np.int64)


class Run(NamedTuple):
    """Columns of consecutive messages whose records are equally long."""

    number: npt.NDArray[np.int64]
    topic: npt.NDArray[np.int64]
    queue_id: npt.NDArray[np.int64]
    tag: npt.NDArray[np.int64]
    store_timestamp: npt.NDArray[np.int64]
    key_digits: npt.NDArray[np.uint8]
    uniq_digits: npt.NDArray[np.uint8]


def make_run(start: int, count: int, topics: int) -> Run:
    """Return messages ``start`` to ``start + count``, whose numbers have equally many digits."""
    index = np.arange(start, start + count, dtype=np.int64)
    topic = topic_numbers(index, topics)
    small = topic >= topics
    divisor = np.where(topic == topics, SMALL_EVERY, TENTH_EVERY)
    digits = len(str(start))
    hexadecimal = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    return Run(
        number=index,
        topic=topic,
        queue_id=np.where(small, index // divisor, index // topics) % QUEUES,
        tag=index % TAGS,
        store_timestamp=FIRST_TIMESTAMP_MS + index,
        key_digits=_digit_columns(index, digits, 10).astype(np.uint8) + np.uint8(ord("0")),
        uniq_digits=hexadecimal[_digit_columns(index, 8, 16)],
    )


def _digit_columns(index: npt.NDArray[np.int64], digits: int, base: int) -> npt.NDArray[np.int64]:
    columns = np.empty((len(index), digits), np.int64)
    rest = index
    for place in range(digits - 1, -1, -1):
        rest, columns[:, place] = np.divmod(rest, base)
    return columns


def same_length_stop(index: int) -> int:
    """Return the first index after ``index`` with a longer record."""
    return int(10 ** len(str(index)))


class RecordBuilder:
    """Encodes runs of messages of one store."""

    def __init__(self, body_bytes: int, topics: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self._bodies = generator.integers(0, 256, (BODY_POOL, body_bytes), np.uint8)
        crcs = [zlib.crc32(body.tobytes()) & 0x7FFFFFFF for body in self._bodies]
        self._crcs = np.array(crcs, np.int64)
        self._body_bytes = body_bytes
        self._topics = np.array([name.encode() for name in topic_names(topics)], "S10")

    def record_bytes(self, index: int) -> int:
        """Return the length of the record of message ``index``."""
        return self._dtype(len(str(index))).itemsize

    def _dtype(self, digits: int) -> np.dtype[np.void]:
        """One complete record; the texts between the varying parts are separate fields."""
        return np.dtype(
            [
                ("header", HEADER_IPV4.dtype),
                ("body", np.uint8, (self._body_bytes,)),
                ("topic_length", np.uint8),
                ("topic", "S10"),
                ("properties_length", ">u2"),
                *_property_fields(digits),
            ]
        )

    def encode(
        self,
        run: Run,
        commit_log_offset: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.void]:
        """Return the finished records of a run."""
        dtype = self._dtype(run.key_digits.shape[1])
        records = np.zeros(len(run.number), dtype)
        body = (run.number * 7919) % BODY_POOL
        header = records["header"]
        header["total_size"] = dtype.itemsize
        header["magic_code"] = MESSAGE_MAGIC_CODE
        header["body_crc"] = self._crcs[body]
        header["queue_id"] = run.queue_id
        header["queue_offset"] = queue_offset
        header["commit_log_offset"] = commit_log_offset
        header["born_timestamp"] = run.store_timestamp - 2
        header["born_host"] = np.void(BORN_HOST)
        header["store_timestamp"] = run.store_timestamp
        header["store_host"] = np.void(STORE_HOST)
        header["body_length"] = self._body_bytes
        records["body"] = self._bodies[body]
        records["topic_length"] = self._topics.itemsize
        records["topic"] = self._topics[run.topic]
        fields = _property_fields(run.key_digits.shape[1])
        records["properties_length"] = np.dtype(fields).itemsize
        _fill_properties(records, run)
        return records


def property_strings(run: Run) -> npt.NDArray[np.void]:
    """Return the property strings of a run."""
    strings = np.empty(len(run.number), np.dtype(_property_fields(run.key_digits.shape[1])))
    _fill_properties(strings, run)
    return strings


def _property_fields(digits: int) -> list[Any]:
    return [
        ("uniq_name", f"V{len(b'UNIQ_KEY=' + _UNIQ_PREFIX)}"),
        ("uniq_digits", np.uint8, (8,)),
        ("keys_name", f"V{len(b';KEYS=' + _KEY_PREFIX)}"),
        ("key_digits", np.uint8, (digits,)),
        ("tags_name", f"V{len(b';TAGS=tag')}"),
        ("tag", np.uint8),
        ("wait", f"V{len(b';WAIT=true;')}"),
    ]


def _fill_properties(records: npt.NDArray[np.void], run: Run) -> None:
    def text(pattern: bytes) -> np.void:
        return np.void(pattern.replace(b"=", b"\x01").replace(b";", b"\x02"))

    records["uniq_name"] = text(b"UNIQ_KEY=" + _UNIQ_PREFIX)
    records["uniq_digits"] = run.uniq_digits
    records["keys_name"] = text(b";KEYS=" + _KEY_PREFIX)
    records["key_digits"] = run.key_digits
    records["tags_name"] = text(b";TAGS=tag")
    records["tag"] = run.tag + ord("0")
    records["wait"] = text(b";WAIT=true;")


def key_hashes(run: Run, topics: int) -> npt.NDArray[np.int64]:
    """Return the index hashes of unique key and key, one row per message.

    Source: RocketMQ ``IndexFile.indexKeyHashMethod`` (release 5.3.3).
    """
    columns = []
    for prefix, digits in ((_UNIQ_PREFIX, run.uniq_digits), (_KEY_PREFIX, run.key_digits)):
        starts = [java_hash(name.encode() + b"#" + prefix) for name in topic_names(topics)]
        value = np.array(starts, np.uint32)[run.topic]
        for place in range(digits.shape[1]):
            value = value * np.uint32(31) + digits[:, place]
        signed = value.view(np.int32).astype(np.int64)
        magnitude = np.abs(signed)
        columns.append(np.where(magnitude > 0x7FFFFFFF, 0, magnitude))
    return np.stack(columns, axis=1)
