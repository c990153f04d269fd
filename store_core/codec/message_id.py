"""The offset message id: store host and commit log offset in upper-case hex.

Source: RocketMQ ``MessageDecoder.createMessageId``, ``decodeMessageId`` (release 5.3.3).
"""

from __future__ import annotations

import struct
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from store_core.arrow import pa
from store_core.codec.gather import fixed_width_strings
from store_core.layout.message import IPV4_HOST_BYTES, IPV6_HOST_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array

_OFFSET_BYTES = 8
_ID_CHARACTERS = (2 * (IPV4_HOST_BYTES + _OFFSET_BYTES), 2 * (IPV6_HOST_BYTES + _OFFSET_BYTES))
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_PROCESS = struct.Struct(">Hi")  # process id, hash of the class loader
_VARYING_CHARACTERS = 12  # eight of milliseconds, four of the counter
_COUNTER_BITS = 16
_MS_MASK = 0xFFFFFFFF


def message_id(store_host: bytes, commit_log_offset: int) -> str:
    """Return the id of the record at an offset; 32 characters, 56 with an IPv6 host."""
    return (store_host + commit_log_offset.to_bytes(8, "big", signed=True)).hex().upper()


def parse_message_id(text: str) -> tuple[bytes, int]:
    """Return store host (8 or 20 bytes) and commit log offset of an id, in either case.

    Raises
    ------
    ValueError
        The text is not 32 or 56 hex characters.
    """
    if len(text) not in _ID_CHARACTERS:
        raise ValueError(f"a message id has 32 or 56 hex characters, not {len(text)}: {text!r}")
    if not _HEX_DIGITS.issuperset(text):
        raise ValueError(f"a message id has hex characters only: {text!r}")
    raw = bytes.fromhex(text)
    return raw[:-_OFFSET_BYTES], int.from_bytes(raw[-_OFFSET_BYTES:], "big", signed=True)


def message_id_column(
    store_hosts: npt.NDArray[np.uint8], commit_log_offsets: npt.NDArray[np.int64]
) -> Array:
    """Return the ids of many records as a ``pa.StringArray``.

    Parameters
    ----------
    store_hosts
        Shape (n, 8) or (n, 20): the stored bytes.

    Raises
    ------
    ValueError
        The ids fill more than 2 GiB, the bound of a string array.
    """
    count, host_bytes = store_hosts.shape
    characters = 2 * (host_bytes + _OFFSET_BYTES)
    if count * characters >= 1 << 31:
        raise ValueError(f"{count} message ids do not fit one string array")
    raw = np.empty((count, host_bytes + _OFFSET_BYTES), np.uint8)
    raw[:, :host_bytes] = store_hosts
    raw[:, host_bytes:] = commit_log_offsets.astype(">i8").view(np.uint8).reshape(-1, _OFFSET_BYTES)
    text = _hex_pairs()[raw]
    starts = np.arange(0, (count + 1) * characters, characters, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(starts), pa.py_buffer(text))


@lru_cache(maxsize=1)
def _hex_pairs() -> npt.NDArray[np.uint16]:
    """Two characters of every byte, as they lie in memory."""
    return np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)


# Source: RocketMQ ``MessageClientIDSetter.createUniqID`` (release 5.3.3): address, process id, hash
# of the class loader, milliseconds since the month began, a counter; upper-case hex.
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
