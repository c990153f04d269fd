# SPDX-License-Identifier: Apache-2.0
"""Compare the end of this copy with the master's log, which sends that part again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.record_frames import walk_records
from store_core.errors import HAError
from store_core.ha.peer import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.message_store import MessageStore

    Int64s = npt.NDArray[np.int64]

OVERLAP_BYTES = 1 << 16
_ROWS = 1 << 16
_BYTES = 1 << 26


class DivergedError(HAError):
    """The log of this copy is not a part of the master's.

    Parameters
    ----------
    is_torn
        Whether this copy has zeros where they differ: bytes that never reached the disk.
    """

    def __init__(
        self, text: str, common: tuple[int, int], *, may_cut: bool, is_torn: bool = False
    ) -> None:
        super().__init__(text)
        self.common, self.may_cut, self.is_torn = common, may_cut, is_torn


def has_no_bytes(store: MessageStore) -> bool:
    """Return whether the log is empty: without a segment, or with one without data."""
    return store.max_phy_offset <= max(store.min_phy_offset, 0)


def overlap_start(store: MessageStore, overlap_bytes: int = OVERLAP_BYTES) -> int:
    """Return the offset to request from the master, so that it repeats the end of this copy.

    It is ``overlap_bytes`` before the end of the log, but not before the last segment; with more
    bytes than `OVERLAP_BYTES` not before the log. Within that limit it is earlier if all of those
    bytes are zeros, as after a blank record. Never 0, which has another meaning.
    """
    end, size = store.max_phy_offset, segment_size(store)
    first = store.min_phy_offset
    if overlap_bytes <= OVERLAP_BYTES:
        first = max(first, (end - 1) - (end - 1) % size)
    start = max(first, end - overlap_bytes)
    while start > first and not _has_data(store, start, overlap_bytes):
        start = max(first, start - overlap_bytes)
    return max(start, 1)


def segment_size(store: MessageStore) -> int:
    """Return the size of a segment of an open store, in bytes."""
    size = store.config.mapped_file_size_commit_log
    if size is None:
        raise HAError("the store is not open")
    return size


class EndComparison:
    """Compares the master's data with this copy, up to the end of its log."""

    def __init__(self, store: MessageStore, peer: str, start: int, end: int) -> None:
        self._store, self._peer = store, peer
        self.start, self.at, self.end = start, start, end

    @property
    def is_done(self) -> bool:
        """Whether all bytes up to the end are compared, and equal."""
        return self.at >= self.end

    def take(self, data: memoryview) -> memoryview:
        """Compare the next bytes, all of one segment; return those that follow the end.

        Raises
        ------
        DivergedError
            The bytes differ.
        ConnectionLostError
            The segment was deleted here meanwhile.
        """
        count = min(len(data), self.end - self.at)
        with self._store.commit_log_data(self.at, count) as own:
            if own is None or len(own) != count:
                raise ConnectionLostError(
                    f"the data at offset {self.at} was deleted from this copy meanwhile"
                )
            same = own == np.frombuffer(data, np.uint8, count)
            if not same.all():
                is_torn = not own[~same].any()
                raise self._different(self.at + int(np.argmin(same)), is_torn=is_torn)
        self.at += count
        return data[count:]

    def _different(self, offset: int, *, is_torn: bool) -> DivergedError:
        return DivergedError(
            f"{self._peer} has different bytes at offset {offset}: it is another master, or it "
            f"continued without the data that this copy has from there to its end at {self.end}. "
            "Start with an empty directory, copy the master's files, or cut this copy where it "
            "differs (cut, --cut; the bytes cut off are kept)",
            (self.start, offset),
            may_cut=True,
            is_torn=is_torn,
        )


def _has_data(store: MessageStore, start: int, count: int) -> bool:
    """Return whether any byte from an offset on, within one segment, is not zero or was deleted."""
    with store.commit_log_data(start, count) as data:
        return data is None or bool(data.any())


def end_of_common_records(store: MessageStore, start: int, stop: int) -> int | None:
    """Return the end of the last record within ``[start, stop)``; None if there is none.

    A blank record ends with its segment. Equal bytes prove little without a record: zeros are equal
    everywhere.
    """
    size = segment_size(store)
    segment = (stop - 1) - (stop - 1) % size
    low = max(store.min_phy_offset, start - start % size)
    while segment >= low:
        last, has_record = None, False
        for starts, ends in _records(store, segment):
            within = ends[ends <= stop]
            last = int(within[-1]) if len(within) else last
            has_record = has_record or bool((starts[: len(within)] >= start).any())
            if len(within) < len(ends):
                break
        if has_record:
            return last
        stop, segment = min(stop, segment), segment - size
    return None


def start_of_last_blank(store: MessageStore) -> int | None:
    """Return the start of the blank record that ends the log; None if the log ends otherwise."""
    end, size = store.max_phy_offset, segment_size(store)
    at = segment = (end - 1) - (end - 1) % size
    while 0 <= at < end:
        with store.commit_log_data(at, segment + size - at) as data:
            if data is None:
                return None
            walk = walk_records(data, 0, len(data), _ROWS, _BYTES)
        at += walk.stop
        if walk.blank:
            return at
        if walk.failed or not len(walk.starts):
            return None
    return None


def _records(store: MessageStore, segment: int) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield starts and ends of the records of one segment, in offset order, in parts."""
    at, size = segment, segment_size(store)
    while True:
        with store.commit_log_data(at, segment + size - at) as data:
            if data is None:
                return
            walk = walk_records(data, 0, len(data), _ROWS, _BYTES)
        starts, at = walk.starts + at, at + walk.stop
        if walk.blank:
            starts, at = np.append(starts, at), segment + size
        if len(starts):
            yield starts, np.append(starts[1:], at)
        if not len(starts) or at >= segment + size:
            return
