"""Client message ids (property ``UNIQ_KEY``), many at once.

Source: RocketMQ ``MessageClientIDSetter.createUniqID`` (release 5.3.3): address, process id, hash
of the class loader, milliseconds since the month began, a counter; upper-case hex.
"""

from __future__ import annotations

import struct
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.gather import fixed_width_strings

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array

_PROCESS = struct.Struct(">Hi")  # process id, hash of the class loader
_VARYING_CHARACTERS = 12  # eight of milliseconds, four of the counter
_COUNTER_BITS = 16
_MS_MASK = 0xFFFFFFFF


class ClientMessageIds:
    """Gives out ids that differ from each other, as one Java process would.

    A Java client waits for no clock and begins its counter anew after 65,536 ids, so that more
    than that in one millisecond repeat. Here the time moves on by one millisecond instead.

    Parameters
    ----------
    address
        4 or 16 bytes of this machine's address.
    process_id
        Its low 16 bits count.
    loader_hash
        What tells apart two processes of equal number, such as those of two machines behind one
        address: any number of 32 bits, signed; random, as a rule.
    now_ms
        Milliseconds since the epoch.
    """

    def __init__(self, address: bytes, process_id: int, loader_hash: int, now_ms: int) -> None:
        fixed = address + _PROCESS.pack(process_id & 0xFFFF, loader_hash)
        self._prefix = fixed.hex().upper().encode()
        self._next = (now_ms - month_start_ms(now_ms)) << _COUNTER_BITS

    def next_ids(self, count: int) -> Array:
        """Return the next ids as a ``pa.StringArray``: 32 characters, 56 with an IPv6 address."""
        width = len(self._prefix) + _VARYING_CHARACTERS
        ids = np.empty(count, f"V{width}")
        first = 0
        while first < count:
            ms, counter = divmod(self._next, len(_counters()))
            stop = min(first + len(_counters()) - counter, count)
            some = ids[first:stop]
            some[:] = np.void(self._prefix + b"%012X" % ((ms & _MS_MASK) << _COUNTER_BITS))
            some.view(np.uint32).reshape(len(some), -1)[:, -1] = _counters()[counter:][: len(some)]
            self._next += len(some)
            first = stop
        return fixed_width_strings(ids.view(np.uint8).reshape(count, width))


@lru_cache(maxsize=1)
def _counters() -> npt.NDArray[np.uint32]:
    """Return the four characters of every value of the counter, as one number each."""
    octets = np.arange(1 << _COUNTER_BITS).astype(">u2").tobytes()
    return np.frombuffer(octets.hex().upper().encode(), np.uint32)


def month_start_ms(now_ms: int) -> int:
    """Return midnight, local time, of the first day of the month, ms since the epoch."""
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    first = datetime(now.year, now.month, 1)
    return int(first.timestamp()) * 1000
