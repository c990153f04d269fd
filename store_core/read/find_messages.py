# SPDX-License-Identifier: Apache-2.0
"""All messages that have a key: exact, uncapped and distinct.

The index names candidates; their keys are compared after decoding. Parts of the log the index does
not cover (the unindexed tail, gaps between its files, lost or untrustworthy files, topics of inner
batches) are scanned. Index times are never used: they are whole seconds, and wrong in rolled files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.message_codec import string_to_properties
from store_core.codec.record_frames import holds_inner_batch
from store_core.files.segment_list import merged_ranges
from store_core.layout import NOT_QUEUED_BIT
from store_core.read.find_offsets import KeyOffsets, OffsetSearch, TopicKeys
from store_core.read.key_match import (
    NotIndexedError,
    frames_in,
    has_any_key,
    is_of_topic,
    is_text,
    key_candidates,
    keys_of,
    segment_range,
    text_set,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.codec.message_codec import StoredRecord
    from store_core.codec.record_frames import RecordFrames
    from store_core.message import Message
    from store_core.read.readable_store import ReadableStore

    Bools = npt.NDArray[np.bool_]

_KEPT_RANGE_BYTES = 64 << 10
_KEPT_RANGES = 64
"""Every query has to read what the index lacks, usually a record or two at its end: the keys of up
to this many small ranges are cached (scanning one takes a millisecond)."""


class _KeyQuery(NamedTuple):
    """The query: messages with one of the keys; times in ms, both inclusive, None = open."""

    topic: str
    keys: frozenset[str]
    begin_ms: int | None
    end_ms: int | None


class _KeptRecord(NamedTuple):
    """A record and all its keys; None for an inner batch, whose keys are in its body."""

    record: StoredRecord
    keys: frozenset[str] | None


class KeySearch:
    """Finds messages by key in one store; caches what all queries need."""

    def __init__(self, store: ReadableStore) -> None:
        self._store, self._reader = store, store.reader
        self._times: dict[int, int | None] = {}
        self._kept: dict[tuple[int, int], list[_KeptRecord]] = {}

    def messages(
        self, topic: str, keys: frozenset[str], begin_ms: int | None, end_ms: int | None
    ) -> list[Message]:
        """Return the messages with one of the keys in the order of the log.

        Raises
        ------
        CorruptRecordError
            A part of the log that had to be scanned is damaged.
        """
        possible = frozenset(key for key in keys if key and is_text(key))
        query = _KeyQuery(topic, possible, begin_ms, end_ms)
        if not possible:
            return []
        places, ranges = self._candidates(query)
        records = {}
        for offset in places:
            record = self._reader.find(offset)
            if record is None:  # left over from a cut log, or damaged: the scan shows which
                ranges.append(segment_range(self._store, offset))
            else:
                records[offset] = record
        for start, stop in merged_ranges(ranges):
            for record in self._scan(query, start, stop):
                records[record.commit_log_offset] = record
        found: list[Message] = []
        for _, record in sorted(records.items()):
            found += self._matching(query, record)
        return found

    def offsets(
        self, topic: str, keys: Any, begin_ms: int | None, end_ms: int | None
    ) -> KeyOffsets:
        """Return the log offsets of the messages of many keys (see ``OffsetSearch``)."""
        wanted = TopicKeys.from_keys(topic, keys)
        return OffsetSearch(self._store, wanted, begin_ms, end_ms).run(self._time_at)

    def _candidates(self, query: _KeyQuery) -> tuple[list[int], list[tuple[int, int]]]:
        store = self._store
        try:
            found = key_candidates(store, query.topic, query.keys, self._time_at)
        except NotIndexedError:
            return [], [(max(store.min_phy_offset, 0), store.end_offset)]
        return found.offsets.tolist(), list(found.ranges)

    def _time_at(self, commit_log_offset: int) -> int | None:
        if commit_log_offset not in self._times:
            self._times[commit_log_offset] = self._store.store_timestamp_at(commit_log_offset)
        return self._times[commit_log_offset]

    def _matching(self, query: _KeyQuery, record: StoredRecord) -> list[Message]:
        if record.topic_bytes != query.topic.encode("utf-8", "surrogatepass"):
            return []
        if record.sys_flag & NOT_QUEUED_BIT:
            return []
        if query.begin_ms is not None and record.store_timestamp < query.begin_ms:
            return []
        if query.end_ms is not None and record.store_timestamp > query.end_ms:
            return []
        messages = self._reader.messages_of(record)
        return [m for m in messages if not query.keys.isdisjoint(keys_of(m.properties))]

    def _scan(self, query: _KeyQuery, start: int, stop: int) -> Iterator[StoredRecord]:
        """Yield records of ``[start, stop)`` that may match."""
        if stop - start <= _KEPT_RANGE_BYTES:
            for record, keys in self._kept_range(start, stop):
                if keys is None or not keys.isdisjoint(query.keys):
                    yield record
            return
        for frames in frames_in(self._store, start, stop):
            of_topic = frames.take(np.flatnonzero(is_of_topic(frames, query.topic)))
            if len(of_topic) == 0:
                continue
            rows = np.flatnonzero(_may_have_key(of_topic, query.keys))
            for offset in of_topic.column("commit_log_offset")[rows].tolist():
                yield self._reader.read(offset)

    def _kept_range(self, start: int, stop: int) -> list[_KeptRecord]:
        kept = self._kept.get((start, stop))
        if kept is None:
            offsets = [
                frames.column("commit_log_offset") for frames in frames_in(self._store, start, stop)
            ]
            records = [self._reader.read(offset) for part in offsets for offset in part.tolist()]
            kept = [_KeptRecord(record, _keys_of(record)) for record in records]
            if len(self._kept) < _KEPT_RANGES:
                self._kept[start, stop] = kept
        return kept


def _keys_of(record: StoredRecord) -> frozenset[str] | None:
    if holds_inner_batch(record.sys_flag):
        return None
    return keys_of(string_to_properties(record.properties_raw))


def _may_have_key(frames: RecordFrames, keys: frozenset[str]) -> Bools:
    """Return which records may have one of the keys; inner batches always may."""
    may_have: Bools = holds_inner_batch(frames.column("sys_flag"))
    may_have |= has_any_key(MessageColumns(frames), text_set(keys))
    return may_have
