# SPDX-License-Identifier: Apache-2.0
"""Hosts as bytes and as text, and the message ids built from them.

Source: RocketMQ ``MessageDecoder.createMessageId``, ``decodeMessageId`` (release 5.3.3).
"""

from __future__ import annotations

import ipaddress
import struct
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import fixed_width_strings, pa, pc
from store_core.layout import IPV4_HOST_BYTES, IPV6_HOST_BYTES

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
# InetAddress.getByAddress turns ::ffff:a.b.c.d into an IPv4 address.
_IPV4_BYTES = 4
_IPV4_MAPPED = bytes(10) + b"\xff\xff"


def message_id(store_host: bytes, commit_log_offset: int) -> str:
    """Return the id of the record at an offset: 32 characters, 56 with an IPv6 host."""
    return (store_host + commit_log_offset.to_bytes(8, "big", signed=True)).hex().upper()


def parse_message_id(text: str) -> tuple[bytes, int]:
    """Return store host (8 or 20 bytes) and commit log offset of an id in upper or lower case.

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
        The ids take 2 GiB or more, too much for a string array.
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
    """Return the two characters of every byte value, as one number in memory order."""
    return np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)


# Source: RocketMQ ``MessageClientIDSetter.createUniqID`` (release 5.3.3): address, process id, hash
# of the class loader, milliseconds since the month began, a counter; upper-case hex.
class ClientMessageIds:
    """Generates distinct ids, as one Java process does.

    A Java client does not wait for the clock, and its counter wraps after 65,536 ids, so more than
    that in one millisecond repeat. Here the time moves on by one millisecond instead.

    Parameters
    ----------
    address
        This machine's address, 4 or 16 bytes.
    process_id
        Only its low 16 bits are used.
    loader_hash
        Distinguishes processes with equal ids, such as those of two machines that share an
        address: any signed 32-bit number; usually random.
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
    """Return the four characters of every counter value, as one number each."""
    octets = np.arange(1 << _COUNTER_BITS).astype(">u2").tobytes()
    return np.frombuffer(octets.hex().upper().encode(), np.uint32)


def month_start_ms(now_ms: int) -> int:
    """Return midnight, local time, of the first day of the month, ms since the epoch."""
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    first = datetime(now.year, now.month, 1)
    return int(first.timestamp()) * 1000


# Source: RocketMQ ``MessageExt.socketAddress2ByteBuffer``, ``MessageDecoder.decode`` (release
# 5.3.3); spelling of ``java.net.InetAddress.getHostAddress``.
def format_host(raw: bytes) -> str:
    """Return ``1.2.3.4:port`` or ``[2001:db8:0:0:0:0:0:17]:port`` for 8 or 20 stored bytes.

    The address is spelled as in Java (no ``::``); an IPv4-mapped one becomes IPv4. The port is
    the stored number, even one that no socket can have.
    """
    if len(raw) not in (IPV4_HOST_BYTES, IPV6_HOST_BYTES):
        raise ValueError(f"a host has 8 or 20 bytes, not {len(raw)}")
    address, port = raw[:-4], int.from_bytes(raw[-4:], "big", signed=True)
    if address.startswith(_IPV4_MAPPED):
        address = address[12:]
    if len(address) == _IPV4_BYTES:
        return f"{address[0]}.{address[1]}.{address[2]}.{address[3]}:{port}"
    groups = ":".join(f"{group:x}" for group in struct.unpack(">8H", address))
    return f"[{groups}]:{port}"


def parse_host(text: str) -> bytes:
    """Return the stored bytes of ``1.2.3.4:port`` or ``[ipv6]:port`` (8 or 20 bytes).

    Raises
    ------
    ValueError
        The text does not have this form.
    """
    address, _, port_text = text.rpartition(":")
    bracketed = address.startswith("[") and address.endswith("]")
    try:
        packed = (
            ipaddress.IPv6Address(address[1:-1]).packed
            if bracketed
            else ipaddress.IPv4Address(address).packed
        )
        return packed + struct.pack(">i", int(port_text))
    except (ValueError, struct.error) as err:
        raise ValueError(
            f"expected a host as ip:port or [ipv6]:port, not {text!r} ({err})"
        ) from err


def host_column(raw: npt.NDArray[np.uint8]) -> Array:
    """Format many hosts.

    Parameters
    ----------
    raw
        Shape (n, 8) or (n, 20): the stored bytes.
    """
    if raw.shape[1:] not in ((IPV4_HOST_BYTES,), (IPV6_HOST_BYTES,)):
        raise ValueError(f"hosts must have the shape (n, 8) or (n, 20), not {raw.shape}")
    if len(raw) == 0:
        return pa.array([], pa.string())
    raw = np.ascontiguousarray(raw)
    width = raw.shape[1]
    if width == IPV4_HOST_BYTES:
        column = pa.array(raw.view("=i8")[:, 0])
    else:
        fixed = pa.binary(IPV6_HOST_BYTES)
        column = pa.Array.from_buffers(fixed, len(raw), [None, pa.py_buffer(raw)])
    if raw[-1].tobytes() == raw[0].tobytes() and (raw == raw[0]).all():  # usually one broker's
        return pa.repeat(_format_rows(raw[:1])[0], len(raw))
    encoded = column.dictionary_encode()
    distinct = np.frombuffer(
        encoded.dictionary.buffers()[1], np.uint8, width * len(encoded.dictionary)
    )
    texts = _format_rows(distinct.reshape(-1, width))
    return texts if len(texts) == len(raw) else texts.take(encoded.indices)


def _format_rows(raw: npt.NDArray[np.uint8]) -> Array:
    ports = pc.cast(pa.array(_big_endian(raw[:, -4:], "i4")), pa.string())
    if raw.shape[1] == IPV4_HOST_BYTES:
        return _format_ipv4(raw[:, :4], ports)
    groups = _big_endian(raw[:, :16], "u2").reshape(-1, 8)
    parts = [_hex_groups().take(pa.array(groups[:, i])) for i in range(8)]
    texts = pc.binary_join_element_wise(*parts, ":")
    texts = pc.binary_join_element_wise("[", texts, "]:", ports, "")
    mapped = (raw[:, :12] == np.frombuffer(_IPV4_MAPPED, np.uint8)).all(axis=1)
    if mapped.any():
        texts = pc.if_else(pa.array(mapped), _format_ipv4(raw[:, 12:16], ports), texts)
    return texts


def _format_ipv4(octets: npt.NDArray[np.uint8], ports: Array) -> Array:
    decimal = _decimal_octets()
    parts = [decimal.take(pa.array(np.ascontiguousarray(octets[:, i]))) for i in range(4)]
    address = pc.binary_join_element_wise(*parts, ".")
    return pc.binary_join_element_wise(address, ports, ":")


def _big_endian(raw: npt.NDArray[np.uint8], code: str) -> npt.NDArray[Any]:
    return np.ascontiguousarray(raw).view(">" + code).astype("=" + code).reshape(-1)


@lru_cache(maxsize=1)
def _decimal_octets() -> Array:
    return pa.array([str(octet) for octet in range(256)])


@lru_cache(maxsize=1)
def _hex_groups() -> Array:
    return pa.array([f"{group:x}" for group in range(65536)])
