"""Where compacted logs lie below a store's root, and which of the files there are theirs.

Source: RocketMQ ``CompactionStore``, ``MappedFileQueue`` (5.3.3).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from store_core.errors import StoreFormatError
from store_core.files.segment_list import Segment
from store_core.layout.store_paths import (
    COMPACTION_DIR,
    COMPACTION_LOG_DIR,
    COMPACTION_QUEUE_DIR,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.config.config_files import TopicConfig
    from store_core.files.store_directory import FileEntry, StoreDirectory

_DIRECTORIES = (COMPACTION_QUEUE_DIR, COMPACTION_LOG_DIR)
_SEGMENT_NAME = re.compile(r"[0-9]{20}")
_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,8}")
_CLEANUP_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"
_MAX_OFFSET = 2**63 - 1


def compacted_queues(directory: StoreDirectory) -> tuple[tuple[str, int], ...]:
    """Return topic and queue id of each compacted log, sorted; opens no file.

    Raises
    ------
    StoreReadError
        A directory cannot be read.
    """
    roots = (directory.resolve(COMPACTION_DIR, name) for name in _DIRECTORIES)
    found = {
        (topic.name, int(queue.name))
        for root in roots
        for topic in directory.list(root)
        if topic.is_dir
        for queue in directory.list(topic.path)
        if queue.is_dir and _QUEUE_ID.fullmatch(queue.name)
    }
    return tuple(sorted(found))


def is_compacted(config: TopicConfig | None) -> bool:
    """Return whether a broker serves a topic from its compacted logs; None: it is not known."""
    return config is not None and config.attributes.get(_CLEANUP_POLICY) == _COMPACTION


def compacted_log_paths(directory: StoreDirectory, topic: str, queue_id: int) -> tuple[str, str]:
    """Return the directories of a compacted log's queue and of its log."""
    queue, log = (
        directory.resolve(COMPACTION_DIR, name, topic, str(queue_id)) for name in _DIRECTORIES
    )
    return queue, log


def compacted_segments(entries: Sequence[FileEntry]) -> list[Segment]:
    """Return the files of a listing; those being replaced have another name, or lie deeper."""
    named = [entry for entry in entries if _SEGMENT_NAME.fullmatch(entry.name)]
    for entry in named:
        if entry.is_dir or entry.not_a_file:
            kind = entry.not_a_file or "a directory"
            raise StoreFormatError(f"is {kind}, where a regular file was expected", entry.path)
        if int(entry.name) > _MAX_OFFSET - entry.size:
            raise StoreFormatError("the name is larger than a byte offset can be", entry.path)
    return [Segment(int(entry.name), entry.path, entry.size) for entry in named]


def strange_files(directory: StoreDirectory, topic: str, queue_id: int) -> list[FileEntry]:
    """Return files whose name is no offset; a broker does not start where there are any."""
    return [
        entry
        for path in compacted_log_paths(directory, topic, queue_id)
        for entry in directory.list(path)
        if not entry.is_dir and not _SEGMENT_NAME.fullmatch(entry.name)
    ]
