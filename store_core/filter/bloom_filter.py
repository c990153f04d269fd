"""Bloom filter of consumers: which bits of a message's bitmap say that a consumer wants it.

Source: RocketMQ ``BloomFilter``, ``BitsArray``, ``ConsumerFilterManager`` (release 5.3.3).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from store_core.filter.murmur_hash import murmur3_64

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTE_BITS = 8
_SIGN_BIT = 1 << 31
_WORD = (1 << 32) - 1


class BloomFilter:
    """Bit positions of consumers in a bitmap; a message has the bits of all that want it.

    Parameters
    ----------
    error_rate
        Percent of messages that pass though the consumer does not want them
        (``maxErrorRateOfBloomFilter``), 1 to 99.
    consumers
        How many consumers are expected (``expectConsumerNumUseFilter``), at least 1.

    Attributes
    ----------
    hashes
        Bits of a consumer.
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
        """Return the bits of a consumer group of a topic; two of them may be equal."""
        # Two halves of one hash make all others: for h1 = 5, h2 = 7 they are 12, 19, 26, each
        # wrapped to 32 bits (a negative one is inverted), then taken modulo the bits.
        code = murmur3_64(f"{group}#{topic}".encode("utf-8", "replace"))
        first, second = code & _WORD, code >> 32 & _WORD
        sums = ((first + number * second) & _WORD for number in range(1, self.hashes + 1))
        return tuple((s ^ _WORD if s & _SIGN_BIT else s) % self.bits for s in sums)

    def fits(self, bit_count: int, positions: tuple[int, ...]) -> bool:
        """Return whether stored positions are those of such a filter (``BloomFilter.isValid``).

        Positions outside of the bitmap, which RocketMQ lets pass, do not fit.
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
