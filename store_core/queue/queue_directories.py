"""What the directories of queues may be called, and which kind of queue they hold.

Source: RocketMQ ``ConsumeQueueStore.load``, ``queueTypeShouldBe`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.config.config_files import load_topics
from store_core.errors import StoreFormatError

if TYPE_CHECKING:
    from store_core.files.store_directory import StoreDirectory

QUEUE_TYPE_ATTRIBUTE = "queue.type"
BATCH_CQ = "BatchCQ"
_MAX_NAME_BYTES = 255


def configured_kinds(directory: StoreDirectory) -> dict[str, bool]:
    """Tell of each topic of ``topics.json`` whether its queues are batch queues."""
    return {
        name: config.attributes.get(QUEUE_TYPE_ATTRIBUTE) == BATCH_CQ
        for name, config in (load_topics(directory) or {}).items()
    }


def check_kind(topic: str, path: str, is_batch_of: dict[str, bool], *, is_batch: bool) -> None:
    """Raise StoreFormatError where a directory holds another kind than its topic should have."""
    if is_batch_of.get(topic, is_batch) != is_batch:
        kind = "SimpleCQ" if is_batch else BATCH_CQ
        raise StoreFormatError(
            f"topics.json says {QUEUE_TYPE_ATTRIBUTE}={kind} for topic {topic}; correct it, or "
            "move this directory away",
            path,
        )


def is_directory_name(topic: str) -> bool:
    """Tell whether a topic makes a directory: names come from disk and may be anything."""
    if topic in {"", ".", ".."} or "/" in topic or "\0" in topic:
        return False
    return len(topic.encode()) <= _MAX_NAME_BYTES
