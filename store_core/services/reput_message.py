"""Hands the records of the growing commit log to whoever makes queues and indexes of them.

Source: RocketMQ ``DefaultMessageStore.ReputMessageService`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.codec.record_frames import RecordFrames
from store_core.codec.record_walk import is_record, magic_code_hits, walk_records
from store_core.layout.message import RECORD_PREFIX
from store_core.queue.dispatch_request import ROUND_BYTES
from store_core.services.service_thread import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.files.mapped_file import MappedFile
    from store_core.files.mapped_file_queue import MappedFileQueue

    Bytes = npt.NDArray[np.uint8]

logger = logging.getLogger(__name__)

Dispatcher = Callable[[RecordFrames], None]
"""Takes frames, all ok, in log order, of one segment; their bytes are valid during the call only.

A dispatcher may get frames again that it had before, and has to know them then.
"""

_MAX_ROWS = 1 << 14  # arrays of more rows are fresh memory in every round
_FEW_ROWS = 1 << 13
_REST_SHARE = 9
_MAX_REST_MS = 100
_SEARCH_BYTES = 1 << 20
_INTERVAL_MS = 5


class ReputMessageService(ServiceThread):
    """Walks the log from ``reput_from_offset`` to its end, some MiB at a time.

    A round costs about the same for one record as for a few thousand: so the thread rests for
    5 ms where RocketMQ rests for 1 ms, and after a round with few records for nine times the
    time that it took. Without that, dispatch would take half of the time from who puts single
    messages. A position is left only when all dispatchers are through: when one of them raises,
    the same records are dispatched again in the next round.

    Where no record lies although the log goes on, dispatch goes on at the next record that is
    found in the segment. RocketMQ skips the size that stands there, or the rest of the segment:
    readable messages after the damage would be in no queue.

    Parameters
    ----------
    log
        The segments of the commit log.
    dispatchers
        Called in this order.
    end_offset
        Returns the end of what may be dispatched (``FlushManager.confirm_offset``).

    Attributes
    ----------
    reput_from_offset
        What lies before was dispatched; to be set before the first run.
    dispatched_timestamp
        Store time (ms) of the last record that was dispatched; 0 before there is one.
    """

    repeats_while_busy = True

    def __init__(
        self,
        log: MappedFileQueue,
        dispatchers: Sequence[Dispatcher],
        end_offset: Callable[[], int],
    ) -> None:
        super().__init__(_INTERVAL_MS)
        self.reput_from_offset = 0
        self.dispatched_timestamp = 0
        self._log, self._dispatchers, self._end_offset = log, tuple(dispatchers), end_offset

    @property
    def behind_bytes(self) -> int:
        """Bytes that may be dispatched and are not."""
        return max(self._end_offset() - self.reput_from_offset, 0)

    def run_once(self) -> bool:
        """Dispatch what comes next; return whether the position moved."""
        before, end = self.reput_from_offset, self._end_offset()
        begin, rows = time.thread_time(), 0
        file = self._file_to_do(end)
        if file is not None:
            position = self.reput_from_offset - file.file_from_offset
            with file.select(position, file.readable_position - position) as data:
                if data is not None and len(data):  # None: the file was deleted meanwhile
                    rows = self._dispatch(file, data, end - self.reput_from_offset)
        if 0 < rows < _FEW_ROWS:
            taken_ms = (time.thread_time() - begin) * 1000
            self.pause(min(int(_REST_SHARE * taken_ms), _MAX_REST_MS))
        return self.reput_from_offset != before

    def finish(self) -> None:
        """Catch up with the end as it is now."""
        end = self._end_offset()
        while self.reput_from_offset < end and self.run_once():
            pass

    def _file_to_do(self, end: int) -> MappedFile | None:
        """Return the segment at the position, which skips what was deleted or is missing."""
        at = self.reput_from_offset
        file = self._log.find(at)
        if file is None and at < end:
            later = [f for f in self._log.mapped_files if f.file_from_offset > at]
            if later:
                file = later[0]
                self._skip(file.file_from_offset, "the segment was deleted")
        return file if self.reput_from_offset < end else None

    def _dispatch(self, file: MappedFile, data: Bytes, length: int) -> int:
        """Dispatch records that end within ``length``, return how many; ``data`` begins there.

        At most one that was walked ends after it, the last, and no damage is seen after that.
        """
        base = self.reput_from_offset
        walk = walk_records(data, 0, length, _MAX_ROWS, ROUND_BYTES)
        frames = RecordFrames(data, base, walk.starts)
        ends = np.append(walk.starts[1:], walk.stop)
        good = int(np.argmin(np.append(frames.ok, False)))
        count = min(good, int(np.searchsorted(ends, length, "right")))
        if count:
            part = frames if count == len(frames) else frames.take(np.arange(count))
            for dispatcher in self._dispatchers:
                dispatcher(part)
            self.dispatched_timestamp = int(part.column("store_timestamp")[-1])
            self.reput_from_offset = base + int(ends[count - 1])
        if good < len(frames) or walk.failed:
            at = int(walk.starts[good]) if good < len(frames) else walk.stop
            self.reput_from_offset = base + at
            self._skip(base + _next_record(data, base, at), "there is no valid record")
        elif walk.blank:
            self.reput_from_offset = file.end_offset
        return count

    def _skip(self, offset: int, reason: str) -> None:
        lost = offset - self.reput_from_offset
        logger.warning(
            "%d bytes of the log from offset %d on are not dispatched: %s",
            lost,
            self.reput_from_offset,
            reason,
        )
        self.reput_from_offset = offset


def _next_record(data: Bytes, base: int, at: int) -> int:
    """Return where the first record after ``at`` starts; the end of the data if none does."""
    at += 1
    while at < len(data):
        upto = min(at + _SEARCH_BYTES, len(data))
        for hit in magic_code_hits(data[at : upto + RECORD_PREFIX.size - 1]):
            if is_record(data, base, at + hit):
                return at + hit
        at = upto
    return len(data)
