# SPDX-License-Identifier: Apache-2.0
"""Detect lost records after the end of a log from the rest of its store.

A log whose last files were deleted, zeroed or cut reads like any shorter one. The checkpoint, the
queues and the index were written after it, and still refer to the lost records:

==============  ================================================================================
after a clean   - the checkpoint confirms a record after the end
stop            - the checkpoint's times, or that of the last index entry, are later than the last
                  record: a log that was not damaged has all that was flushed and dispatched
                - a queue has a unit of the record that would begin exactly at the end
after a crash   only the checkpoint, and of its times only the one up to which the log was forced:
                a power cut leaves queues and index that reach further than the log
==============  ================================================================================

Units that remain from an old cut (RocketMQ erases none) prove nothing: the log has since grown past
the cut, or the checkpoint confirms the record before it as the last, or the bytes that were cut
still follow, and the checkpoint's times are not later.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Callable, NamedTuple, Protocol

import numpy as np

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.files.byte_source import first_nonzero
from store_core.index.index_file import read_index_header
from store_core.layout import INDEX_DIR, LMQ_PREFIX
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import skip_gap
from store_core.queue.batch_consume_queue import read_batch_units
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.queue_directories import BATCH_CONSUME_QUEUE, list_consume_queues
from store_core.state.checkpoint import StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory
    from store_core.log.commit_log import ReadableLog
    from store_core.log.end_rules import Failure
    from store_core.queue.queue_database import QueueDatabase

    QueueKey = tuple[str, int]
    Units = npt.NDArray[np.void]

_DAMAGED = (CorruptRecordError, StoreFormatError, StoreReadError)
_BYTES_SINCE_CHECKPOINT = 4 << 30
"""Size of the last part of a log in which the record of the checkpoint's time is searched for. A
broker writes its checkpoint once a minute, and few write 70 MB/s."""


class UnitsAfter(NamedTuple):
    """Units of a queue whose records begin at or after the end of a log."""

    queue_offset: int
    stop: int
    messages: int
    first_start: int
    last_end: int


class LostEnd(NamedTuple):
    """Evidence that records after the end of a log are lost.

    Attributes
    ----------
    end_offset, last_timestamp
        Where the log ends, and the store time (ms) of the last remaining record; 0 if none remains.
    messages
        Number of messages after the end that queues have units of; 0 if there are none.
    """

    end_offset: int
    last_timestamp: int
    messages: int
    reach: int
    queues: dict[QueueKey, UnitsAfter]
    proofs: tuple[str, ...]

    @property
    def count_text(self) -> str:
        """The number of lost messages in words."""
        if not self.messages:
            return "messages"
        return f"{self.messages} message{'s'[: self.messages != 1]}"

    def __str__(self) -> str:
        return (
            f"the log ends at offset {self.end_offset}, and {self.count_text} after it "
            f"{'is' if self.messages == 1 else 'are'} lost: {'; '.join(self.proofs)}. Is a disk "
            "of the log not mounted, or were its last files not copied?"
        )


class EndWitness(Protocol):
    """Evidence on the end of a log from the rest of its store."""

    checkpoint: StoreCheckpoint
    stopped_cleanly: bool
    knows_forced: bool

    def units_after(self, offset: int) -> Iterable[tuple[QueueKey, UnitsAfter]]:
        """Return the queues' units of records at or after an offset of the log."""

    def last_indexed(self) -> tuple[int, int]:
        """Return start and store time (ms) of the last indexed record; (-1, 0) if none."""


def find_lost_end(log: ReadableLog, end: Failure, witness: EndWitness) -> LostEnd | None:
    """Return the evidence that records after the end of a log are lost; None without proof."""
    point = witness.checkpoint
    confirmed, last_start = point.confirm_phy_offset or 0, end.last_start
    proofs = _time_proof(log, end, witness)
    if confirmed > end.offset:
        proofs.insert(0, f"the checkpoint confirms a record at offset {confirmed}")
    if not proofs and (not witness.stopped_cleanly or 0 < confirmed == last_start):
        return None
    proofs += _index_proof(end, witness)
    queues = dict(witness.units_after(end.offset))
    if confirmed <= end.offset and not _is_proved(log, end, witness, proofs, queues):
        return None
    reach = max([end.offset, confirmed, *(units.last_end for units in queues.values())])
    messages = _messages(queues)
    if messages:
        queue = "a queue refers to" if len(queues) == 1 else f"{len(queues)} queues refer to"
        proofs.append(f"{queue} {messages} messages after it")
    return LostEnd(end.offset, end.last_timestamp, messages, reach, queues, tuple(proofs))


