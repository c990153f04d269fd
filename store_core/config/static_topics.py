"""Static topics: their queues are spread over brokers, and clients see offsets of the whole.

Source: RocketMQ ``TopicQueueMappingManager``, ``TopicQueueMappingDetail`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from store_core.config.config_files import load_config_file
from store_core.config.lenient_json import json_object
from store_core.errors import NOT_DAMAGE

if TYPE_CHECKING:
    from store_core.files.store_directory import StoreDirectory

logger = logging.getLogger(__name__)

_FILE, _TABLE = "topicQueueMapping.json", "topicQueueMappingInfoMap"
_NAMED = 5


def static_topics(directory: StoreDirectory) -> tuple[str, ...]:
    """Return the static topics of a store, by name; a broker of 5.x writes the file for none too.

    Raises
    ------
    StoreReadError
        The file cannot be read.
    """
    return load_config_file(directory, _FILE, _names) or ()


def static_topics_note(topics: tuple[str, ...]) -> str:
    """Return what the reader of offsets must know; empty without static topics."""
    if not topics:
        return ""
    more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
    names = ", ".join(topics[:_NAMED])
    return (
        f"static topics ({names}{more}): consumers see logical offsets "
        f"(config/{_FILE}); those here are physical, of this broker's own queues"
    )


def warn_of_static_topics(directory: StoreDirectory) -> None:
    """Log that offsets of static topics are not those that consumers see, where there are some."""
    note = static_topics_note(static_topics(directory))
    if note:
        logger.warning("%s", note, extra={NOT_DAMAGE: True})


def _names(data: dict[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(map(str, json_object(data.get(_TABLE) or {}, _TABLE))))
