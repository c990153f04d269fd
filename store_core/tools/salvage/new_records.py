"""Copies of old records, as the append wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.encoded_records import EncodedRecords
from store_core.codec.record_crcs import rows_with_property_crc
from store_core.layout.message import (
    BORNHOST_V6_FLAG,
    HEADERS,
    STOREHOST_V6_FLAG,
    TRANSACTION_MASK,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_PREPARED_TYPE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Callable

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.tools.salvage.moved_offsets import RecordPlaces

    Int64s = npt.NDArray[np.int64]


class Piece(NamedTuple):
    """Some rows of a batch, to be appended together."""

    rows: slice
    records: EncodedRecords


class NewRecords:
    """The records of a batch, back to back.

    Parameters
    ----------
    frames
        Those of the old log; only rows that are ``ok``.
    rewritten
        Records that have other bytes, by row.
    new_block
        Returns a block of so many bytes, which is filled.

    Attributes
    ----------
    old_sizes
        Bytes of each record in the old log.
    block, starts, sizes
        The new bytes, and where in them each record is.
    """

    def __init__(
        self,
        frames: RecordFrames,
        rewritten: Mapping[int, bytes],
        new_block: Callable[[int], npt.NDArray[np.uint8]],
    ) -> None:
        self._frames = frames
        self.old_sizes = frames.column("total_size").astype(np.int64)
        self.sizes = self.old_sizes.copy()
        for row, record in rewritten.items():
            self.sizes[row] = len(record)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.block = new_block(int(self.sizes.sum()))
        self._copy(rewritten)
        flags = frames.column("sys_flag")
        in_v4, in_v6 = (HEADERS[v6, False].at("store_timestamp") for v6 in (False, True))
        self._times_at = self.starts + np.where(flags & BORNHOST_V6_FLAG, in_v6, in_v4)
        self._prepared = frames.column("prepared_transaction_offset")
        kind = flags & TRANSACTION_MASK
        ended = (kind != TRANSACTION_NOT_TYPE) & (kind != TRANSACTION_PREPARED_TYPE)
        self._referring: list[int] = np.flatnonzero(ended & (self._prepared > 0)).tolist()

    def pieces(self, places: RecordPlaces) -> Iterator[Piece]:
        """Yield all rows in order; what was yielded is in ``places`` when the next is asked for.

        The rows of a piece are all with a CRC of the whole record or all without, and refer to
        prepared messages of earlier pieces only: where these are is known then.
        """
        has_crc = np.zeros(len(self.sizes), bool)
        has_crc[rows_with_property_crc(self._frames)] = True
        bounds = [*self._firsts(has_crc), len(self.sizes)]
        referring = iter([*self._referring, len(self.sizes)])
        row = next(referring)
        for first, stop in zip(bounds, bounds[1:]):
            while row < stop:
                self._refer(row, places)
                row = next(referring)
            yield Piece(slice(first, stop), self._encoded(first, stop, bool(has_crc[first])))

    def _firsts(self, has_crc: npt.NDArray[np.bool_]) -> list[int]:
        changes = (np.flatnonzero(has_crc[1:] != has_crc[:-1]) + 1).tolist()
        firsts, old = [0], self._frames.column("commit_log_offset")
        for row in sorted({*changes, *self._referring}):
            if row in changes or old[firsts[-1]] <= self._prepared[row] < old[row]:
                firsts.append(row)
        return sorted(set(firsts))

    def _refer(self, row: int, places: RecordPlaces) -> None:
        """Let a record name the place that its prepared message has now."""
        new = places.new_offset(int(self._prepared[row]))
        if new is None:
            return
        flags = int(self._frames.column("sys_flag")[row])
        layout = HEADERS[bool(flags & BORNHOST_V6_FLAG), bool(flags & STOREHOST_V6_FLAG)]
        at = int(self.starts[row]) + layout.at("prepared_transaction_offset")
        self.block[at : at + 8] = np.frombuffer(new.to_bytes(8, "big"), np.uint8)

    def _encoded(self, first: int, stop: int, property_crc: bool) -> EncodedRecords:
        return EncodedRecords(
            block=self.block,
            starts=self.starts[first:stop],
            sizes=self.sizes[first:stop],
            body_crc=self._frames.column("body_crc")[first:stop],
            store_timestamp_at=self._times_at[first:stop],
            property_crc=property_crc,
        )

    def _copy(self, rewritten: Mapping[int, bytes]) -> None:
        position, data = self._frames.position, self._frames.data
        ends = position + self.old_sizes
        is_new = np.zeros(len(position), bool)
        is_new[list(rewritten)] = True
        # Stretches without a hole and without other bytes are copied at once.
        breaks = (position[1:] != ends[:-1]) | is_new[1:] | is_new[:-1]
        firsts = [0, *(np.flatnonzero(breaks) + 1).tolist()]
        parts = []
        for first, stop in zip(firsts, [*firsts[1:], len(position)]):
            if is_new[first]:
                parts.append(np.frombuffer(rewritten[first], np.uint8))
            else:
                parts.append(data[int(position[first]) : int(ends[stop - 1])])
        np.concatenate(parts, out=self.block)
