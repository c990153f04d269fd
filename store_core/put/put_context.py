# SPDX-License-Identifier: Apache-2.0
"""What every kind of put needs: collaborators, current refusals, and the meaning of errors."""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Callable, Protocol

from store_core.errors import StoreWriteError
from store_core.log.commit_log_appender import LogClosedError, SegmentNotMadeError
from store_core.put.put_checks import Refusal, TopicFacts, illegal, topic_facts
from store_core.results import PutMessageStatus

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.log.commit_log_appender import CommitLogAppender
    from store_core.log.recent_appends import RecentAppends
    from store_core.put.timer_rules import TimerRules
    from store_core.queue.consume_queue_store import QueueOffsetTable

logger = logging.getLogger(__name__)
_NOT_BUSY_FROM_MS = 10_000_000  # RocketMQ's: so long a time means that the clock was set
_MAX_TOPICS = 10_000  # cached
NotePut = Callable[[str, int], object]
"""Called with topic and queue id after each put message or plain batch; must not block."""


class FlushHandler(Protocol):
    """Makes appended records safe."""

    def handle(self, next_offset: int, wait: bool) -> PutMessageStatus:
        """Flush up to an offset, or request the flush; ``wait`` if the sender waits for it."""


class PutStats(Protocol):
    """Counts puts."""

    def record_put(self, messages: int, size_bytes: int, elapsed_ms: int) -> None:
        """Count appended messages."""

    def record_put_failure(self) -> None:
        """Count a put that appended nothing."""


@dataclass(frozen=True)
class PutContext:
    """Collaborators of a put.

    Attributes
    ----------
    store_host
        8 or 20 raw bytes, for messages without a host of their own.
    refused_now
        Returns why nothing can be put now (shut down, a slave, the disk is full), or None.
    max_delay_level
        The greatest delay level; 0 if delay levels are ignored.
    timer_rules
        What happens to timer messages; None if they are stored like others.
    recent
        Gets the columns of appended batches; None if they are not dispatched.
    """

    config: MessageStoreConfig
    appender: CommitLogAppender
    offsets: QueueOffsetTable
    flush: FlushHandler
    store_host: bytes
    refused_now: Callable[[], Refusal | None]
    is_batch_topic: Callable[[str], bool]
    stats: PutStats
    clock: Callable[[], int]
    max_delay_level: int = 0
    timer_rules: TimerRules | None = None
    note_put: NotePut | None = None
    recent: RecentAppends | None = None
    facts: dict[str, TopicFacts] = field(default_factory=dict)

    def busy(self, now: int) -> Refusal | None:
        """Return a refusal while another append takes too long; ``now`` in ms."""
        since = self.appender.begin_time_in_lock
        most = self.config.os_page_cache_busy_time_out_mills
        if not since or not most < now - since < _NOT_BUSY_FROM_MS:
            return None
        return Refusal(
            PutMessageStatus.OS_PAGE_CACHE_BUSY,
            f"an append has been going on for {now - since} ms: the disk is slow, put again later",
        )

    def facts_of(self, topic: str) -> TopicFacts:
        """Return what the name of a topic decides."""
        facts = self.facts.get(topic)
        if facts is None:
            if len(self.facts) >= _MAX_TOPICS:
                self.facts.clear()
            facts = self.facts[topic] = topic_facts(topic, self.config)
        return facts


def append_failure(err: Exception) -> Refusal:
    """Return the refusal for an error of the appender; file errors are logged."""
    if isinstance(err, LogClosedError):
        return Refusal(PutMessageStatus.SERVICE_NOT_AVAILABLE, err.reason)
    if isinstance(err, StoreWriteError):
        logger.error("nothing was appended: %s", err)
        if isinstance(err, SegmentNotMadeError):
            return Refusal(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, str(err))
        return Refusal(PutMessageStatus.UNKNOWN_ERROR, str(err))
    if isinstance(err, struct.error):
        return illegal(f"a number of the message does not fit its field: {err}")
    return illegal(str(err))
