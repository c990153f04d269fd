"""MurmurHash3, 128 bits for x64, seed 0: the first 64 of them.

Source: Guava ``Hashing.murmur3_128().hashString(text, UTF_8).asLong()``, which RocketMQ's
``BloomFilter.calcBitPositions`` takes (release 5.3.3).
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_MIX1, _MIX2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_BLOCK = 16


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
