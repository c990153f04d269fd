# SPDX-License-Identifier: Apache-2.0
"""The records of a transaction: half message, copy for another check, commit, op, discarded copy.

Only values, of single messages and in columns. Source: RocketMQ ``TransactionalMessageBridge``,
``EndTransactionProcessor.endMessageTransaction``, ``DefaultTransactionalMessageCheckListener``,
``TransactionalMessageServiceImpl.getOpMessage`` (releases 5.3.3 and 4.9.7).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.arrow import pa, pc
from store_core.codec.java_hash_map import hash_map_string
from store_core.codec.java_string import java_integer
from store_core.codec.message_codec import string_to_properties
from store_core.layout import (
    PROPERTY_DELAY,
    PROPERTY_SEPARATOR,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_MASK,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from store_core.message import Message
from store_core.topics import (
    CHECK_TIMES,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    numbers_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from store_core.codec.message_batch_codec import MessageColumns
    from store_core.codec.record_frames import RecordFrames

    Int64s = npt.NDArray[np.int64]

TRANSACTION_PREPARED = "TRAN_MSG"
TRANSACTION_ID = "__transactionId__"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
REMOVE_TAG = "d"
OP_SEPARATOR = ","

_RELEASE_4 = 4
_WAIT = "WAIT"
_QUEUE_ID_BITS = 32
_OFFSET_BITS = 64
# Each offset is followed by a comma; a single one, as brokers up to 5.0 write it, is not.
_OP_OFFSET = re.compile(rb"(?:^|(?<=,))[0-9]{1,18}(?=,|$)")
_ONLY_DIGITS = r"^[0-9]{1,18}$"
_MAX_QUEUE_ID = 2**31 - 1
_OP_PROPERTIES = f"{_WAIT}\1true\2{PROPERTY_TAGS}\1{REMOVE_TAG}"
"""In the order of a new message's map, which has 16 slots."""
_REMOVED_BY_COMMIT = (REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED)


class TransactionState(Enum):
    """A producer's answer about its transaction; names are those of ``LocalTransactionState``."""

    COMMIT_MESSAGE = "commit"
    ROLLBACK_MESSAGE = "rollback"
    UNKNOW = "unknown"

    @property
    def sys_flag(self) -> int:
        """The answer as it is sent (``commitOrRollback``)."""
        return _SYS_FLAGS[self]


_SYS_FLAGS = {
    TransactionState.COMMIT_MESSAGE: TRANSACTION_COMMIT_TYPE,
    TransactionState.ROLLBACK_MESSAGE: TRANSACTION_ROLLBACK_TYPE,
    TransactionState.UNKNOW: TRANSACTION_NOT_TYPE,
}


class HalfFacts(NamedTuple):
    """Facts about a transaction in the properties of its half message.

    Attributes
    ----------
    transaction_id
        Property UNIQ_KEY, which identifies the copies of one half message; None without one.
    topic, queue_id
        Destination of a commit; None if it is not given, or the queue id is not valid.
    check_times
        Checks so far; -1 if the counter is not a number, as in RocketMQ, None if it is absent.
    immunity_s
        ``CHECK_IMMUNITY_TIME_IN_SECONDS``; -1 if it is not a number, None if it is absent.
    prepared_queue_offset
        Queue offset of the first copy, in a copy that was made while immune; else None.
    """

    transaction_id: str | None
    topic: str | None
    queue_id: int | None
    producer_group: str | None
    check_times: int | None
    immunity_s: int | None
    prepared_queue_offset: int | None


def half_facts(properties: Mapping[str, str]) -> HalfFacts:
    """Read the facts from the properties of a half message."""

    def number(name: str, bits: int) -> int | None:
        text = properties.get(name)
        if text is None:
            return None
        found = java_integer(text, bits)
        return -1 if found is None else found

    queue_id = number(REAL_QUEUE_ID, _QUEUE_ID_BITS)
    return HalfFacts(
        transaction_id=properties.get(PROPERTY_UNIQ_KEY),
        topic=properties.get(REAL_TOPIC),
        queue_id=None if queue_id is None or queue_id < 0 else queue_id,
        producer_group=properties.get(PRODUCER_GROUP),
        check_times=number(CHECK_TIMES, _QUEUE_ID_BITS),
        immunity_s=number(CHECK_IMMUNITY_TIME, _OFFSET_BITS),
        prepared_queue_offset=number(PREPARED_QUEUE_OFFSET, _OFFSET_BITS),
    )


def half_message(message: Message, release: int = 5) -> Message:
    """Return the half message that is stored for a message that opens a transaction.

    Source: ``TransactionalMessageBridge.parseHalfMessageInner``.

    Parameters
    ----------
    release
        5, or 4: no ``__transactionId__``, and properties as 4.9.7 writes them.
    """
    raw = message.properties_raw
    properties = dict(message.properties) if raw is None else string_to_properties(raw)
    unique_key = properties.get(PROPERTY_UNIQ_KEY)
    if unique_key and release != _RELEASE_4:
        properties[TRANSACTION_ID] = unique_key
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QUEUE_ID] = str(message.queue_id)
    return _stored(
        message,
        topic=HALF_TOPIC,
        queue_id=0,
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
        properties_raw=hash_map_string(properties, as_release_4=release == _RELEASE_4),
    )