def simple_units_after(
    read_units: Callable[[int, int], Units], stop: int, offset: int
) -> UnitsAfter | None:
    """Return the units of a simple queue from the first one at or after an offset; None if none."""
    try:
        if stop <= 0 or not _is_after(read_units(stop - 1, stop), offset):
            return None
        low, high = 0, stop - 1
        while low < high:
            middle = (low + high) // 2
            if _is_after(read_units(middle, middle + 1), offset):
                high = middle
            else:
                low = middle + 1
        first, last = read_units(low, low + 1)[0], read_units(stop - 1, stop)[0]
    except _DAMAGED:  # such a queue proves nothing
        return None
    last_end = int(last["commit_log_offset"]) + int(last["message_size"])
    return UnitsAfter(low, stop, stop - low, int(first["commit_log_offset"]), last_end)


def batch_units_after(units: Units, offset: int) -> UnitsAfter | None:
    """Return the units of a batch queue after the last one before an offset; None if none."""
    before = np.flatnonzero(units["commit_log_offset"] < offset)
    units = units[int(before[-1]) + 1 if len(before) else 0 :]
    if not len(units):
        return None
    base, last = units["base_queue_offset"], units[-1]
    messages = int(units["batch_size"].sum(dtype=np.int64))
    last_end = int(last["commit_log_offset"]) + int(last["message_size"])
    stop = int(base[-1]) + int(last["batch_size"])
    return UnitsAfter(int(base[0]), stop, messages, int(units["commit_log_offset"][0]), last_end)


def _is_after(units: Units, offset: int) -> bool:
    return bool(
        len(units) and units["commit_log_offset"][0] >= offset and units["message_size"][0] > 0
    )


def _messages(queues: dict[QueueKey, UnitsAfter]) -> int:
    """Count messages; units in light queues repeat messages of other queues."""
    own = [units for (topic, _), units in queues.items() if not topic.startswith(LMQ_PREFIX)]
    return sum(units.messages for units in own or queues.values())


def _time_proof(log: ReadableLog, end: Failure, witness: EndWitness) -> list[str]:
    point, newest = witness.checkpoint, 0
    if witness.stopped_cleanly or witness.knows_forced:
        newest = point.physic_msg_timestamp or 0
    if witness.stopped_cleanly:
        newest = max(newest, point.logics_msg_timestamp or 0)
    if newest <= end.last_timestamp or _has_time(log, end, newest):
        return []
    last = "no record is left"
    if end.last_start >= 0:
        last = f"the last record left is of {_utc(end.last_timestamp)}"
    return [f"the checkpoint says that the log had a record of {_utc(newest)}, but {last}"]


def _utc(time_ms: int) -> str:
    try:
        time = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):  # no calendar has it
        return f"{time_ms} ms"
    return f"{time:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d} UTC"


def _is_proved(
    log: ReadableLog,
    end: Failure,
    witness: EndWitness,
    proofs: list[str],
    queues: dict[QueueKey, UnitsAfter],
) -> bool:
    """Return whether a loss is proved although the checkpoint confirms no record after the end.

    The checkpoint's time alone is no proof if the queues end with the last record: then the
    checkpoint is wrong. Bytes after the end may be the record of that time, damaged, or remains of
    an old cut: a later time in the checkpoint decides.
    """
    first = min((units.first_start for units in queues.values()), default=-1)
    if not proofs and first not in _next_starts(log, end.offset):
        return False
    if len(proofs) <= 1 and not queues and _is_dispatched(end.last_start, witness):
        return False
    if _is_bare(log, end.offset):
        return True
    has_time = bool(_time_proof(log, end, witness))
    return has_time and (bool(queues) or not _is_dispatched(end.last_start, witness))


def _is_dispatched(start: int, witness: EndWitness) -> bool:
    """Return whether a queue has a unit of the record that starts at ``start``."""
    return start >= 0 and any(u.first_start == start for _, u in witness.units_after(start))


def _is_bare(log: ReadableLog, offset: int) -> bool:
    """Return whether only zeros or a blank record follow an offset in its segment."""
    segment = log.segments.find(offset)
    if segment is None:
        return True
    records = log.records(segment, segment.from_offset + log.segments.file_size)
    at = offset - segment.from_offset
    return records.blank_bytes(at) is not None or first_nonzero(log.source(segment), at) < 0


def _index_proof(end: Failure, witness: EndWitness) -> list[str]:
    start, time_ms = witness.last_indexed() if witness.stopped_cleanly else (-1, 0)
    if start < end.offset or time_ms < end.last_timestamp:
        return []
    return [f"the index has an entry for a record at offset {start}"]


