"""Whether the index of a store has entries for tags: brokers from 5.4.0 on make them, always.

RocketMQ has no setting for it, and no file says which release wrote a store.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.message_batch_codec import MessageColumns
from store_core.errors import StoreError
from store_core.index.index_entries import index_entries
from store_core.index.index_file import IndexFile
from store_core.index.index_queries import IndexService
from store_core.layout.store_paths import ROCKSDB_STORE_DIR
from store_core.log.log_scan import frames_of
from store_core.state.checkpoint import load_checkpoint

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory
    from store_core.log.readable_log import ReadableLog

_PROBED_ENTRIES = 256


def with_tag_index(
    config: MessageStoreConfig, directory: StoreDirectory, log: ReadableLog
) -> MessageStoreConfig:
    """Return a configuration that says whether tags are indexed (``tag_index_enable``).

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
    """Return whether a broker from 5.4.0 on has opened the store, by the files that it makes.

    It makes ``rocksdbstore``, used or not; from 5.5.0 on it writes ``logicsPhysicalOffset``.
    """
    if directory.stat(directory.resolve(ROCKSDB_STORE_DIR)) is not None:
        return True
    checkpoint = load_checkpoint(directory)
    return checkpoint is not None and bool(checkpoint.logics_physical_offset)


def _newest_tags_are_indexed(
    directory: StoreDirectory, config: MessageStoreConfig, log: ReadableLog
) -> bool:
    """Return whether the newest record of the index that has tags has an entry for them."""
    try:
        with closing(IndexService(directory, config)) as index:
            sizes = index.sizes
            used = [file.path for file in index.files if file.header.entry_count > 0]
        if not used or sizes is None:
            return False
        with directory.open(used[-1]) as source:
            rows = IndexFile(source, *sizes).entries()[-_PROBED_ENTRIES:]
        return _has_tag_entry(rows, log)
    except StoreError:  # recovery and `check` report what cannot be read
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