def checked_half(half: Message, check_times: int | None) -> Message:
    """Return the copy of a half message that is stored before its producer is asked.

    Source: ``TransactionalMessageBridge.renewHalfMessageInner``; its copy loses ``flag``, and so
    does the commit. This copy keeps it.

    Parameters
    ----------
    check_times
        The counter of the copy; unchanged if None.
    """
    return _stored(half, properties_raw=_renewed(half, check_times, {}))


def immune_half(half: Message, check_times: int | None) -> Message:
    """Return the copy of a half message whose producer must not be asked yet.

    Source: ``TransactionalMessageBridge.renewImmunityHalfMessageInner``. The copy names the queue
    offset of the first one. Parameters as of `checked_half`.
    """
    first = string_to_properties(half.properties_raw or b"").get(PREPARED_QUEUE_OFFSET)
    added = {_WAIT: "false", PREPARED_QUEUE_OFFSET: first or str(half.queue_offset)}
    return _stored(half, properties_raw=_renewed(half, check_times, added))


def discarded_half(half: Message) -> Message:
    """Return the copy of a half message that was checked too often.

    Source: ``DefaultTransactionalMessageCheckListener.toMessageExtBrokerInner``.
    """
    return _stored(half, topic=DISCARD_TOPIC, queue_id=0)


def commit_message(half: Message) -> Message:
    """Return the message that consumers get, as its record is stored.

    Its properties are those of the half message, byte for byte: RocketMQ encodes the string before
    it removes REAL_TOPIC, REAL_QID and TRAN_MSG from the map.

    Raises
    ------
    ValueError
        The half message has no valid destination.
    """
    facts = half_facts(string_to_properties(half.properties_raw or b""))
    if not facts.topic or facts.queue_id is None:
        raise ValueError(
            f"the half message at {half.commit_log_offset} has no {REAL_TOPIC}, or its "
            f"{REAL_QUEUE_ID} is not a queue"
        )
    return _stored(
        half,
        topic=facts.topic,
        queue_id=facts.queue_id,
        sys_flag=half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT_TYPE,
        prepared_transaction_offset=half.commit_log_offset,
    )


def is_delayed(properties: Mapping[str, str]) -> bool:
    """Return whether a commit goes to a delay level."""
    level = java_integer(properties.get(PROPERTY_DELAY, ""), _QUEUE_ID_BITS)
    return level is not None and level > 0


def delayed_properties(half: Message) -> dict[str, str]:
    """Return the properties of a commit that goes to a delay level, before it is sent there.

    The hook encodes the string again, from the map without the removed properties.
    """
    properties = string_to_properties(half.properties_raw or b"")
    return {name: v for name, v in properties.items() if name not in _REMOVED_BY_COMMIT}


def op_message(body: bytes, queue_id: int, now_ms: int, release: int = 5) -> Message:
    """Return the message that marks half messages as done; its hosts are the store's.

    Source: ``TransactionalMessageBridge.makeOpMessageInner``.
    """
    return Message(
        OP_TOPIC,
        body,
        queue_id=queue_id,
        born_timestamp=now_ms,
        properties_raw=_op_properties(release),
    )


def op_bodies(
    queue_offsets: npt.ArrayLike, max_size: int, release: int = 5
) -> tuple[list[bytes], Int64s]:
    """Return the bodies of the op messages that end half messages, and how many each ends.

    Parameters
    ----------
    release
        5, or 4: one offset per message, without a comma.
    """
    queue_offsets = np.asarray(queue_offsets, np.int64)
    if release == _RELEASE_4:
        texts = pa.array(queue_offsets).cast(pa.string()).cast(pa.binary())
        return texts.to_pylist(), np.ones(len(queue_offsets), np.int64)
    texts = queue_offsets.astype("U20")
    # Of the offsets 7, 42, 1000 with their commas ends = [2, 5, 10]. With max_size 4, the first
    # body stops at the first end of 4 or more: "7,42,". The next stops at 5 + 4 or more: "1000,".
    ends = np.cumsum(np.char.str_len(texts) + 1)
    bodies, counts, first = [], [], 0
    while first < len(texts):
        before = int(ends[first - 1]) if first else 0
        stop = min(int(np.searchsorted(ends, before + max_size)) + 1, len(texts))
        bodies.append((OP_SEPARATOR.join(texts[first:stop].tolist()) + OP_SEPARATOR).encode())
        counts.append(stop - first)
        first = stop
    return bodies, np.array(counts, np.int64)


def op_offsets(body: bytes) -> list[int]:
    """Return the half queue offsets that an op message ends; other texts are ignored."""
    return [int(word) for word in _OP_OFFSET.findall(body)]


