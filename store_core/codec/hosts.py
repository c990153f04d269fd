"""Host addresses of a record: address bytes, then the port in four bytes.

Source: RocketMQ ``MessageExt.socketAddress2ByteBuffer``, ``MessageDecoder.decode`` (release
5.3.3); spelling of ``java.net.InetAddress.getHostAddress``.
"""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import pa, pc
from store_core.layout.message import IPV4_HOST_BYTES, IPV6_HOST_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array

# InetAddress.getByAddress turns ::ffff:a.b.c.d into an IPv4 address.
_IPV4_BYTES = 4
_IPV4_MAPPED = bytes(10) + b"\xff\xff"


def format_host(raw: bytes) -> str:
    """Return ``1.2.3.4:port`` or ``[2001:db8:0:0:0:0:0:17]:port`` for 8 or 20 stored bytes.

    The address is spelled as in Java (no ``::``); an IPv4-mapped one becomes IPv4. The port is
    the stored number, also where it is none that a socket can have.
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
        The text is no such host.
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
        raise ValueError(f"no host in the form ip:port or [ipv6]:port: {text!r} ({err})") from err


def host_column(raw: npt.NDArray[np.uint8]) -> Array:
    """Format many hosts.

    Parameters
    ----------
    raw
        Shape (n, 8) or (n, 20): the stored bytes.
    """
    if raw.shape[1:] not in ((IPV4_HOST_BYTES,), (IPV6_HOST_BYTES,)):
        raise ValueError(f"hosts have the shape (n, 8) or (n, 20), not {raw.shape}")
    if len(raw) == 0:
        return pa.array([], pa.string())
    raw = np.ascontiguousarray(raw)
    width = raw.shape[1]
    if width == IPV4_HOST_BYTES:
        column = pa.array(raw.view("=i8")[:, 0])
    else:
        fixed = pa.binary(IPV6_HOST_BYTES)
        column = pa.Array.from_buffers(fixed, len(raw), [None, pa.py_buffer(raw)])
    if raw[-1].tobytes() == raw[0].tobytes() and (raw == raw[0]).all():  # one broker's, as a rule
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
