"""Addresses that a list of trusted ones names.

Source: RocketMQ ``RemoteAddressStrategyFactory`` (release 4.9.7).
"""

from __future__ import annotations

import functools
import ipaddress

from store_core.errors import StoreConfigError

_IPV4_PARTS, _IPV6_PARTS = 4, 8
_ANY = frozenset(("*", "*.*.*.*", "*:*:*:*:*:*:*:*"))

Range = tuple[int, int]


class AddressPattern:
    """Which addresses a text means.

    ``*`` all; ``10.0.0.7`` one; ``10.0.0.7,10.0.0.8`` and ``10.0.0.{7,8}`` several;
    ``10.0.*.*`` and ``10.0.0.1-9`` ranges; IPv6 alike. A blank text means none.

    Parameters
    ----------
    text
        The pattern.

    Raises
    ------
    StoreConfigError
        It is none.
    """

    def __init__(self, text: str) -> None:
        text = text.strip()
        self._matches_all = text in _ANY
        try:
            self._patterns = [] if self._matches_all else [_parts(each) for each in _each(text)]
        except ValueError as err:
            raise StoreConfigError(
                f"{text!r} is no pattern of addresses ({err}); examples: 10.0.0.7, 10.0.*.*, "
                "10.0.0.1-9, 10.0.0.{7,8}, *"
            ) from err

    def matches(self, host: str) -> bool:
        """Return whether the host, an IP address, is meant."""
        if self._matches_all:
            return True
        if not self._patterns:
            return False
        numbers = _numbers_of(host)
        return any(
            len(pattern) == len(numbers)
            and all(low <= number <= high for number, (low, high) in zip(numbers, pattern))
            for pattern in self._patterns
        )


@functools.lru_cache(maxsize=4096)
def _numbers_of(host: str) -> list[int]:
    """Return the parts of an address; each request asks for that of its client."""
    return _numbers(ipaddress.ip_address(host))


def _numbers(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[int]:
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return _numbers(address.ipv4_mapped)
        return [int(part, 16) for part in address.exploded.split(":")]
    return list(address.packed)


def _each(text: str) -> list[str]:
    """Return the patterns of a list of them."""
    if not text:
        return []
    if text.endswith("}"):
        head, brace, tail = text[:-1].rpartition("{")
        if not brace:
            raise ValueError("there is no { before the }")
        return [head + last.strip() for last in tail.split(",")]
    return [each.strip() for each in text.split(",")]


def _parts(text: str) -> list[Range]:
    """Return the lowest and highest value of each part of an address."""
    if "*" not in text and "-" not in text:
        return [(number, number) for number in _numbers(ipaddress.ip_address(text))]
    separator, count = (":", _IPV6_PARTS) if ":" in text else (".", _IPV4_PARTS)
    most = 0xFFFF if separator == ":" else 0xFF
    parts = text.split(separator)
    if "" in parts:  # ::
        at = text.index("::")
        head = [part for part in text[:at].split(separator) if part]
        tail = [part for part in text[at + 2 :].split(separator) if part]
        parts = [*head, *["0"] * (count - len(head) - len(tail)), *tail]
    if len(parts) != count:
        raise ValueError(f"{len(parts)} parts, {count} are needed")
    return [_range(part.strip(), 16 if separator == ":" else 10, most) for part in parts]


def _range(part: str, base: int, most: int) -> Range:
    if part == "*":
        return 0, most
    low, _, high = part.partition("-")
    found = int(low, base), int(high or low, base)
    if not 0 <= found[0] <= found[1] <= most:
        raise ValueError(f"{part!r} is no range from 0 to {most}")
    return found