def named_offsets(bodies: Any) -> tuple[Int64s, Int64s]:
    """Return row and half queue offset of each offset in a column of bodies, in order."""
    # In ["7,8,", "x,9"] the words are 7 8 "" x 9, of rows 0 0 0 1 1; only digits remain.
    words = pc.split_pattern(bodies, OP_SEPARATOR)
    row = pc.list_parent_indices(words)
    flat = pc.list_flatten(words)
    good = pc.match_substring_regex(flat, _ONLY_DIGITS)
    offsets = flat.filter(good).cast(pa.string()).cast(pa.int64())
    return row.filter(good).to_numpy().astype(np.int64), offsets.to_numpy()


def commit_batch(columns: MessageColumns) -> Any:
    """Return the commits of half messages as ``append_batch`` takes them; see `commit_message`.

    Rows without a valid destination have a null topic, which a put refuses.
    """
    frames = columns.frames
    queue_id = numbers_of(columns.property_values(REAL_QUEUE_ID))
    topic = columns.property_values(REAL_TOPIC)
    is_queue = pa.array((queue_id >= 0) & (queue_id <= _MAX_QUEUE_ID))
    topic = pc.if_else(is_queue, topic, pa.scalar(None, pa.string()))
    flags = frames.column("sys_flag") & ~TRANSACTION_MASK | TRANSACTION_COMMIT_TYPE
    return pa.record_batch(
        {
            "topic": topic,
            "body": columns.column("body"),
            "properties_raw": columns.column("properties_raw"),
            "queue_id": pa.array(np.where(is_queue, queue_id, 0).astype(np.int32)),
            "flag": columns.column("flag"),
            "sys_flag": pa.array(flags.astype(np.int32)),
            "born_timestamp": pa.array(frames.column("born_timestamp")),
            "born_host": _raw_hosts(frames, "born_host"),
            "store_host": _raw_hosts(frames, "store_host"),
            "reconsume_times": columns.column("reconsume_times"),
            "prepared_transaction_offset": columns.column("commit_log_offset"),
        }
    )


def transaction_keys(columns: MessageColumns) -> Any:
    """Return keys that identify the copies of one half message: time of birth and UNIQ_KEY.

    Null without a UNIQ_KEY: nothing connects the copies. The time of birth, which copies keep, is
    included because producers may give a key twice.
    """
    born = pa.array(columns.frames.column("born_timestamp")).cast(pa.string())
    return pc.binary_join_element_wise(born, columns.property_values(PROPERTY_UNIQ_KEY), ":")


def transaction_key(half: Message) -> str | None:
    """Return the key of one half message, as in `transaction_keys`."""
    key = half.unique_key
    return None if key is None else f"{half.born_timestamp}:{key}"


def op_batch(bodies: list[bytes], queue_id: int, now_ms: int, release: int = 5) -> Any:
    """Return op messages as ``append_batch`` takes them."""
    count = len(bodies)
    return pa.record_batch(
        {
            "topic": pa.repeat(pa.scalar(OP_TOPIC), count).dictionary_encode(),
            "body": pa.array(bodies, pa.binary()),
            "queue_id": pa.repeat(pa.scalar(queue_id, pa.int32()), count),
            "born_timestamp": pa.repeat(pa.scalar(now_ms, pa.int64()), count),
            "properties_raw": pa.repeat(pa.scalar(_op_properties(release), pa.binary()), count),
        }
    )


def _raw_hosts(frames: RecordFrames, field: str) -> Any:
    """Return hosts as stored: 8 or 20 bytes per row."""
    groups = frames.hosts(field)
    parts = [
        pa.array(raw.view(f"V{raw.shape[1]}")[:, 0].tolist(), pa.binary()) for _, raw in groups
    ]
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([rows for rows, _ in groups]))
    return pa.concat_arrays(parts).take(pa.array(order))


def _op_properties(release: int) -> bytes:
    closing = "" if release == _RELEASE_4 else chr(PROPERTY_SEPARATOR)
    return (_OP_PROPERTIES + closing).encode()


def _renewed(half: Message, check_times: int | None, added: Mapping[str, str]) -> bytes:
    raw = half.properties_raw or b""
    properties = string_to_properties(raw)
    if check_times is not None:
        properties[CHECK_TIMES] = str(check_times)
    properties.update(added)
    # The properties of a half message may end with a separator or not: its copy does the same.
    is_closed = raw.endswith(bytes([PROPERTY_SEPARATOR]))
    return hash_map_string(properties, as_release_4=not is_closed)


def _stored(message: Message, **changed: Any) -> Message:
    """Return a message to be stored, with the content and the origin of another."""
    fields: dict[str, Any] = {
        "topic": message.topic,
        "body": message.body,
        "queue_id": message.queue_id,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_timestamp": message.born_timestamp,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "properties_raw": message.properties_raw,
    }
    return Message(**{**fields, **changed})
