# SPDX-License-Identifier: Apache-2.0
"""Log offsets of the messages of many keys: exact, in columns.

Index and log give pairs of a key and a record whose hashes are equal; then the key is compared
with those of the record. Parts the index does not cover are scanned (see ``key_candidates``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.arrow import binary_parts, pa, pc
from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.record_frames import holds_inner_batch
from store_core.files.segment_list import merged_ranges
from store_core.index.index_entries import index_entries, topic_key_hashes
from store_core.layout import (
    KEY_SEPARATOR,
    MAX_PROPERTIES_BYTES,
    NOT_QUEUED_BIT,
)
from store_core.read.key_match import (
    NotIndexedError,
    frames_in,
    hash_candidates,
    have_key,
    is_of_topic,
    is_text,
    keys_of,
    segment_range,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.arrow_types import Array
    from store_core.codec.record_frames import RecordFrames
    from store_core.read.key_match import StoreTimestampAt
    from store_core.read.readable_store import ReadableStore

    Bools = npt.NDArray[np.bool_]
    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

_CHUNK_RECORDS = 16384
_ROW_BITS = 32
_FEW = 64
"""If records have this many times fewer hashes than there are keys, their hashes are sorted instead
of the keys': most scans are short."""


class KeyOffsets(NamedTuple):
    """Pairs of a key (its index) and the offset of a record that has it: ascending, distinct."""

    key_index: Int64s
    commit_log_offset: Int64s


class TopicKeys(NamedTuple):
    """The keys to find in one topic, without those that no record can have."""

    topic: str
    given: Int64s
    """Index of each key in the given keys."""
    texts: Any
    """``pa.StringArray`` without nulls."""
    hashes: Int32s
    is_word: Bools
    """Whether the key has no space, so that it can be a word of KEYS."""

    @classmethod
    def from_keys(cls, topic: str, keys: Any) -> TopicKeys:
        """Build from a sequence of strings, an Arrow array, or one string, which is one key."""
        texts = _string_array([keys] if isinstance(keys, str) else keys)
        length = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
        possible = (length > 0) & (length <= MAX_PROPERTIES_BYTES)
        index = np.flatnonzero(possible)
        if len(index) < len(texts):
            texts = texts.take(pa.array(index))
        is_word = np.ones(len(texts), bool)
        if (binary_parts(texts)[1] == ord(KEY_SEPARATOR)).any():
            spaces = pc.match_substring(texts, KEY_SEPARATOR)
            is_word = ~spaces.to_numpy(zero_copy_only=False).astype(bool)
        return cls(topic, index, texts, topic_key_hashes(topic, texts), is_word)


def _string_array(keys: Any) -> Array:
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if isinstance(keys, pa.Array):
        return keys.cast(pa.string())
    try:
        return pa.array(keys, pa.string())
    except UnicodeEncodeError:
        return pa.array([key if is_text(key) else None for key in keys], pa.string())


