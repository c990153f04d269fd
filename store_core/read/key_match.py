# SPDX-License-Identifier: Apache-2.0
"""Whether messages have keys. A message's keys are the words of ``KEYS``, and its ``UNIQ_KEY``.

The rule exists for one message, for many messages with a set of keys, and for pairs of both; a
property test checks that the three agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from store_core.arrow import are_among, pa, pc
from store_core.codec.java_string import string_hashes
from store_core.codec.message_codec import split_keys
from store_core.codec.property_columns import words_column
from store_core.errors import StoreConfigError, StoreError
from store_core.index.index_file import key_hashes
from store_core.layout import PROPERTY_KEYS, PROPERTY_UNIQ_KEY
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import BatchSizer, refuse_gap
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import numpy.typing as npt

    from store_core.arrow_types import Array
    from store_core.codec.inner_columns import UnwrappedRows
    from store_core.codec.message_batch_codec import MessageColumns
    from store_core.codec.record_frames import RecordFrames
    from store_core.index.index_queries import IndexCoverage
    from store_core.read.readable_store import ReadableStore

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]
    StoreTimestampAt = Callable[[int], "int | None"]

_MARKS_PER_KEY = 4
_LEAST_BITS, _MOST_BITS = 10, 26
_SCAN_ROWS = 16384
_SCAN_BYTES = 32 << 20


def is_text(key: str) -> bool:
    """Return whether a string can equal decoded text, which has no lone surrogates.

    Arrow rejects lone surrogates too.
    """
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_set(wanted: Collection[str]) -> Array:
    """Return an Arrow array of strings to look values up in, without those `is_text` rejects."""
    return pa.array([text for text in wanted if is_text(text)], pa.string())


def is_any_of(strings: Array, wanted: Array | KeySet) -> Bools:
    """Return which strings are in a `text_set` or a `KeySet`; nulls are not."""
    if isinstance(wanted, KeySet):
        return wanted.contains(strings)
    return are_among(strings, wanted)


def has_any_word(words: Array, wanted: Array | KeySet) -> Bools:
    """Return which lists of words contain a word of the set."""
    hits = is_any_of(words.flatten(), wanted)
    found = np.zeros(len(words), np.bool_)
    found[pc.list_parent_indices(words).to_numpy()[hits]] = True
    return found


def keys_of(properties: Mapping[str, str]) -> frozenset[str]:
    """Return all keys of a message."""
    keys = {*split_keys(properties.get(PROPERTY_KEYS, "")), properties.get(PROPERTY_UNIQ_KEY, "")}
    return frozenset(keys - {""})


def has_any_key(messages: MessageColumns | UnwrappedRows, wanted: Array | KeySet) -> Bools:
    """Return which messages have a key of the set."""
    unique = is_any_of(messages.column("unique_key"), wanted)
    return unique | has_any_word(messages.column("keys"), wanted)


def have_key(records: MessageColumns, row: Int64s, asked: Array, is_word: Bools) -> Bools:
    """Return for each pair whether the record (``row``) has the key (``asked``)."""
    # Usually KEYS is one word, the one that gave the pair: so KEYS is compared whole, then UNIQ_KEY
    # if that differs, and KEYS is split into words only if both differ.
    keys = records.property_values(PROPERTY_KEYS)
    has = _are_equal(keys, row, asked) & is_word
    left = np.flatnonzero(~has)
    if len(left):
        unique = records.property_values(PROPERTY_UNIQ_KEY)
        has[left] = _are_equal(unique, row[left], asked.take(pa.array(left)))
        left = left[~has[left]]
    if len(left):
        words = words_column(keys.take(pa.array(row[left])))
        pair = pc.list_parent_indices(words).to_numpy()
        of_word = asked.take(pa.array(left[pair]))
        equal = _are_equal(words.flatten(), np.arange(len(pair)), of_word)
        has[left[pair[equal]]] = True
    return has


def _are_equal(values: Array, row: Int64s, asked: Array) -> Bools:
    if len(row) != len(values) or (row != np.arange(len(row))).any():  # usually all, in order
        values = values.take(pa.array(row))
    equal = pc.fill_null(pc.equal(values, asked), False)
    same: Bools = equal.to_numpy(zero_copy_only=False)
    return same


# Arrow's ``is_in`` builds a hash table of the whole set at each call; this builds its table once.
# The hash is that of RocketMQ's index, 32 bits; strings with equal hashes are compared.
class KeySet:
    """A set of strings with fast lookups.

    Ten million strings of 16 bytes take 0.4 GB. A lookup costs 50 ns, most of it for the hash, and
    more only if some key has an equal hash.

    Examples
    --------
    If the keys a, b, c have hashes 7, 3, 7, the sorted hashes are 3, 7, 7 of the keys 1, 0, 2. A
    string with hash 7 is compared with the keys 0 and 2; one with hash 5 with none.
    """

    def __init__(self, keys: Array) -> None:
        self._keys = keys.drop_null().cast(pa.large_string())
        hashes = string_hashes(self._keys).view(np.uint32)
        self._order = np.argsort(hashes, kind="stable").astype(np.uint32)
        self._hashes = hashes[self._order]
        wanted_bits = (len(hashes) * _MARKS_PER_KEY).bit_length()
        self._bits = np.uint32(min(max(wanted_bits, _LEAST_BITS), _MOST_BITS))
        self._marks = np.zeros(1 << int(self._bits), np.bool_)
        self._marks[self._mark_of(hashes)] = True

    def __len__(self) -> int:
        return len(self._keys)

    def contains(self, strings: Array) -> Bools:
        """Return which strings are in the set; nulls are not."""
        hashes = string_hashes(strings).view(np.uint32)
        found = np.zeros(len(hashes), np.bool_)
        rows = np.flatnonzero(self._marks[self._mark_of(hashes)])
        low = np.searchsorted(self._hashes, hashes[rows], "left")
        count = np.searchsorted(self._hashes, hashes[rows], "right") - low
        rows, low, count = rows[count > 0], low[count > 0], count[count > 0]
        most = int(count.max(initial=0))
        for step in range(most):  # over the keys of one hash: usually there is one
            keys = self._keys.take(pa.array(self._order[low + step]))
            asked = strings.take(pa.array(rows)).cast(pa.large_string())
            equal = pc.fill_null(pc.equal(asked, keys), False)
            found[rows[equal.to_numpy(zero_copy_only=False)]] = True
            left = (count > step + 1) & ~found[rows]
            rows, low, count = rows[left], low[left], count[left]
        return found

    def _mark_of(self, hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return the mark of each hash: its low bits mixed with the next higher ones."""
        marks: npt.NDArray[np.uint32] = (hashes ^ (hashes >> self._bits)) & np.uint32(
            (1 << int(self._bits)) - 1
        )
        return marks


