"""Keeps the beginning of a record back until its rest has come.

The pieces that come end anywhere. A record of which the last bytes are missing, its properties, is
not told from a whole one in a file: zeros are there, and no checksum covers them. Whoever reads
the log meanwhile, and whoever recovers it after a kill, would take it for a message without keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.record_walk import walk_records
from store_core.layout.message import (
    BLANK_RECORD_BYTES,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_BYTES = 64 << 20
_MAGIC_CODES = {MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2}


class LogPart(NamedTuple):
    """Bytes of the log that may be appended; valid until more is received."""

    offset: int
    data: memoryview


class WholeRecords:
    """Gives what ends with a record, and keeps the rest.

    From a place on where no record lies, all is given as it comes up to the end of the segment:
    the rest of a blank record, or damage of the master's log. So is a record that claims to be
    longer than the segment, or than 64 MiB.

    Parameters
    ----------
    segment_size
        Bytes of a segment; what is given to `take` at once lies in one.
    """

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self._kept = bytearray()
        self._passes_until = 0

    def take(self, offset: int, data: memoryview) -> Iterator[LogPart]:
        """Yield what may be appended, in offset order.

        Parameters
        ----------
        offset
            Of the first byte: where what was taken before ends; at first a record's.
        """
        while data:
            if offset < self._passes_until:
                yield LogPart(offset, data)
                return
            if not self._kept:
                yield from self._split(offset, data)
                return
            begin, lacking = offset - len(self._kept), self._lacking()
            self._kept += data[:lacking]
            offset, data = begin + len(self._kept), data[lacking:]
            if not self._may_become_record(begin, memoryview(self._kept)):
                kept, self._kept = self._kept, bytearray()
                yield from self._split(begin, memoryview(kept))

    def _split(self, offset: int, data: memoryview) -> Iterator[LogPart]:
        """Yield what ends with a record, and keep what follows, unless no record lies there."""
        walk = walk_records(np.frombuffer(data, np.uint8), 0, len(data), len(data), len(data) + 1)
        stop = offset + walk.stop
        if walk.stop < len(data) and self._may_become_record(stop, data[walk.stop :]):
            self._kept += data[walk.stop :]
            data = data[: walk.stop]
        elif walk.stop < len(data):
            self._passes_until = stop - stop % self._segment_size + self._segment_size
        if data:
            yield LogPart(offset, data)

    def _lacking(self) -> int:
        """Return how many bytes the kept record lacks, or as many as tell how long it is."""
        if len(self._kept) < BLANK_RECORD_BYTES:
            return BLANK_RECORD_BYTES - len(self._kept)
        return int(RECORD_PREFIX.struct.unpack_from(self._kept)[0]) - len(self._kept)

    def _may_become_record(self, offset: int, data: memoryview) -> bool:
        room = self._segment_size - offset % self._segment_size
        if len(data) >= room:
            return False
        if len(data) < BLANK_RECORD_BYTES:
            return True
        size, magic = RECORD_PREFIX.struct.unpack_from(data)
        return magic in _MAGIC_CODES and len(data) < size <= min(room, _MOST_BYTES)
