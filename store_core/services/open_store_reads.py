"""What can be asked of a store while it is open.

Source: RocketMQ ``DefaultMessageStore`` (release 5.3.3).
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, TypeVar

from store_core.errors import StoreClosedError
from store_core.read.store_reads import StoreReads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from store_core.filter.tag_filter import TagFilter
    from store_core.index.index_queries import IndexQueries
    from store_core.log.record_reader import RecordReader
    from store_core.queue.readable_queue import ReadableQueue
    from store_core.read.find_messages import KeySearch
    from store_core.read.live_reads import LiveReads
    from store_core.results import GetMessageResult
    from store_core.services.open_store import OpenStore
    from store_core.services.store_services import StoreServices

T = TypeVar("T")


class OpenStoreReads(StoreReads):
    """Reads and numbers of a store; each call raises `StoreClosedError` where it is not open."""

    @abstractmethod
    def _opened(self) -> OpenStore:
        """Return the open store, or raise."""

    @abstractmethod
    def _is_open(self, store: OpenStore) -> bool:
        """Tell whether it is still that one."""

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: TagFilter | None = None,
    ) -> GetMessageResult:
        """Pull messages of one queue; see ``StoreReads.get_message``. Counted."""
        found = self._opened()
        stats, clock = found.services.stats, found.clock
        begin = clock()
        result = super().get_message(group, topic, queue_id, offset, max_msg_nums, message_filter)
        stats.record_get(len(result.messages), clock() - begin)
        return result

    @property
    def min_phy_offset(self) -> int:
        """First byte of the log; -1 when it is empty."""
        return self._opened().parts.segments.min_offset

    @property
    def max_phy_offset(self) -> int:
        """End of the readable log, exclusive; 0 when it is empty."""
        return self._opened().parts.segments.max_offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that may be dispatched and are not yet in queues and index."""
        return self.services.dispatch_behind_bytes

    @property
    def services(self) -> StoreServices:
        """The services, each with ``run_once``."""
        return self._opened().services

    def runtime_info(self) -> dict[str, str]:
        """Return counters, rates, offsets and disk usage, with RocketMQ's keys."""
        return self._opened().runtime_info()

    def flush(self) -> int:
        """Force all that was appended before the call to the disk; return up to where it is there.

        Raises
        ------
        StoreWriteError
            The log cannot be written.
        """
        return self._opened().flush()

    def wait_for_dispatch(self, timeout_s: float = 60.0) -> bool:
        """Wait until all that was put before is in queues and index; False after the time.

        Raises
        ------
        StoreWriteError
            The log cannot be written out: under sync flush, and with a transient store pool, that
            comes before dispatch.
        """
        return self._opened().wait_for_dispatch(timeout_s)

    @contextmanager
    def _reading(self, enter: Callable[[LiveReads], AbstractContextManager[T]]) -> Iterator[T]:
        """Read, and raise when the store was closed meanwhile: what was found may lack files."""
        found = self._opened()
        if not found.flags.is_readable:
            raise StoreClosedError("was made not readable", found.config.store_path_root_dir)
        with enter(found.reads) as readable:
            yield readable
        if not self._is_open(found):
            raise StoreClosedError("was shut down meanwhile", found.config.store_path_root_dir)

    def _reading_queue(
        self, topic: str, queue_id: int
    ) -> AbstractContextManager[tuple[ReadableQueue | None, RecordReader]]:
        return self._reading(lambda reads: reads._reading_queue(topic, queue_id))

    def _reading_log(self) -> AbstractContextManager[RecordReader]:
        return self._reading(lambda reads: reads._reading_log())

    def _reading_index(self) -> AbstractContextManager[tuple[IndexQueries, RecordReader]]:
        return self._reading(lambda reads: reads._reading_index())

    def _reading_keys(self) -> AbstractContextManager[KeySearch]:
        return self._reading(lambda reads: reads._reading_keys())
