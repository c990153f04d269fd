"""What an empty log begins with: a whole record, before anything is appended.

Byte 0 of a master's log cannot be asked for: 0 means its last segment. It is the high byte of the
size of the first record; that record tells it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from store_core.codec.record_walk import is_record
from store_core.errors import HAError
from store_core.layout.message import MIN_RECORD_BYTES

_LOW_BITS = 24
_MOST_BYTES = 64 << 20


class LogBeginning(NamedTuple):
    """The first bytes of a log, and their offset."""

    offset: int
    data: memoryview


class FirstRecord:
    """Collects what comes, until the first record is whole.

    Parameters
    ----------
    peer
        For error texts.
    segment_size
        Bytes of a segment; the record is in one.
    """

    def __init__(self, peer: str, segment_size: int) -> None:
        self._peer, self._segment_size = peer, segment_size
        self._most = min(segment_size, _MOST_BYTES)
        self._data = bytearray()
        self._begin = 0
        self._lacks_byte_0 = False

    def take(self, offset: int, data: memoryview) -> LogBeginning | None:
        """Return all that came; None while the first record is not whole.

        Parameters
        ----------
        offset
            Of the first byte; 1 at first: byte 0 is to be made anew.

        Raises
        ------
        HAError
            There is no record.
        """
        if not self._data:
            self._lacks_byte_0 = offset == 1
            self._begin = offset - self._lacks_byte_0
            self._data = bytearray(self._lacks_byte_0)
        self._data += data
        if len(self._data) < MIN_RECORD_BYTES:
            return None
        for size in self._sizes():
            if size > len(self._data):
                return None
            self._data[0] = size >> _LOW_BITS
            if is_record(np.frombuffer(self._data, np.uint8), self._begin, 0):
                return LogBeginning(self._begin, memoryview(self._data))
        raise HAError(
            f"{self._peer} has no record at offset {self._begin}, as far as {len(self._data)} "
            "bytes tell: its log is damaged there, or it is no master; a log that begins there "
            "cannot be followed, copy the master's files"
        )

    def _sizes(self) -> range:
        """Return the sizes that the record may have."""
        high = 0 if self._lacks_byte_0 else self._data[0] << _LOW_BITS
        first = high | int.from_bytes(self._data[1:4], "big")
        stop = self._most + 1 if self._lacks_byte_0 else min(first, self._most) + 1
        return range(first, stop, 1 << _LOW_BITS)
