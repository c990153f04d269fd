"""Append the records of one log to another: their bytes stay, their offsets are given anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.codec.record_frames import RecordFrames
from store_core.layout.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_MASK,
    TRANSACTION_NOT_TYPE,
)
from store_core.salvage.inner_rows import InnerRows
from store_core.salvage.moved_offsets import NewQueues, RecordPlaces
from store_core.salvage.new_records import NewRecords
from store_core.salvage.readable_rows import RejectedRecord, TopicCodes, rejected_rows
from store_core.salvage.store_times import StoreTimes

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.encoded_records import EncodedRecords
    from store_core.log.commit_log_appender import CommitLogAppender

    Int64s = npt.NDArray[np.int64]

_KEY_BITS = 32  # of a queue id below the code of its topic


class LogCopy:
    """Takes over records batch by batch, in the order of the log.

    Queue offsets go up by one from record to record: the first of a queue keeps its own (or gets 0,
    see `NewQueues`), those behind lost records close up. Prepared and rolled back messages, which
    are in no queue, keep theirs. A record that names its prepared message by physical offset names
    where that is now, if it was taken over. All else stays: hosts, flags, bodies as stored.

    Parameters
    ----------
    appender
        Of the new log.
    is_batch_topic
        Whether the queues of a topic are batch queues; None: it is not known.
    dispatch
        Gets the new records, batch by batch.

    Attributes
    ----------
    records, record_bytes
        Taken over; bytes in the new log.
    last_record_offset, last_store_timestamp
        Start of the last one in the new log (-1: none), and its store time (ms).
    rejected
        Damaged records, whose frame is good.
    places, queues
        Where records and queue offsets are now; queues by (topic, queue id), light ones too.
    store_times
        Which store times could not be right.
    """

    def __init__(
        self,
        appender: CommitLogAppender,
        is_batch_topic: Callable[[str], bool | None],
        dispatch: Callable[[RecordFrames], None],
    ) -> None:
        self.records = self.record_bytes = self.last_store_timestamp = 0
        self.last_record_offset = -1
        self.rejected: list[RejectedRecord] = []
        self.places = RecordPlaces()
        self.queues = NewQueues()
        self.store_times = StoreTimes()
        self._appender, self._dispatch = appender, dispatch
        self._topics = TopicCodes()
        self._inner = InnerRows(is_batch_topic, self.queues)

    @property
    def batch_topics(self) -> frozenset[str]:
        """Topics that were seen to have batch queues."""
        return frozenset(self._inner.batch_topics)

    def has_batch_queues(self, topic: str) -> bool:
        """Tell whether the queues of a topic are batch queues, as far as was seen."""
        return topic in self._inner.batch_topics

    def take(self, frames: RecordFrames) -> None:
        """Append the good ones of some records.

        Parameters
        ----------
        frames
            Only rows that are ``ok``.

        Raises
        ------
        StoreWriteError
            A segment cannot be made or written.
        """
        codes = self._topics.of(frames)
        rejected = rejected_rows(frames, codes)
        if rejected:
            self.rejected += rejected.values()
            rows = np.delete(np.arange(len(frames)), list(rejected))
            frames, codes = frames.take(rows), codes[rows]
        if len(frames) == 0:
            return
        names = self._topics.names
        inner = self._inner.look_at(frames, lambda row: names[int(codes[row])])
        queue_offsets = self._number(frames, codes, inner.counts)
        old = frames.column("commit_log_offset")
        times = self.store_times.plausible(frames.column("store_timestamp"), old)
        batch = NewRecords(frames, inner.new_records(queue_offsets))
        offsets = []
        for piece in batch.pieces(self.places):
            appended = self._append(piece.records, queue_offsets[piece.rows], times[piece.rows])
            self.places.add(
                old[piece.rows], batch.old_sizes[piece.rows], appended, piece.records.sizes
            )
            offsets.append(appended)
        new = np.concatenate(offsets)
        self.records += len(new)
        self.record_bytes += int(batch.sizes.sum())
        self.last_record_offset, self.last_store_timestamp = int(new[-1]), int(times[-1])
        self._dispatch(RecordFrames(batch.block, new - batch.starts, batch.starts))

    def _number(self, frames: RecordFrames, codes: npt.NDArray[np.int64], counts: Int64s) -> Int64s:
        """Return the queue offsets of the new store."""
        old = frames.column("queue_offset")
        new = old.copy()
        kind = frames.column("sys_flag") & TRANSACTION_MASK
        queued = np.flatnonzero((kind == TRANSACTION_NOT_TYPE) | (kind == TRANSACTION_COMMIT_TYPE))
        keys = (codes << _KEY_BITS | frames.column("queue_id"))[queued]
        order = np.argsort(keys, kind="stable")
        firsts = np.flatnonzero(np.concatenate([[True], np.diff(keys[order]) != 0]))
        for part in np.split(queued[order], firsts[1:]):
            if len(part):
                topic = self._topics.names[int(codes[part[0]])]
                queue = self.queues.at(topic, int(frames.column("queue_id")[part[0]]))
                new[part] = queue.assign(old[part], counts[part])
        return new

    def _append(
        self, records: EncodedRecords, queue_offsets: Int64s, store_timestamps: Int64s
    ) -> Int64s:
        """Append records, over as many segments as it takes; return where they are."""
        done, new = 0, []
        while done < len(records):
            appended = self._appender.append_records(
                records, queue_offsets, first=done, store_timestamps=store_timestamps
            )
            done = appended.stop
            new.append(appended.commit_log_offsets)
        return np.concatenate(new)
