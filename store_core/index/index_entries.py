# SPDX-License-Identifier: Apache-2.0
"""Index entries of many records: the hashes of the keys by which a record is found, in order.

Source: RocketMQ ``IndexService.buildIndex``, ``IndexFile.indexKeyHashMethod`` (releases 5.3.3 and
5.5.1).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.arrow import binary_parts, pa, pc
from store_core.codec.java_string import string_hash, string_hashes
from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.message_codec import split_keys
from store_core.codec.property_columns import words_column
from store_core.errors import StoreError
from store_core.index.index_file import IndexFile, key_hash, tag_hash
from store_core.index.index_queries import IndexService
from store_core.layout import (
    MAX_PROPERTIES_BYTES,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    ROCKSDB_STORE_DIR,
    TAG_TYPE,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK_TYPE,
)
from store_core.log.commit_log import frames_of
from store_core.state.checkpoint import load_checkpoint

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array
    from store_core.codec.message_batch_codec import RecordTexts
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory
    from store_core.log.commit_log import ReadableLog
    from store_core.native.dispatch_columns import DispatchColumns

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]
    UInt32s = npt.NDArray[np.uint32]

_HASH_FACTOR = np.uint32(31)  # of String.hashCode
_UINT32_MAX = 0xFFFFFFFF
_FIRST_LEAD = -0x40  # as signed bytes, continuation bytes (80 to BF) are below
_FOUR_BYTE_LEAD = 0xF0  # of characters that are two UTF-16 units
_KEY_MARK = np.uint32(ord("#"))  # between topic and key
_TAG_TYPE = np.uint32(ord(TAG_TYPE))
_PROBED_ENTRIES = 256


class IndexEntries(NamedTuple):
    """Entries of records that follow each other in the log, as parallel columns.

    All entries of a record are in the same batch: first its ``UNIQ_KEY``, then the words of
    ``KEYS`` in order, with repeats, then its ``TAGS`` if tags are indexed.
    """

    key_hash: Int32s
    """As the file stores it: not negative."""
    commit_log_offset: Int64s
    """Start of the record; ascending."""
    store_timestamp: Int64s
    """Store time of the record, ms."""
    last_record_offset: int
    """Start of the last record of the batch, with or without entries; -1 without records."""


def index_entries(columns: MessageColumns, *, with_tags: bool) -> IndexEntries:
    """Return the entries of some records.

    Every transaction state except ROLLBACK is indexed, under the topic of the record.

    Parameters
    ----------
    with_tags
        Make entries for tags, too, as brokers from 5.4.0 on do (see `tag_hash`).
    """
    frames = columns.frames
    hashes, row = entries_by_row(columns, with_tags=with_tags)
    offsets = frames.column("commit_log_offset")
    return IndexEntries(
        hashes,
        offsets[row],
        frames.column("store_timestamp")[row],
        int(offsets[-1]) if len(frames) else -1,
    )


def entries_by_row(
    columns: MessageColumns, *, with_tags: bool
) -> tuple[Int32s, npt.NDArray[np.integer]]:
    """Return the hashes of `index_entries`, and the row of the record of each, ascending."""
    found = columns.dispatched()
    if found is not None and not len(found.refused):
        return _dispatched_entries(found, with_tags=with_tags)
    frames = columns.frames
    indexed = frames.column("sys_flag") & TRANSACTION_MASK != TRANSACTION_ROLLBACK_TYPE
    texts = columns.few_texts()
    if texts is not None:
        return _plain_entries(texts, indexed.tolist(), with_tags=with_tags)
    if indexed.all():
        return _column_entries(columns, with_tags=with_tags)
    rows = np.flatnonzero(indexed)
    hashes, row = _column_entries(columns.of_rows(rows), with_tags=with_tags)
    return hashes, rows[row]


def _column_entries(columns: MessageColumns, *, with_tags: bool) -> tuple[Int32s, Int64s]:
    """Return the entries of records that are all indexed."""
    frames = columns.frames
    topic_hash = _topic_hashes(columns)
    unique = columns.property_values(PROPERTY_UNIQ_KEY)
    words = words_column(columns.property_values(PROPERTY_KEYS))
    tags = columns.property_values(PROPERTY_TAGS) if with_tags else pa.nulls(0, pa.string())
    word_count = pc.fill_null(pc.list_value_length(words), 0).to_numpy(zero_copy_only=False)
    unique_row, tag_row = _valid_rows(unique), _valid_rows(tags)
    count = word_count.astype(np.int64)
    count[unique_row] += 1
    count[tag_row] += 1
    row = np.repeat(np.arange(len(frames)), count)
    is_unique: Any = slice(0, None, 2)
    is_word: Any = slice(1, None, 2)
    if len(tag_row) or len(unique_row) < len(frames) or not (word_count == 1).all():
        is_unique, is_word = np.zeros(len(row), bool), np.ones(len(row), bool)
        end = np.cumsum(count)
        is_unique[(end - count)[unique_row]] = True
        is_word[is_unique] = is_word[end[tag_row] - 1] = False
    hashes = np.empty(len(row), np.int32)
    hashes[is_unique] = _hashes(topic_hash[row[is_unique]], unique.drop_null())
    hashes[is_word] = _hashes(topic_hash[row[is_word]], words.flatten())
    if len(tag_row):
        typed = (topic_hash[tag_row] * _HASH_FACTOR + _KEY_MARK) * _HASH_FACTOR + _TAG_TYPE
        hashes[np.cumsum(count)[tag_row] - 1] = _hashes(typed, tags.drop_null())
    return hashes, row


def _dispatched_entries(found: DispatchColumns, *, with_tags: bool) -> tuple[Int32s, Int32s]:
    """Return the entries that the kernel found."""
    if with_tags or not found.entry_is_tag.any():
        return found.entry_hash, found.entry_row
    kept = ~found.entry_is_tag
    return found.entry_hash[kept], found.entry_row[kept]


def _plain_entries(
    texts: list[RecordTexts], indexed: list[bool], *, with_tags: bool
) -> tuple[Int32s, Int64s]:
    """Return the entries of a few records, key by key."""
    rows: list[int] = []
    hashes: list[int] = []
    for row, (topic, properties) in enumerate(texts):
        keys = split_keys(properties.get(PROPERTY_KEYS, ""))
        if PROPERTY_UNIQ_KEY in properties:
            keys.insert(0, properties[PROPERTY_UNIQ_KEY])
        if indexed[row]:
            of_row = [key_hash(topic, key) for key in keys]
            if with_tags and PROPERTY_TAGS in properties:
                of_row.append(tag_hash(topic, properties[PROPERTY_TAGS]))
            rows += [row] * len(of_row)
            hashes += of_row
    return np.array(hashes, np.int32), np.array(rows, np.int64)


def topic_key_hashes(topic: str, keys: Array) -> Int32s:
    """Return the stored hashes of keys of one topic (``index_file.key_hash``)."""
    return _hashes(np.full(1, string_hash(topic) & _UINT32_MAX, np.uint32), keys)


def _valid_rows(values: Array) -> Int64s:
    return np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))


def _topic_hashes(columns: MessageColumns) -> UInt32s:
    topics = columns.topics()
    hashes: UInt32s = string_hashes(topics.dictionary).view(np.uint32)[topics.indices.to_numpy()]
    return hashes


def _hashes(topic_hash: UInt32s, keys: Array) -> Int32s:
    """Return the stored hashes of ``topic#key`` from those of the topics and of the keys.

    The hash is a polynomial, so the hash of a joined text follows from those of its parts: no texts
    are joined, and no topic is hashed again for every key.
    """
    before = topic_hash * _HASH_FACTOR + _KEY_MARK
    raw = before * _powers()[_utf16_lengths(keys)] + string_hashes(keys).view(np.uint32)
    signed = raw.view(np.int32)
    # The absolute value of the lowest number does not fit; Java's code makes it 0.
    hashes: Int32s = np.abs(np.where(signed == np.iinfo(np.int32).min, 0, signed))
    return hashes


def _utf16_lengths(strings: Array) -> Int32s:
    offsets, data = binary_parts(strings)
    used = data[: offsets[-1]]
    signed = used.view(np.int8)
    if int(signed.min(initial=0)) >= 0:
        return np.diff(offsets)
    begun = np.zeros(len(used) + 1, np.int32)
    np.cumsum((signed >= _FIRST_LEAD) + (used >= _FOUR_BYTE_LEAD).astype(np.int32), out=begun[1:])
    return np.diff(begun[offsets])


@lru_cache(maxsize=1)
def _powers() -> UInt32s:
    """Return the powers of 31 modulo 2**32 up to the longest key that properties can contain."""
    powers = np.full(MAX_PROPERTIES_BYTES + 1, _HASH_FACTOR, np.uint32)
    powers[0] = 1
    table: UInt32s = np.multiply.accumulate(powers, dtype=np.uint32)
    return table


# RocketMQ has no setting for it, and no file names the release that wrote a store.
def with_tag_index(
    config: MessageStoreConfig, directory: StoreDirectory, log: ReadableLog
) -> MessageStoreConfig:
    """Return a configuration whose ``tag_index_enable`` is true or false.

    As configured, else as the store shows: tags are indexed in a store that a broker from 5.4.0 on
    has opened.
    """
    if config.tag_index_enable is not None:
        return config
    shown = (
        config.enable_accelerated_recovery
        or opened_by_5_4(directory)
        or _newest_tags_are_indexed(directory, config, log)
    )
    return replace(config, tag_index_enable=shown)


def opened_by_5_4(directory: StoreDirectory) -> bool:
    """Return whether a broker from 5.4.0 on has opened the store, as its files show.

    It makes ``rocksdbstore``, used or not; from 5.5.0 on it writes ``logicsPhysicalOffset``.
    """
    if directory.stat(directory.resolve(ROCKSDB_STORE_DIR)) is not None:
        return True
    checkpoint = load_checkpoint(directory)
    return checkpoint is not None and bool(checkpoint.logics_physical_offset)


def _newest_tags_are_indexed(
    directory: StoreDirectory, config: MessageStoreConfig, log: ReadableLog
) -> bool:
    """Return whether the newest indexed record with tags has an entry for them."""
    try:
        with closing(IndexService(directory, config)) as index:
            sizes = index.sizes
            used = [file.path for file in index.files if file.header.entry_count > 0]
        if not used or sizes is None:
            return False
        with directory.open(used[-1]) as source:
            rows = IndexFile(source, *sizes).entries()[-_PROBED_ENTRIES:]
        return _has_tag_entry(rows, log)
    except StoreError:  # recovery and `check` report unreadable files
        return False


def _has_tag_entry(rows: npt.NDArray[np.void], log: ReadableLog) -> bool:
    offsets, hashes = rows["commit_log_offset"], rows["key_hash"]
    for frames in reversed(list(frames_of(log, np.unique(offsets)))):
        for row in reversed(np.flatnonzero(frames.ok).tolist()):
            record = frames.take(np.array([row]))
            tagged = index_entries(MessageColumns(record), with_tags=True).key_hash
            keyed = index_entries(MessageColumns(record), with_tags=False).key_hash
            if len(tagged) > len(keyed):
                own = hashes[offsets == record.column("commit_log_offset")[0]]
                of_tags = tagged[-1]  # a key ``T#tags`` has the same hash
                return bool(np.sum(own == of_tags) > np.sum(keyed == of_tags))
    return False
