# SPDX-License-Identifier: Apache-2.0
"""A broker that only reads its store, which may be open elsewhere, left by a crash, or damaged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Callable, ClassVar

from rmqnet.broker.processor.broker_processor import REPLIES, SENDS, RequestRefusal
from rmqnet.broker.roles.broker_role import BrokerRole
from rmqnet.broker.state.consumer_offset_manager import OffsetsBesideStore
from rmqnet.remoting.codes import RequestCode, ResponseCode
from store_core.config.config_files import BATCH_QUEUE_TYPE, QUEUE_TYPE_ATTRIBUTE, TopicConfig
from store_core.errors import StoreFormatError, StorePermissionError
from store_core.filter.bloom_filter import BloomFilter
from store_core.filter.consumer_filter_manager import ConsumerFilterManager
from store_core.layout import CONFIG_DIR, LMQ_PREFIX
from store_core.services.service_thread import RepeatedService
from store_core.snapshot.read_only_store import ReadOnlyStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.broker.broker import Broker
    from rmqnet.broker.broker_config import BrokerConfig
    from rmqnet.broker.roles.broker_role import Dispatched
    from rmqnet.broker.state.config_manager import ConfigManager
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import FileEntry
    from store_core.services.open_store import IsAwaited

logger = logging.getLogger(__name__)

_LOOK_MS = 20
_WHY = RequestRefusal(
    ResponseCode.NO_PERMISSION,
    "this broker only reads its store (read_only): send to the broker that has the store open",
)


class ReadOnlyRole(BrokerRole):
    """Answers reads, and follows messages that others write; it changes nothing in the store.

    Offsets of groups, their retry topics and the groups themselves are in memory. Topics missing
    from ``topics.json`` are inferred from the directories of their queues.

    Parameters
    ----------
    offsets_file
        File outside the store for the offsets of groups, which are not saved if None.

    Raises
    ------
    StoreConfigError
        The file is in the store.
    """

    refusals: ClassVar[Mapping[RequestCode, RequestRefusal]] = dict.fromkeys(
        (*SENDS, *REPLIES, RequestCode.END_TRANSACTION), _WHY
    )
    is_read_only = True
    store: ReadOnlyStore

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        clock: Callable[[], int],
        *,
        offsets_file: str | None = None,
    ) -> None:
        self._offsets_file = offsets_file
        super().__init__(config, store_config, clock)
        self._filters = ConsumerFilterManager(BloomFilter(), clock)
        self._topics_file: FileEntry | None = None
        self._looks = RepeatedService("store-look", self.look, _LOOK_MS)

    @property
    def filters(self) -> ConsumerFilterManager:
        """SQL expressions of groups, in memory."""
        return self._filters

    def open(self, dispatched: Dispatched, is_awaited: IsAwaited) -> None:
        """Open the store, and load the state as far as it is readable."""
        del is_awaited
        self.store = ReadOnlyStore(self.store_config, dispatched)
        try:
            self._topics_file = self._topics_file_now()
            self._load(self.topics)
            self._load(self.groups)
            self.offsets.load()
            self._add_topics_of_queues()
        except BaseException:
            self.store.close()
            raise

    def serve(self, broker: Broker) -> None:
        """Add no services: no message is delivered, no transaction checked."""

    def start(self) -> None:
        """Follow the store."""
        self._looks.start()

    def shutdown(self) -> None:
        """Stop following the store."""
        self._looks.shutdown()

    def close(self) -> None:
        """Close its files."""
        self.store.close()

    def look(self) -> bool:
        """Load what was written since the last call; return whether there are new messages."""
        is_new = self.store.look()
        found = self._topics_file_now()
        if found != self._topics_file:
            self._topics_file = found
            self._load(self.topics)
            self.topics.touch()
        if is_new:
            self._add_topics_of_queues()
        return is_new

    def _make_offsets(self) -> OffsetsBesideStore:
        root = self.store_config.store_path_root_dir
        return OffsetsBesideStore(self.config, root, self.clock, self._offsets_file)

    def _load(self, manager: ConfigManager) -> None:
        try:
            manager.load()
        except (StoreFormatError, StorePermissionError) as err:
            logger.warning("%s; the store is served without it", err)

    def _topics_file_now(self) -> FileEntry | None:
        directory = self.store.directory
        return directory.stat(directory.resolve(CONFIG_DIR, self.topics.FILE_NAME))

    def _add_topics_of_queues(self) -> None:
        counts, batch_counts = self.store.queue_counts()
        batch = {f"+{QUEUE_TYPE_ATTRIBUTE}": BATCH_QUEUE_TYPE}
        changes = [
            (TopicConfig(topic, count, count), attributes)
            for found, attributes in ((counts, {}), (batch_counts, batch))
            for topic, count in found.items()
            if self.topics.select(topic) is None and not topic.startswith(LMQ_PREFIX)
        ]
        if changes:
            self.topics.update_all(changes)