def _has_time(log: ReadableLog, end: Failure, time_ms: int) -> bool:
    """Return whether any record of the log may be as new as a time: clocks may be set back."""
    segments = [s for s in log.segments if s.from_offset < end.offset]
    firsts = (log.first_store_timestamp(segment, end.offset) for segment in segments)
    if any((first or 0) >= time_ms for first in firsts):
        return True
    stop = end.offset
    for segment in reversed(segments):
        if stop <= end.offset - _BYTES_SINCE_CHECKPOINT:
            break
        found = scan_frames(log, segment.from_offset, stop, on_gap=skip_gap)
        if any(int(frames.column("store_timestamp").max()) >= time_ms for frames in found):
            return True
        stop = segment.from_offset
    return False


def _next_starts(log: ReadableLog, offset: int) -> tuple[int, int]:
    """Return where the record after the end may begin: there, or in the next segment."""
    segment = log.segments.find(max(offset - 1, 0))
    if segment is None:
        return offset, offset
    border = segment.from_offset + log.segments.file_size
    return offset + segment.header_bytes, border + segment.header_bytes


class FilesWitness:
    """Reads queues and index on each call; damaged files count as no evidence.

    Parameters
    ----------
    checkpoint
        The checkpoint on the disk; None if there is none.
    reach
        No queue has a unit of a record that ends after this; None if not known.
    most_queues
        Number of queues to read at most, as each takes a while; no limit if None.
    """

    def __init__(
        self,
        directory: StoreDirectory,
        config: MessageStoreConfig,
        checkpoint: StoreCheckpoint | None,
        *,
        stopped_cleanly: bool,
        knows_forced: bool,
        database: QueueDatabase | None = None,
        reach: int | None = None,
        most_queues: int | None = None,
    ) -> None:
        self.checkpoint = checkpoint or StoreCheckpoint()
        self.stopped_cleanly, self.knows_forced = stopped_cleanly, knows_forced
        self._directory, self._config, self._database = directory, config, database
        self._reach, self._most_queues = reach, most_queues

    def units_after(self, offset: int) -> Iterator[tuple[QueueKey, UnitsAfter]]:
        """Yield the queues' units of records at or after an offset of the log."""
        if self._most_queues == 0 or (self._reach is not None and self._reach <= offset):
            return
        if self._database is not None:
            yield from self._database_units(self._database, offset)
            return
        simple = list_consume_queues(self._directory).queues
        batch = list_consume_queues(self._directory, BATCH_CONSUME_QUEUE).queues
        some = dict(islice(simple.items(), self._most_queues))
        left = None if self._most_queues is None else self._most_queues - len(some)
        yield from self._simple_units(some, offset)
        yield from self._batch_units(dict(islice(batch.items(), left)), offset)

    def last_indexed(self) -> tuple[int, int]:
        """Return start and store time (ms) of the last indexed record; (-1, 0) if none."""
        entries = self._directory.list(self._directory.resolve(INDEX_DIR))
        names = sorted((e.name, e.path) for e in entries if not e.is_dir and e.name.isdigit())
        for _, path in names[::-1][:2]:  # the last one may not be in use yet
            with suppress(*_DAMAGED), self._directory.open(path) as source:
                header = read_index_header(source)
                if header.entry_count > 0:
                    return header.end_phy_offset, header.end_timestamp
        return -1, 0

    def _database_units(
        self, database: QueueDatabase, offset: int
    ) -> Iterator[tuple[QueueKey, UnitsAfter]]:
        for key in islice(database.queues(), self._most_queues):
            queue = database.queue(*key)
            found = simple_units_after(queue.read_units, queue.end_of_units(), offset)
            if found is not None:
                yield key, found

    def _simple_units(
        self, paths: dict[QueueKey, str], offset: int
    ) -> Iterator[tuple[QueueKey, UnitsAfter]]:
        size = self._config.mapped_file_size_consume_queue
        for key, path in paths.items():
            with suppress(*_DAMAGED):
                with ConsumeQueue.open(self._directory, *key, path, size).held_open() as queue:
                    found = simple_units_after(queue.read_units, queue.end_of_units(), offset)
                if found is not None:
                    yield key, found

    def _batch_units(
        self, paths: dict[QueueKey, str], offset: int
    ) -> Iterator[tuple[QueueKey, UnitsAfter]]:
        size = self._config.mapper_file_size_batch_consume_queue
        for key, path in paths.items():
            with suppress(*_DAMAGED):
                segments = BATCH_CONSUME_QUEUE.segments(self._directory, path, size)
                found = batch_units_after(read_batch_units(self._directory, segments), offset)
                if found is not None:
                    yield key, found
