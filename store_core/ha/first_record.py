"""Byte 0 of a master's log, which it cannot be asked for: 0 means its last segment.

Byte 0 is the high byte of the size of the first record; that record tells it.
"""

from __future__ import annotations

import numpy as np

from store_core.codec.record_walk import is_record
from store_core.errors import HAError
from store_core.layout.message import MIN_RECORD_BYTES

_LOW_BITS = 24
_MOST_BYTES = 64 << 20


class FirstRecord:
    """Collects the log from offset 1 on, until the first record is whole.

    Parameters
    ----------
    peer
        For error texts.
    segment_size
        Bytes of a segment; the record is in the first one.
    """

    def __init__(self, peer: str, segment_size: int) -> None:
        self._peer, self._most = peer, min(segment_size, _MOST_BYTES)
        self._data = bytearray(1)

    def take(self, data: memoryview) -> memoryview | None:
        """Return the log from offset 0 on; None while the first record is not whole.

        Raises
        ------
        HAError
            There is no record at offset 0.
        """
        self._data += data
        if len(self._data) < MIN_RECORD_BYTES:
            return None
        low = int.from_bytes(self._data[1:4], "big")
        for high, size in enumerate(range(low, self._most + 1, 1 << _LOW_BITS)):
            if size > len(self._data):
                return None
            if self._is_record(high):
                return memoryview(self._data)
        raise HAError(
            f"{self._peer} has no record at offset 0 of its log, as far as {len(self._data)} bytes "
            "tell: it cannot be copied from 0 on; copy its files"
        )

    def _is_record(self, high: int) -> bool:
        self._data[0] = high
        return is_record(np.frombuffer(self._data, np.uint8), 0, 0)
