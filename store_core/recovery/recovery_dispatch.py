# SPDX-License-Identifier: Apache-2.0
"""Pass the records that recovery validated to queues and index, which may lack them."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.message_batch_codec import MessageColumns
from store_core.errors import CorruptRecordError, StoreReadError
from store_core.index.index_entries import index_entries
from store_core.index.index_file import IndexFile, is_whole
from store_core.index.index_file_set import RecoveredLog, flushed_files, names_and_sizes
from store_core.index.index_writer import seconds_since
from store_core.layout import INDEX_DIR, NOT_QUEUED_BIT
from store_core.log.commit_log import frames_of
from store_core.queue.dispatch_request import DispatchDecoder, DispatchRequests, concat_requests
from store_core.recovery.queue_repair import count_missing, own_units, put_again, unproved_records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Callable

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory
    from store_core.index.index_dispatcher import IndexDispatcher
    from store_core.index.index_entries import IndexEntries
    from store_core.log.commit_log import ReadableLog
    from store_core.progress import Progress
    from store_core.queue.consume_queue_store import ConsumeQueueStore, QueueKey
    from store_core.recovery.lost_end import EndWitness
    from store_core.state.checkpoint import StoreCheckpoint

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

logger = logging.getLogger(__name__)
_HELD_ROWS = 1 << 18
_CHUNK_ENTRIES = 1 << 15
_MAX_ENTRIES = 1 << 22  # 84 MB


@dataclass(frozen=True)
class RecoveryParts:
    """The parts of a store that recovery works on; no other code uses the loaded queues.

    Attributes
    ----------
    progress
        Called with the bytes of the log done so far and their total.
    keys
        Gets all records, for the index; None if the index needs none.
    witness
        Evidence on the end of the log from other files; if None, the end is not checked.
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
        """Return the facts that the index needs after the log was walked and cut."""
        return RecoveredLog(
            log=self.log,
            min_offset=max(min_offset, 0),
            end_offset=end_offset,
            last_exit_ok=self.last_exit_ok,
            index_msg_timestamp=self.checkpoint.index_msg_timestamp or 0,
            proved=self.keys.proved if self.keys is not None else (),
        )


class RecoveryDispatch:
    """Collects dispatch requests of records and passes them to ``target`` in large parts.

    After a crash, all records of the walk are compared with the queues, and only records of queues
    that lack units or have different ones are passed on: most queues are intact.
    """

    def __init__(
        self, parts: RecoveryParts, target: PutUnits | CountUnits, start_offset: int
    ) -> None:
        self.target = target
        self._decoder = DispatchDecoder(parts.config.delay_levels_ms, parts.queues.filter_bitmaps)
        # After a clean stop, no queue lacks anything before this.
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

        The last ones wait for `finish`: the ends of the queues may prove that records after the log
        are lost, and if recovery refuses, the next opening needs that proof as well.
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
        """Pass on the collected requests."""
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
        """Return the queues of contradictory records that got no unit; log these records."""
        for start, (topic, queue_id) in self._doubted.items():
            logger.warning(
                "the record at offset %d, of queue %d of topic %s, is marked as prepared, but has "
                "a queue offset: it is in no queue",
                start,
                queue_id,
                topic,
            )
        return tuple(dict.fromkeys(self._doubted.values()))

    def _queued(self, requests: DispatchRequests) -> DispatchRequests:
        """Return the rows that get a unit, and those that have one whatever their flags say.

        A record that is flagged as prepared and has a queue offset is a message whose flag was
        damaged, or a prepared one whose queue offset was. A unit at that queue offset proves the
        former; without one the record is not delivered, and `lacking_queues` reports it.
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
        """Read records again, given their starts (ascending), and return their requests."""
        parts = [self._decoder.decode(frames) for frames in frames_of(self._log, starts)]
        return self._queued(concat_requests(parts))


class PutUnits:
    """Adds the units that queues lack; after a crash, also rewrites a queue from a torn unit on."""

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
    """Only counts the units that queues lack."""

    from_zero = False

    def __init__(self, parts: RecoveryParts) -> None:
        self.units = self.repaired = 0
        self.moved: tuple[QueueKey, ...] = ()
        self._queues = parts.queues

    def put(self, requests: DispatchRequests) -> None:
        """Count rows in log order."""
        self.units += count_missing(self._queues, requests)


class IndexProof:
    """Compares the entries of whole files (`is_whole`) with the records that recovery validates.

    The files are proved if each entry belongs to a record and has its time, and no record up to the
    last entry lacks entries. That takes a tenth of the time of rebuilding them, as RocketMQ does
    with the newest file after each crash. Entries of records before the walk are not checked.

    Parameters
    ----------
    files
        Oldest first; at least one. Their sources may be closed afterwards.
    """

    def __init__(self, files: Sequence[IndexFile], *, with_tags: bool) -> None:
        self._with_tags = with_tags
        self._files = [_Entries(file) for file in files]
        self._names = frozenset(Path(file.path).name for file in files)
        self._begin = files[0].header.begin_phy_offset
        self._end = files[-1].header.end_phy_offset
        self._agrees = True

    @property
    def proved(self) -> frozenset[str]:
        """Names of the files if all records so far agree with them; else empty."""
        return self._names if self._agrees else frozenset()

    def add(self, frames: RecordFrames) -> None:
        """Add records; each call's follow those of the call before."""
        if not self._agrees or len(frames) == 0:
            return
        starts, times = frames.column("commit_log_offset"), frames.column("store_timestamp")
        is_indexed = np.zeros(len(frames), bool)
        self._agrees = all(file.agree(starts, times, is_indexed) for file in self._files)
        bare = np.flatnonzero(~is_indexed & (starts >= self._begin) & (starts <= self._end))
        if len(bare) and self._agrees:
            columns = MessageColumns(frames.take(bare))
            self._agrees = not len(index_entries(columns, with_tags=self._with_tags).key_hash)

    def give(self, index: IndexDispatcher) -> None:
        """Do nothing: ``IndexDispatcher.catch_up`` adds what the index lacks."""