# All searches by key use the candidates below. Index times are never used: they are whole seconds,
# truncated, and in a rolled file relative to the previous file.
class NotIndexedError(StoreError):
    """The index does not cover these messages (the text says why), so the log must be scanned."""


class KeyCandidates(NamedTuple):
    """Offsets that the index names (ascending, distinct), and ranges of the log to scan.

    If no record starts at an offset, it is left over from a cut log or the record is damaged: scan
    the `segment_range` of the offset too.
    """

    offsets: npt.NDArray[np.int64]
    ranges: tuple[tuple[int, int], ...]


def has_batch_queues(store: ReadableStore, topic: str) -> bool:
    """Return whether a topic has batch consume queues, by its configuration or directories."""
    config = (store.topic_configs or {}).get(topic)
    if config is not None and config.has_batch_queues:
        return True
    return any(name == topic for name, _ in store.batch_queue_paths)


def _is_simple_topic(store: ReadableStore, topic: str) -> bool:
    """Return whether the topic is known and each of its messages is a record of its own.

    Index entries of batch topics cover whole batches, not the messages in them.
    """
    if has_batch_queues(store, topic):
        return False
    known = topic in (store.topic_configs or {})
    return known or any(name == topic for name, _ in store.queue_paths)


def key_candidates(
    store: ReadableStore, topic: str, keys: Collection[str], store_timestamp_at: StoreTimestampAt
) -> KeyCandidates:
    """Return where a topic's messages with one of the keys may be.

    Raises
    ------
    NotIndexedError
        Nothing can be said without scanning the log.
    """
    found = hash_candidates(store, topic, key_hashes(topic, sorted(keys)), store_timestamp_at)
    return KeyCandidates(distinct(found.commit_log_offset), found.ranges)


