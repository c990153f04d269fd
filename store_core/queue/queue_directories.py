# SPDX-License-Identifier: Apache-2.0
"""The directories of queues: their list, valid names, and the size of their files.

Source: RocketMQ ``ConsumeQueueStore.load``, ``queueTypeShouldBe`` (release 5.3.3).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from store_core.config.config_files import BATCH_QUEUE_TYPE, QUEUE_TYPE_ATTRIBUTE, load_topics
from store_core.config.message_store_config import DEFAULT_SIZES, KEYS
from store_core.errors import StoreFormatError, StoreReadError
from store_core.files.segment_list import list_segments
from store_core.layout import (
    BATCH_CONSUME_QUEUE_DIR,
    BATCH_CQ_UNIT,
    CONSUME_QUEUE_DIR,
    CONSUME_QUEUE_EXT_DIR,
    CQ_UNIT,
)

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.segment_list import SegmentList
    from store_core.files.store_directory import FileEntry, StoreDirectory

_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_MAX_QUEUE_ID = 2**31 - 1
_MAX_NAME_BYTES = 255
_QUEUES_LOOKED_AT = 16


class QueueKind(NamedTuple):
    """One of the structures that queues are stored in.

    Attributes
    ----------
    unit_bytes
        A file's size is a multiple of it; 1 if units have no fixed length.
    size_option
        RocketMQ's key for the bytes of a file.
    """

    directory: str
    unit_bytes: int
    size_option: str

    def configured_size(self, config: MessageStoreConfig) -> int | None:
        """Return the configured bytes of a file; None if not configured."""
        size: int | None = getattr(config, KEYS[self.size_option])
        return size

    def whole_units(self, file_bytes: int) -> int:
        """Return the size of a file that ends with a whole unit."""
        return -(-file_bytes // self.unit_bytes) * self.unit_bytes

    def segments(self, directory: StoreDirectory, path: str, file_size: int | None) -> SegmentList:
        """List the files of a queue's directory (see `list_consume_queues`); opens none.

        ``file_size`` is the configured one, in bytes; if None, the files show it.

        Raises
        ------
        StoreFormatError
            File names and the size (key ``size_option``) do not match.
        """
        return list_segments(
            lambda: directory.list(path),
            file_size=file_size,
            unit_bytes=self.unit_bytes,
            option=self.size_option,
            forget=lambda: directory.forget(path),
        )


CONSUME_QUEUE = QueueKind(CONSUME_QUEUE_DIR, CQ_UNIT.size, "mappedFileSizeConsumeQueue")
CONSUME_QUEUE_EXT = QueueKind(CONSUME_QUEUE_EXT_DIR, 1, "mappedFileSizeConsumeQueueExt")
BATCH_CONSUME_QUEUE = QueueKind(
    BATCH_CONSUME_QUEUE_DIR, BATCH_CQ_UNIT.size, "mapperFileSizeBatchConsumeQueue"
)


class QueueListing(NamedTuple):
    """Directories of queues, as listed, not opened.

    ``queues`` maps (topic, queue id) to the directory; ``ignored`` has the paths of anything else.
    """

    queues: dict[tuple[str, int], str]
    ignored: tuple[str, ...]


def list_consume_queues(directory: StoreDirectory, kind: QueueKind = CONSUME_QUEUE) -> QueueListing:
    """List directories such as ``consumequeue/<topic>/<queue id>``, with one listing per topic.

    Names that are not queue ids are skipped, as in ``ConsumeQueueStore.load`` (RocketMQ 5.3.3).
    """
    queues: dict[tuple[str, int], str] = {}
    ignored = []
    for topic in directory.list(directory.resolve(kind.directory)):
        if not topic.is_dir:
            _check_link(topic)
            ignored.append(topic.path)
            continue
        for queue in directory.list(topic.path):
            is_id = _QUEUE_ID.fullmatch(queue.name) and int(queue.name) <= _MAX_QUEUE_ID
            if is_id and queue.is_dir:
                queues[topic.name, int(queue.name)] = queue.path
            else:
                _check_link(queue)
                ignored.append(queue.path)
    return QueueListing(queues, tuple(ignored))


def _check_link(entry: FileEntry) -> None:
    """Raise if a link leads to a missing directory of queues: the queues may not be lost."""
    if entry.not_a_file.startswith("a link"):
        raise StoreReadError(f"is {entry.not_a_file}", entry.path)


class QueueFileSizes(NamedTuple):
    """Bytes of one file, for each kind of queue."""

    simple: int
    ext: int
    batch: int


def queue_file_sizes(directory: StoreDirectory, config: MessageStoreConfig) -> QueueFileSizes:
    """Return the sizes of a store's queue files.

    If a size is not configured, it is that of most of the first existing files, else RocketMQ's
    default (``MessageStoreConfig``, release 5.3.3).
    """
    kinds = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE)
    return QueueFileSizes(*(_file_size(directory, config, kind) for kind in kinds))


def _file_size(directory: StoreDirectory, config: MessageStoreConfig, kind: QueueKind) -> int:
    size = kind.configured_size(config) or _seen_size(directory, kind)
    return kind.whole_units(size or DEFAULT_SIZES[KEYS[kind.size_option]])


def _seen_size(directory: StoreDirectory, kind: QueueKind) -> int:
    """Return the size that most of the first queues' first files have; 0 if there is none."""
    paths = list(list_consume_queues(directory, kind).queues.values())
    entries = (directory.list(path)[:1] for path in paths[:_QUEUES_LOOKED_AT])
    sizes = Counter(entry.size for listed in entries for entry in listed if entry.size)
    return sizes.most_common(1)[0][0] if sizes else 0


def configured_kinds(directory: StoreDirectory) -> dict[str, bool]:
    """Return for each topic of ``topics.json`` whether its queues are batch queues."""
    topics = load_topics(directory) or {}
    return {name: config.has_batch_queues for name, config in topics.items()}


def check_kind(topic: str, path: str, is_batch_of: dict[str, bool], *, is_batch: bool) -> None:
    """Raise StoreFormatError if a directory's kind of queue is not the configured one."""
    if is_batch_of.get(topic, is_batch) != is_batch:
        kind = "SimpleCQ" if is_batch else BATCH_QUEUE_TYPE
        raise StoreFormatError(
            f"topics.json says {QUEUE_TYPE_ATTRIBUTE}={kind} for topic {topic}; correct it, or "
            "move this directory away",
            path,
        )


def is_directory_name(topic: str) -> bool:
    """Return whether a topic can name a directory: names come from disk and may be anything."""
    if topic in {"", ".", ".."} or "/" in topic or "\0" in topic:
        return False
    return len(topic.encode()) <= _MAX_NAME_BYTES
