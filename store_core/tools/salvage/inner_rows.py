# SPDX-License-Identifier: Apache-2.0
"""Gives new queue offsets to records that have some in their properties."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.arrow import gather_binary
from store_core.codec.message_codec import string_to_properties
from store_core.layout import (
    INNER_BATCH_FLAG,
    LMQ_PREFIX,
    MAX_PROPERTIES_BYTES,
    NOT_QUEUED_BIT,
    PROPERTIES_LENGTH,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
    RECORD_PREFIX,
)
from store_core.put import put_properties
from store_core.put.put_properties import MULTI_SEPARATOR, set_property
from store_core.queue.dispatch_request import LMQ_QUEUE_ID
from store_core.queue.queue_directories import is_directory_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.tools.salvage.moved_offsets import NewQueues

    Int64s = npt.NDArray[np.int64]

_MAX_BATCH = 32767
_SIZE_BYTES = RECORD_PREFIX.at("magic_code")
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)


class InnerRows:
    """Finds inner batches and records of light queues; remembers the topics with batch queues.

    Parameters
    ----------
    is_batch_topic
        Returns whether the queues of a topic are batch queues; None if unknown: then an inner batch
        shows that they are.
    """

    def __init__(
        self,
        is_batch_topic: Callable[[str], bool | None],
        queues: NewQueues,
        *,
        has_light: bool,
    ) -> None:
        self.batch_topics: set[str] = set()
        self.light_names = 0
        self._has_light = has_light
        self._is_batch_topic, self._queues = is_batch_topic, queues

    def look_at(
        self,
        frames: RecordFrames,
        marked: list[tuple[int, bytes]],
        topic_of: Callable[[int], str],
    ) -> BatchOfInnerRows:
        """Return the marked rows of a batch, and how many queue offsets each of its rows takes."""
        counts = np.ones(len(frames), np.int64)
        found = BatchOfInnerRows(frames, counts)
        old_light: dict[str, list[tuple[int, int]]] = {}
        sys_flag = frames.column("sys_flag")
        for row, raw in marked:
            messages = batch_size(int(sys_flag[row]), raw)
            in_batch_queue = self._has_batch_queues(topic_of(row), messages)
            if in_batch_queue:
                counts[row] = max(messages, 1)
            found.add(row, raw, in_batch_queue=in_batch_queue)
            if sys_flag[row] & NOT_QUEUED_BIT:
                continue
            light = {n: offset for n, offset in light_offsets(raw).items() if is_directory_name(n)}
            if not self._has_light:
                self.light_names += len(light)
                continue
            for name, offset in light.items():
                old_light.setdefault(name, []).append((row, offset))
        for name, rows_and_offsets in old_light.items():
            rows, offsets = np.array(rows_and_offsets, np.uint64).astype(np.int64).T
            queue = self._queues.at(name, LMQ_QUEUE_ID)
            new = queue.assign(offsets, np.ones(len(rows), np.int64))
            found.add_light(name, rows, new)
        return found

    def _has_batch_queues(self, topic: str, messages: int) -> bool:
        if topic in self.batch_topics:
            return True
        known = self._is_batch_topic(topic)
        if known or (known is None and messages > 0):
            self.batch_topics.add(topic)
            return True
        return False


class BatchOfInnerRows:
    """Inner batches and records of light queues in one batch; ``counts`` has all of its rows."""

    def __init__(self, frames: RecordFrames, counts: Int64s) -> None:
        self.counts = counts
        self._frames = frames
        self._properties: dict[int, tuple[bytes, bool]] = {}
        self._light: dict[int, dict[str, int]] = {}

    def add(self, row: int, properties_raw: bytes, *, in_batch_queue: bool) -> None:
        """Note a row whose properties may have to change."""
        self._properties[row] = (properties_raw, in_batch_queue)

    def add_light(self, name: str, rows: Int64s, new: Int64s) -> None:
        """Note the new offsets of rows in a light queue."""
        for row, offset in zip(rows.tolist(), new.tolist()):
            self._light.setdefault(row, {})[name] = offset

    def new_records(
        self, queue_offsets: Int64s, most_bytes: int
    ) -> tuple[dict[int, bytes], dict[int, str]]:
        """Return the new bytes of records whose properties change, by row in ascending order.

        Return also why some cannot be rewritten, by row: new offsets have more digits, and there is
        no room for them in the properties or in a segment (``most_bytes``).
        """
        changed: dict[int, bytes] = {}
        too_long: dict[int, str] = {}
        for row, (raw, in_batch_queue) in self._properties.items():
            base, light = int(queue_offsets[row]), self._light.get(row, {})
            new = with_new_offsets(raw, base, light, in_batch_queue=in_batch_queue)
            if new == raw:
                continue
            start = int(self._frames.position[row])
            record = self._frames.data[start : start + int(self._frames.column("total_size")[row])]
            try:
                changed[row] = with_properties(record.tobytes(), len(raw), new)
            except ValueError as err:
                too_long[row] = f"with its new queue offsets {err}"
                continue
            if len(changed[row]) > most_bytes:
                too_long[row] = "with its new queue offsets it does not fit a segment"
        return changed, too_long


def marked_properties(frames: RecordFrames) -> list[tuple[int, bytes]]:
    """Return the rows whose properties contain ``INNER_MARK``, and their properties."""
    raw = gather_binary(frames.data, frames.properties_start, frames.properties_length)
    return [(row, raw[row].as_py()) for row in put_properties.marked_rows(raw).tolist()]


# Source: RocketMQ ``BatchConsumeQueue.assignQueueOffset``, ``LmqDispatch`` (release 5.3.3).
def batch_size(sys_flag: int, properties_raw: bytes) -> int:
    """Return how many messages an inner batch contains; 0 for any other record."""
    if not sys_flag & INNER_BATCH_FLAG:
        return 0
    text = string_to_properties(properties_raw).get(PROPERTY_INNER_NUM, "")
    count = int(text) if _DIGITS.fullmatch(text) else 0
    return count if count <= _MAX_BATCH else 0


def light_offsets(properties_raw: bytes) -> dict[str, int]:
    """Return the queue offset that a record has in each of its light queues."""
    properties = string_to_properties(properties_raw)
    names = properties.get(PROPERTY_INNER_MULTI_DISPATCH, "").split(MULTI_SEPARATOR)
    texts = properties.get(PROPERTY_INNER_MULTI_QUEUE_OFFSET, "").split(MULTI_SEPARATOR)
    if len(names) != len(texts):
        return {}
    pairs = zip(names, texts)
    return {n: int(t) for n, t in pairs if n.startswith(LMQ_PREFIX) and _DIGITS.fullmatch(t)}


def with_new_offsets(
    properties_raw: bytes, base: int, new_light: Mapping[str, int], *, in_batch_queue: bool
) -> bytes:
    """Return the properties with the offsets of the new store; missing properties stay missing."""
    properties = string_to_properties(properties_raw)
    if in_batch_queue and PROPERTY_INNER_BASE in properties:
        properties_raw = set_property(properties_raw, PROPERTY_INNER_BASE, str(base))
    if new_light:
        names = properties[PROPERTY_INNER_MULTI_DISPATCH].split(MULTI_SEPARATOR)
        texts = properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET].split(MULTI_SEPARATOR)
        value = [str(new_light[n]) if n in new_light else t for n, t in zip(names, texts)]
        properties_raw = set_property(
            properties_raw, PROPERTY_INNER_MULTI_QUEUE_OFFSET, MULTI_SEPARATOR.join(value)
        )
    return properties_raw


def with_properties(record: bytes, old_bytes: int, properties_raw: bytes) -> bytes:
    """Return a record with other properties, and with its lengths adjusted.

    Parameters
    ----------
    record, old_bytes
        The record, and the size of its present properties in bytes.

    Raises
    ------
    ValueError
        The new properties are too long.
    """
    if len(properties_raw) > MAX_PROPERTIES_BYTES:
        raise ValueError(f"the properties would have {len(properties_raw)} bytes")
    head = bytearray(record[: len(record) - old_bytes - PROPERTIES_LENGTH.size])
    size = len(head) + PROPERTIES_LENGTH.size + len(properties_raw)
    head[:_SIZE_BYTES] = size.to_bytes(_SIZE_BYTES, "big")
    return bytes(head) + PROPERTIES_LENGTH.pack(value=len(properties_raw)) + properties_raw
