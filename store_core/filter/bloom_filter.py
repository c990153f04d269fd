# SPDX-License-Identifier: Apache-2.0
"""Bloom filter of consumers: the bits of a message's bitmap that show which consumers want it.

Source: RocketMQ ``BloomFilter``, ``BitsArray``, ``ConsumerFilterManager`` (release 5.3.3).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTE_BITS = 8
_SIGN_BIT = 1 << 31
_WORD = (1 << 32) - 1
_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_MIX1, _MIX2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_BLOCK = 16


class BloomFilter:
    """Bit positions of consumers in a bitmap; a message's bitmap has the bits of all that want it.

    Parameters
    ----------
    error_rate
        Percentage of unwanted messages that pass (``maxErrorRateOfBloomFilter``), 1 to 99.
    consumers
        Expected number of consumers (``expectConsumerNumUseFilter``), at least 1.

    Attributes
    ----------
    bits
        Bits of a bitmap, a multiple of 8.
    """

    def __init__(self, error_rate: int = 20, consumers: int = 32) -> None:
        share = error_rate / 100
        # Divided as Java's ``Math.log(n) / Math.log(m)``: log2() would round otherwise.
        self.hashes = math.ceil(math.log(share) / math.log(0.5))
        least = consumers * (math.log(1 / share) / math.log(2)) * (math.log(math.e) / math.log(2))
        self.bits = -(-math.ceil(least) // _BYTE_BITS) * _BYTE_BITS

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """Return the bits of a consumer group of a topic; some may be equal."""
        # All hashes derive from the two halves of one: for h1 = 5, h2 = 7 they are 12, 19, 26, each
        # wrapped to 32 bits (a negative one is inverted), then taken modulo the bits.
        code = murmur3_64(f"{group}#{topic}".encode("utf-8", "replace"))
        first, second = code & _WORD, code >> 32 & _WORD
        sums = ((first + number * second) & _WORD for number in range(1, self.hashes + 1))
        return tuple((s ^ _WORD if s & _SIGN_BIT else s) % self.bits for s in sums)

    def fits(self, bit_count: int, positions: tuple[int, ...]) -> bool:
        """Return whether stored positions are valid for this filter (``BloomFilter.isValid``).

        Positions outside the bitmap, which RocketMQ accepts, are not.
        """
        return (
            bit_count == self.bits
            and len(positions) == self.hashes
            and all(0 <= position < self.bits for position in positions)
        )

    def bitmap(self, positions: Iterable[int]) -> bytes:
        """Return a bitmap with some bits set: bit p is bit ``p % 8`` of byte ``p // 8``."""
        number = 0
        for position in positions:
            number |= 1 << position
        return number.to_bytes(self.bits // _BYTE_BITS, "little")


# Source: Guava ``Hashing.murmur3_128().hashString(text, UTF_8).asLong()``, which RocketMQ's
# ``BloomFilter.calcBitPositions`` uses (release 5.3.3).
def murmur3_64(data: bytes) -> int:
    """Return the first eight bytes of the hash, read as an unsigned little-endian number."""
    h1 = h2 = 0
    whole = len(data) - len(data) % _BLOCK
    for at in range(0, whole, _BLOCK):
        h1 ^= _mixed1(int.from_bytes(data[at : at + 8], "little"))
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mixed2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    h1 ^= _mixed1(int.from_bytes(data[whole : whole + 8], "little"))
    h2 ^= _mixed2(int.from_bytes(data[whole + 8 :], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_final(h1) + _final(h2)) & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _mixed1(block: int) -> int:
    return _rotated(block * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed2(block: int) -> int:
    return _rotated(block * _C2 & _MASK, 33) * _C1 & _MASK


def _final(value: int) -> int:
    value = (value ^ value >> 33) * _MIX1 & _MASK
    value = (value ^ value >> 33) * _MIX2 & _MASK
    return value ^ value >> 33