def distinct(numbers: Int64s) -> Int64s:
    """Return ``np.unique`` of some numbers, which for indices does not load ``numpy.ma``.

    That takes as long as the whole plan of a read by key, in each process that Spark starts.
    """
    return np.unique(numbers, return_index=True)[0] if len(numbers) > 1 else numbers


class HashCandidates(NamedTuple):
    """Pairs of a hash (its index) and an offset, with duplicates; ranges as in `KeyCandidates`."""

    key: npt.NDArray[np.int64]
    commit_log_offset: npt.NDArray[np.int64]
    ranges: tuple[tuple[int, int], ...]


def hash_candidates(
    store: ReadableStore,
    topic: str,
    hashes: npt.NDArray[np.int32],
    store_timestamp_at: StoreTimestampAt,
) -> HashCandidates:
    """Return the candidates for keys with the given hashes, and which hash each is for.

    Raises
    ------
    NotIndexedError
        Nothing can be said without scanning the log.
    """
    if not _is_simple_topic(store, topic):
        raise NotIndexedError(f"topic {topic} is not known to have indexed messages of its own")
    if not store.index.files:
        raise NotIndexedError("there is no usable index file")
    start = max(store.min_phy_offset, 0)
    ends = {file.header.end_phy_offset for file in store.index.files}
    store.log.fetch_ahead(end for end in ends if start <= end < store.end_offset)
    try:
        found = store.index.lookup_hashes(hashes, start, store.end_offset, store_timestamp_at)
    except StoreConfigError as err:
        raise NotIndexedError(str(err)) from err
    ranges = [(gap.start, gap.stop) for gap in found.coverage.gaps]
    ranges += _unflushed(store, found.coverage)
    return HashCandidates(found.key, found.commit_log_offset, tuple(ranges))


def segment_range(store: ReadableStore, commit_log_offset: int) -> tuple[int, int]:
    """Return the range of the log that the segment of an offset covers."""
    size = store.log.segments.file_size
    start = commit_log_offset // size * size
    return start, start + size


def frames_in(store: ReadableStore, start: int, stop: int) -> Iterator[RecordFrames]:
    """Yield the records that start in a range of the log.

    Raises
    ------
    CorruptRecordError
        Something in the range is damaged or missing.
    """
    stop, sizer = min(stop, store.end_offset), BatchSizer(_SCAN_ROWS, _SCAN_BYTES)
    return scan_frames(store.log, start, stop, store.end_offset, on_gap=refuse_gap, sizer=sizer)


def is_of_topic(frames: RecordFrames, topic: str) -> npt.NDArray[np.bool_]:
    """Return which records are of a topic."""
    wanted = np.frombuffer(topic.encode("utf-8", "surrogatepass"), np.uint8)
    same: npt.NDArray[np.bool_] = frames.topic_length == len(wanted)
    if len(wanted) and same.any():
        rows = np.flatnonzero(same)
        texts = sliding_window_view(frames.data, len(wanted))[frames.topic_start[rows]]
        same[rows] = (texts == wanted).all(axis=1)
    return same


def _unflushed(store: ReadableStore, coverage: IndexCoverage) -> list[tuple[int, int]]:
    """Return the ranges of index files of a crashed store that RocketMQ would delete at its start.

    Also those of files after the last flushed one, whatever their times: they have no checksum.
    """
    if store.state is not StoreState.CRASHED:
        return []
    flushed_ms = (store.checkpoint.index_msg_timestamp or 0) if store.checkpoint else 0
    headers = [file.header for file in coverage.files]
    is_last = [header.end_timestamp == flushed_ms for header in headers]
    count = is_last.index(True) + 1 if any(is_last) else len(headers)
    start = max(store.min_phy_offset, 0)  # part of such a file's range may have expired
    return [
        (max(header.begin_phy_offset, start), header.end_phy_offset + 1)
        for number, header in enumerate(headers)
        if number >= count or header.end_timestamp > flushed_ms
    ]