class _Entries:
    """The entries of one file, in log order."""

    def __init__(self, file: IndexFile) -> None:
        self._rows = file.table()
        self._begin_timestamp = file.header.begin_timestamp
        self._next = -1

    def agree(self, starts: Int64s, times: Int64s, is_indexed: Bools) -> bool:
        """Return whether the next entries belong to these records; mark records that have entries.

        ``times`` are store times in ms. The time of a file's first entry counts from the file
        before it and is not checked.
        """
        if self._next < 0:
            self._next = self._behind(int(starts[0]) - 1, 0)
        begin, self._next = self._next, self._behind(int(starts[-1]), self._next)
        if begin == self._next:
            return True
        rows = self._rows[begin : self._next]
        offsets = rows["commit_log_offset"].astype(np.int64)
        is_first = np.concatenate(([True], offsets[1:] != offsets[:-1]))
        own = offsets[is_first]
        at = np.searchsorted(starts, own) if len(own) != len(starts) else np.arange(len(own))
        if int(at[-1]) == len(starts) or (starts[at] != own).any():
            return False
        is_indexed[at] = True
        seconds = seconds_since(self._begin_timestamp, times[at])[np.cumsum(is_first) - 1]
        differs = rows["time_diff_seconds"] != seconds
        return not differs[1 if begin == 0 else 0 :].any()

    def _behind(self, commit_log_offset: int, at: int) -> int:
        """Return the first entry, from ``at`` on, of a record that starts after an offset."""
        while at < len(self._rows):
            chunk = self._rows[at : at + _CHUNK_ENTRIES]["commit_log_offset"].astype(np.int64)
            count = int(np.searchsorted(chunk, commit_log_offset, "right"))
            at += count
            if count < len(chunk):
                break
        return at


def index_proof(
    directory: StoreDirectory, config: MessageStoreConfig, checkpoint: StoreCheckpoint
) -> IndexProof | None:
    """Return a proof for the files that a crash may have torn, up to the first torn one.

    Returns
    -------
    proof
        None if there is no such file, or the first of them is torn.

    Raises
    ------
    StoreConfigError
        The sizes of the files contradict the configuration.
    """
    names, sizes = names_and_sizes(directory, config, last_exit_ok=False)
    if sizes is None:
        return None
    flushed = flushed_files(directory, names, sizes, checkpoint.index_msg_timestamp or 0)
    with ExitStack() as opened:
        found = []
        for name in names[len(flushed) :]:
            try:
                source = opened.enter_context(directory.open(directory.resolve(INDEX_DIR, name)))
                file = IndexFile(source, *sizes)
                if not is_whole(file):
                    break
                found.append(file)
            except (CorruptRecordError, StoreReadError):
                break
        if not found:
            return None
        return IndexProof(found, with_tags=bool(config.tag_index_enable))


def index_keys(
    directory: StoreDirectory,
    config: MessageStoreConfig,
    checkpoint: StoreCheckpoint,
    *,
    last_exit_ok: bool,
) -> IndexProof | PendingIndexEntries | None:
    """Return the receiver of the walk's records for the index; None if the index needs none.

    Parameters and errors are those of `index_proof`; after a clean stop the sizes must be known.
    """
    if not config.message_index_enable:
        return None
    pending = PendingIndexEntries(with_tags=bool(config.tag_index_enable))
    if last_exit_ok:
        # Before the first change: an error leaves the store unchanged, stopped cleanly.
        names, _ = names_and_sizes(directory, config, last_exit_ok=True)
        return None if names else pending
    return index_proof(directory, config, checkpoint) or pending


class PendingIndexEntries:
    """Collects index entries during the walk, so that the log is not read and parsed a second time.

    The number of entries is bounded; ``IndexDispatcher.catch_up`` adds the rest.
    """

    def __init__(self, *, with_tags: bool) -> None:
        self._with_tags = with_tags
        self._start = -1
        self._entries = 0
        self._held: list[tuple[IndexEntries, int]] = []

    @property
    def proved(self) -> frozenset[str]:
        """Names of index files proved to belong to the log: empty, as none was checked."""
        return frozenset()

    def add(self, frames: RecordFrames) -> None:
        """Add records; each call's follow those of the call before."""
        if len(frames) == 0 or self._entries >= _MAX_ENTRIES:
            return
        if self._start < 0:
            self._start = int(frames.column("commit_log_offset")[0])
        entries = index_entries(MessageColumns.shared(frames), with_tags=self._with_tags)
        end = int(frames.column("commit_log_offset")[-1] + frames.column("total_size")[-1])
        self._held.append((entries, end))
        self._entries += len(entries.key_hash)

    def give(self, index: IndexDispatcher) -> None:
        """Give an index the entries that it lacks, if they begin at or after the first record.

        Raises
        ------
        StoreWriteError
            The index cannot be written.
        """
        held, self._held = self._held, []
        if held and index.is_behind and self._start <= index.from_offset:
            index.take_up(held)
