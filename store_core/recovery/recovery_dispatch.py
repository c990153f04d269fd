"""Hands the records that recovery validated to the queues that may lack them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.queue.dispatch_request import DispatchDecoder, DispatchRequests, concat_requests
from store_core.queue.queue_mending import count_missing, put_again

if TYPE_CHECKING:
    from store_core.codec.record_frames import RecordFrames
    from store_core.config import MessageStoreConfig
    from store_core.log.readable_log import ReadableLog
    from store_core.queue.consume_queue_store import ConsumeQueueStore
    from store_core.recovery.held_keys import HeldKeys
    from store_core.state.store_checkpoint import StoreCheckpoint

Progress = Callable[[int, int], None]

_HELD_ROWS = 1 << 18


@dataclass(frozen=True)
class RecoveryParts:
    """What a recovery works on; the queues are loaded and recovered, nothing else uses them.

    Attributes
    ----------
    log
        All that the segments' files hold.
    queues
        The store's queues.
    checkpoint
        As it was found.
    config
        ``check_crc_on_recover``, delay levels.
    last_exit_ok
        The store was stopped cleanly.
    progress
        Called with the bytes of the log done and all of them.
    keys
        Keeps what the index will lack; None: nothing is to be kept.
    trusts_confirmed
        After a clean stop nothing before the record that the checkpoint confirms is validated.
    """

    log: ReadableLog
    queues: ConsumeQueueStore
    checkpoint: StoreCheckpoint
    config: MessageStoreConfig
    last_exit_ok: bool
    progress: Progress | None = None
    keys: HeldKeys | None = None
    trusts_confirmed: bool = False


class RecoveryDispatch:
    """Collects what records mean to the queues, and hands it on in large parts."""

    def __init__(self, parts: RecoveryParts, target: PutUnits | CountUnits) -> None:
        self.target = target
        self._decoder = DispatchDecoder(parts.config.delay_levels_ms)
        # After a clean stop nothing before this is missing in any queue.
        self._from_offset = parts.queues.dispatch_from if parts.last_exit_ok else -1
        self._held: list[DispatchRequests] = []
        self._keys = parts.keys

    def take(self, frames: RecordFrames) -> None:
        """Take records, in order; their bytes are not needed afterwards."""
        if self._keys is not None:
            self._keys.take(frames)
        start = frames.column("commit_log_offset")
        first = int(np.searchsorted(start, self._from_offset))
        if first == len(frames):
            return
        if first:
            frames = frames.take(np.arange(first, len(frames)))
        self._held.append(self._decoder.decode(frames).queued())
        if sum(map(len, self._held)) >= _HELD_ROWS:
            self.finish()

    def finish(self) -> None:
        """Hand on what was collected."""
        if self._held:
            requests = concat_requests(self._held)
            self._held = []
            self.target.take(requests)


class PutUnits:
    """Gives queues what they lack, and makes units anew from the first one that is torn on."""

    def __init__(self, parts: RecoveryParts) -> None:
        self.units = self.repaired = 0
        self._queues, self._repair = parts.queues, not parts.last_exit_ok
        self._min_offset = parts.log.min_offset

    def take(self, requests: DispatchRequests) -> None:
        """Take rows in log order."""
        if self._repair:
            repaired, put = put_again(self._queues, requests, self._min_offset)
            self.repaired += repaired
            self.units += put
        else:
            self.units += self._queues.put(requests).units


class CountUnits:
    """Only counts what queues lack."""

    def __init__(self, parts: RecoveryParts) -> None:
        self.units = self.repaired = 0
        self._queues = parts.queues

    def take(self, requests: DispatchRequests) -> None:
        """Take rows in log order."""
        self.units += count_missing(self._queues, requests)
