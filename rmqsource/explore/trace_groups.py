"""Where consumer groups stand to a record, by the offsets that each store's broker noted."""

from __future__ import annotations

import logging
from typing import NamedTuple

from store_core.config.config_files import load_consumer_offsets
from store_core.errors import StoreError
from store_core.files.store_directory import StoreDirectory
from store_core.state.store_kind import store_kind
from store_core.topics import (
    DATABASE_OP_TOPIC,
    DISCARD_TOPIC,
    HALF_TOPICS,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)

logger = logging.getLogger(__name__)

_INTERNAL = frozenset(
    {SCHEDULE_TOPIC, TIMER_TOPIC, *HALF_TOPICS, OP_TOPIC, DATABASE_OP_TOPIC, DISCARD_TOPIC}
)


class Standing(NamedTuple):
    """Groups that read a queue: those after a record's offset, those before it."""

    passed_by: tuple[str, ...]
    ahead_of: tuple[str, ...]


class ConsumerGroups:
    """Offsets that the brokers of some stores noted; each store's file is read once."""

    def __init__(self) -> None:
        self._by_store: dict[str, dict[tuple[str, int], list[tuple[str, int]]]] = {}

    def standing(self, store: str, topic: str, queue_id: int, queue_offset: int) -> Standing:
        """Return who passed a queue offset and who has not reached it."""
        if topic in _INTERNAL:
            return Standing((), ())
        commits = self._of_store(store).get((topic, queue_id), ())
        passed = tuple(group for group, offset in commits if offset > queue_offset)
        return Standing(passed, tuple(group for group, offset in commits if offset <= queue_offset))

    def _of_store(self, store: str) -> dict[tuple[str, int], list[tuple[str, int]]]:
        if store not in self._by_store:
            self._by_store[store] = {}
            try:
                directory = StoreDirectory(store)
                store_kind(directory).require_config_files("consumer offsets cannot be read")
                offsets = load_consumer_offsets(directory, is_needed=True)
            except StoreError as err:
                logger.warning("consumer groups of %s are not told: %s", store, err)
                offsets = {}
            for (group, topic), queues in sorted(offsets.items()):
                for queue_id, offset in queues.items():
                    queue = self._by_store[store].setdefault((topic, queue_id), [])
                    queue.append((group, offset))
        return self._by_store[store]