class OffsetSearch:
    """One search for the offsets of keys.

    Parameters
    ----------
    begin_ms, end_ms
        Store times, inclusive; None = open.
    """

    def __init__(
        self,
        store: ReadableStore,
        wanted: TopicKeys,
        begin_ms: int | None,
        end_ms: int | None,
    ) -> None:
        self._store, self._reader, self._wanted = store, store.reader, wanted
        self._begin_ms, self._end_ms = begin_ms, end_ms
        self._found: list[tuple[Int64s, Int64s]] = []
        self._by_hash: Int64s | None = None
        self._by_text: dict[str, list[int]] | None = None

    def run(self, store_timestamp_at: StoreTimestampAt) -> KeyOffsets:
        """Return the pairs; errors as in ``find_messages``."""
        if len(self._wanted.given):
            for start, stop in merged_ranges(self._look_up(store_timestamp_at)):
                self._scan(start, stop)
        empty = np.empty(0, np.int64)
        key = np.concatenate([empty, *(key for key, _ in self._found)])
        offset = np.concatenate([empty, *(offset for _, offset in self._found)])
        key, offset = _distinct(key, offset)
        return KeyOffsets(self._wanted.given[key], offset)

    def _look_up(self, store_timestamp_at: StoreTimestampAt) -> list[tuple[int, int]]:
        """Verify the records that the index names; return the ranges to scan."""
        store, wanted = self._store, self._wanted
        try:
            named = hash_candidates(store, wanted.topic, wanted.hashes, store_timestamp_at)
        except NotIndexedError:
            return [(max(store.min_phy_offset, 0), store.end_offset)]
        ranges = list(named.ranges)
        order = np.argsort(named.commit_log_offset)
        key, offset = named.key[order], named.commit_log_offset[order]
        begins = np.flatnonzero(np.diff(offset, prepend=-1))
        for frames, first, stop in self._records(offset[begins]):
            bounds = np.append(begins, len(key))[first : stop + 1]
            row = np.repeat(np.arange(stop - first), np.diff(bounds))
            ok = np.zeros(stop - first, bool) if frames is None else frames.ok
            if not ok.all():  # left over from a cut log, or damaged; all are in one segment
                ranges.append(segment_range(store, int(offset[begins[first]])))
            if frames is not None:
                self._verify(frames, row, key[bounds[0] : bounds[-1]])
        return ranges

    def _records(self, offsets: Int64s) -> Iterator[tuple[RecordFrames | None, int, int]]:
        """Yield frames of ascending, distinct offsets, each with its range of rows in them."""
        log, size = self._store.log, max(self._store.log.segments.file_size, 1)
        cuts = np.flatnonzero(np.diff(offsets // size)) + 1
        for low, high in zip([0, *cuts.tolist()], [*cuts.tolist(), len(offsets)]):
            segment = log.segments.find(int(offsets[low])) if low < high else None
            for first in range(low, high, _CHUNK_RECORDS):
                stop = min(first + _CHUNK_RECORDS, high)
                if segment is None:
                    yield None, first, stop
                else:
                    part = offsets[first:stop]
                    yield log.frames_at(segment, part, self._store.end_offset), first, stop

    def _scan(self, start: int, stop: int) -> None:
        for frames in frames_in(self._store, start, stop):
            of_topic = frames.take(np.flatnonzero(is_of_topic(frames, self._wanted.topic)))
            if len(of_topic) == 0:
                continue
            entries = index_entries(MessageColumns(of_topic), with_tags=False)
            entry, key = self._with_hashes(entries.key_hash)
            at = entries.commit_log_offset[entry]
            row = np.searchsorted(of_topic.column("commit_log_offset"), at)
            self._verify(of_topic, row, key)
            for batch in np.flatnonzero(holds_inner_batch(of_topic.column("sys_flag"))).tolist():
                self._verify(of_topic, np.array([batch]), np.empty(1, np.int64))

    def _with_hashes(self, hashes: Int32s) -> tuple[Int64s, Int64s]:
        """Return the pairs (row of ``hashes``, key) whose hashes are equal."""
        wanted = self._wanted.hashes
        if self._by_hash is None and len(hashes) * _FEW < len(wanted):
            key, row = _equal_pairs(wanted, hashes, np.argsort(hashes))
            return row, key
        if self._by_hash is None:
            self._by_hash = np.argsort(wanted)
        return _equal_pairs(hashes, wanted, self._by_hash)

    def _verify(self, frames: RecordFrames, row: Int64s, key: Int64s) -> None:
        """Add the pairs (row of the frames, key) whose record has the key to the result."""
        if not frames.ok.all():
            kept = frames.ok[row]
            row, key = (np.cumsum(frames.ok) - 1)[row[kept]], key[kept]
            frames = frames.take(np.flatnonzero(frames.ok))
        asked = self._is_asked_for(frames)
        batch = holds_inner_batch(frames.column("sys_flag"))
        if batch.any():
            for at in np.unique(row[(batch & asked)[row]]).tolist():
                self._add_inner(int(frames.column("commit_log_offset")[at]))
            asked &= ~batch
        if not asked.all():
            kept = asked[row]
            row, key = row[kept], key[kept]
        if len(row):
            asked_for = self._wanted.texts.take(pa.array(key))
            kept = have_key(MessageColumns(frames), row, asked_for, self._wanted.is_word[key])
            self._found.append((key[kept], frames.column("commit_log_offset")[row[kept]]))

    def _is_asked_for(self, frames: RecordFrames) -> Bools:
        asked = is_of_topic(frames, self._wanted.topic)
        asked &= frames.column("sys_flag") & NOT_QUEUED_BIT == 0
        time = frames.column("store_timestamp")
        if self._begin_ms is not None:
            asked &= time >= self._begin_ms
        if self._end_ms is not None:
            asked &= time <= self._end_ms
        return asked

    def _add_inner(self, commit_log_offset: int) -> None:
        """Add the keys that messages of an inner batch have to the result."""
        if self._by_text is None:
            self._by_text = {}
            for number, text in enumerate(self._wanted.texts.to_pylist()):
                self._by_text.setdefault(text, []).append(number)
        found: set[int] = set()
        for message in self._reader.messages_of(self._reader.read(commit_log_offset)):
            for text in keys_of(message.properties):
                found.update(self._by_text.get(text, ()))
        keys = np.array(sorted(found), np.int64)
        self._found.append((keys, np.full(len(keys), commit_log_offset, np.int64)))


def _equal_pairs(left: Int32s, right: Int32s, order: Int64s) -> tuple[Int64s, Int64s]:
    """Return all pairs (row of left, row of right) of equal values; ``order`` sorts ``right``."""
    ordered = right[order]
    low = np.searchsorted(ordered, left, "left")
    count = np.searchsorted(ordered, left, "right") - low
    row = np.repeat(np.arange(len(left)), count)
    inside = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    return row, order[low[row] + inside]


def _distinct(key: Int64s, offset: Int64s) -> tuple[Int64s, Int64s]:
    """Sort pairs by key and offset and drop duplicates.

    Numbers packed of key and row sort faster than two columns; offsets usually ascend already.
    """
    # Keys [1, 0, 1, 1] at offsets [10, 20, 30, 30] are packed as key and row: 1.0 0.1 1.2 1.3,
    # sorted 0.1 1.0 1.2 1.3: keys [0, 1, 1, 1], offsets [20, 10, 30, 30].
    # Rows equal to the previous one are dropped: keys [0, 1, 1], offsets [20, 10, 30].
    if len(offset) and int(np.diff(offset).min(initial=0)) < 0:
        order = np.argsort(offset, kind="stable")
        key, offset = key[order], offset[order]
    packed = (key << _ROW_BITS) | np.arange(len(key))
    packed.sort()
    key, offset = packed >> _ROW_BITS, offset[packed & ((1 << _ROW_BITS) - 1)]
    new = np.ones(len(key), bool)
    new[1:] = (key[1:] != key[:-1]) | (offset[1:] != offset[:-1])
    return key[new], offset[new]
