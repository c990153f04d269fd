"""Hands the records that recovery validated to the queues that may lack them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from store_core.index.index_file_set import RecoveredLog
from store_core.layout.message import NOT_QUEUED_BIT
from store_core.log.log_scan import frames_of
from store_core.queue.dispatch_request import DispatchDecoder, DispatchRequests, concat_requests
from store_core.recovery.queue_repair import count_missing, own_units, put_again, unproved_records

if TYPE_CHECKING:
    from typing import Callable

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.log.readable_log import ReadableLog
    from store_core.progress import Progress
    from store_core.queue.consume_queue_store import ConsumeQueueStore, QueueKey
    from store_core.recovery.index_proof import IndexProof, PendingIndexEntries
    from store_core.recovery.lost_end import EndWitness
    from store_core.state.checkpoint import StoreCheckpoint

logger = logging.getLogger(__name__)

_HELD_ROWS = 1 << 18


@dataclass(frozen=True)
class RecoveryParts:
    """What a recovery works on; the queues are loaded and recovered, nothing else uses them.

    Attributes
    ----------
    progress
        Called with the bytes of the log done and all of them.
    keys
        Sees all records, for the index; None: it needs none.
    witness
        What the files beside the log know of its end; None: it may have been longer.
    """

    log: ReadableLog
    queues: ConsumeQueueStore
    checkpoint: StoreCheckpoint
    config: MessageStoreConfig
    last_exit_ok: bool
    progress: Progress | None = None
    keys: PendingIndexEntries | IndexProof | None = None
    trusts_confirmed: bool = False
    witness: EndWitness | None = None

    def recovered(self, min_offset: int, end_offset: int) -> RecoveredLog:
        """Return what is known for the index when the log was walked and cut."""
        return RecoveredLog(
            log=self.log,
            min_offset=max(min_offset, 0),
            end_offset=end_offset,
            last_exit_ok=self.last_exit_ok,
            index_msg_timestamp=self.checkpoint.index_msg_timestamp or 0,
            proved=self.keys.proved if self.keys is not None else (),
        )


class RecoveryDispatch:
    """Collects what records mean to the queues, and hands it on in large parts.

    After a crash all records of the walk are compared with the queues, and only those of queues
    that lack some, or that hold other units, are handed on: most of them are as they should be.
    """

    def __init__(
        self, parts: RecoveryParts, target: PutUnits | CountUnits, start_offset: int
    ) -> None:
        self.target = target
        self._decoder = DispatchDecoder(parts.config.delay_levels_ms, parts.queues.filter_bitmaps)
        # After a clean stop nothing before this is missing in any queue.
        self._from_offset = parts.queues.dispatch_from if parts.last_exit_ok else -1
        is_whole = start_offset == parts.log.min_offset == 0
        target.from_zero = is_whole and self._from_offset <= 0
        self._held: list[DispatchRequests] = []
        self._doubted: dict[int, QueueKey] = {}
        self._keys, self._log, self._queues = parts.keys, parts.log, parts.queues
        config = parts.config
        self._compares = not (
            parts.last_exit_ok or config.enable_multi_dispatch or config.enable_consume_queue_ext
        )

    def add(self, frames: RecordFrames) -> None:
        """Add records, in order; their bytes are not needed afterwards.

        The last ones are held until `finish`: where the queues end, as they were found, may tell
        that what followed the log is lost. A refusal leaves that as it was, for the next opening.
        """
        if sum(map(len, self._held)) >= _HELD_ROWS:
            self.finish()
        if self._keys is not None:
            self._keys.add(frames)
        start = frames.column("commit_log_offset")
        first = int(np.searchsorted(start, self._from_offset))
        if first == len(frames):
            return
        if first:
            frames = frames.take(np.arange(first, len(frames)))
        decode = self._decoder.outline if self._compares else self._decoder.decode
        self._held.append(self._queued(decode(frames)))

    def finish(self) -> None:
        """Hand on what was collected."""
        if not self._held:
            return
        requests = concat_requests(self._held)
        self._held = []
        if self._compares:
            starts = unproved_records(self._queues, requests, self._decoded)
            if len(starts) == 0:
                return
            requests = self._decoded(starts)
        self.target.put(requests)

    def lacking_queues(self) -> tuple[QueueKey, ...]:
        """Return the queues of records that got no unit, and say two things; log these records."""
        for start, (topic, queue_id) in self._doubted.items():
            logger.warning(
                "the record at %d, of queue %d of topic %s, says to be prepared, and has a queue "
                "offset: it is in no queue",
                start,
                queue_id,
                topic,
            )
        return tuple(dict.fromkeys(self._doubted.values()))

    def _queued(self, requests: DispatchRequests) -> DispatchRequests:
        """Return the rows that get a unit, and those that have one, whatever their flags say.

        A record that says to be prepared and has a queue offset is a message whose flag was
        damaged, or a prepared one whose queue offset was. A unit at just that queue offset tells
        that it is the first; where there is none it is not delivered, and that is said.
        """
        odd = requests.wrongly_unqueued()
        if not len(odd):
            return requests.queued()
        has_unit = own_units(self._queues, odd)
        for topic, queue_id, rows in odd.take(~has_unit).by_queue():
            self._doubted.update(dict.fromkeys(rows.commit_log_offset.tolist(), (topic, queue_id)))
        kept = np.isin(requests.commit_log_offset, odd.commit_log_offset[has_unit])
        return requests.take(kept | (requests.transaction_type & NOT_QUEUED_BIT == 0))

    def _decoded(self, starts: npt.NDArray[np.int64]) -> DispatchRequests:
        """Return the requests of records, read once more, given where they start (ascending)."""
        parts = [self._decoder.decode(frames) for frames in frames_of(self._log, starts)]
        return self._queued(concat_requests(parts))


class PutUnits:
    """Gives queues what they lack, and makes units anew from the first one that is torn on."""

    from_zero = False

    def __init__(self, parts: RecoveryParts, before: Callable[[], None]) -> None:
        self._before: Callable[[], None] | None = before
        self.units = self.repaired = 0
        self.moved: tuple[QueueKey, ...] = ()
        self._queues, self._repair = parts.queues, not parts.last_exit_ok
        self._min_offset = parts.log.min_offset

    def put(self, requests: DispatchRequests) -> None:
        """Add rows in log order."""
        if self._repair:
            done = put_again(
                self._queues, requests, self._min_offset, self._ask, from_zero=self.from_zero
            )
            self.repaired += done.repaired
            self.units += done.put
            self.moved += done.moved
        elif len(requests):
            self._ask()
            self.units += self._queues.put(requests, from_zero=self.from_zero).units

    def _ask(self) -> None:
        if self._before is not None:
            self._before()
            self._before = None


class CountUnits:
    """Only counts what queues lack."""

    from_zero = False

    def __init__(self, parts: RecoveryParts) -> None:
        self.units = self.repaired = 0
        self.moved: tuple[QueueKey, ...] = ()
        self._queues = parts.queues

    def put(self, requests: DispatchRequests) -> None:
        """Count rows in log order."""
        self.units += count_missing(self._queues, requests)
