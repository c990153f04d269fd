# SPDX-License-Identifier: Apache-2.0
"""Java's ``String`` rules that decide what RocketMQ sees in stored bytes.

Source: ``java.lang.String`` of OpenJDK 17 (UTF-8 decoding, ``hashCode``).
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import pa

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array

# To Java an encoded surrogate is one malformed sequence, to Python one per byte. 0xED is never a
# continuation byte, so these bytes always begin a sequence of their own.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_JAVA_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})", re.ASCII)
_REPLACEMENT = "\ufffd".encode()

_BLOCK_BYTES = 1 << 16  # both power tables of a block stay in the second-level cache
_WORD_BYTES = 8
_WORD_ROWS = 1 << 14
_MOST_IN_WORDS = 256  # bytes per row; every eight take a step
_WORD_FACTOR = np.uint32(31**_WORD_BYTES & 0xFFFFFFFF)
_EVEN_BYTES, _EVEN_PAIRS, _LOW_HALF = 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF
_INT32_WRAP = 0xFFFFFFFF
_FOUR_BYTE_LEAD = 0xF0  # of characters that are two UTF-16 units
_FIRST_LEAD = -0x40  # as signed bytes, continuation bytes (80 to BF) are below
_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def decode_utf8(data: bytes) -> str:
    """Decode as ``new String(bytes, UTF_8)`` of Java 17: malformed sequences become U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def is_name(stored: bytes, name: str) -> bool:
    """Return whether stored bytes are ``name``, as Java decodes them or byte for byte."""
    return stored == os.fsencode(name) or decode_utf8(stored) == name


def java_integer(text: str, bits: int) -> int | None:
    """Parse as ``Long.parseLong`` and its siblings do; None where they throw.

    They also accept the digits of other scripts, for which this returns None.
    """
    found = _JAVA_INTEGER.fullmatch(text)
    if found is None:
        return None
    number = int(found.group(1) + found.group(2))
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def java_split(text: str, separator: str) -> list[str]:
    """Split as ``String.split`` does: empty parts at the end are dropped."""
    parts = text.split(separator)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def utf16_length(text: str) -> int:
    """Return ``String.length()``: characters outside the basic plane count twice."""
    return len(text) + sum(char > "\uffff" for char in text)


def string_hash(text: str) -> int:
    """Return ``String.hashCode()``, a signed 32-bit number over the UTF-16 units."""
    units = memoryview(text.encode(_UTF16, "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & _INT32_WRAP
    return value - (1 << 32) if value >> 31 else value


def string_hashes(strings: Array) -> npt.NDArray[np.int32]:
    """Return ``String.hashCode()`` of every row of an Arrow array.

    Parameters
    ----------
    strings
        Array of type string, large_string, binary or large_binary; bytes are decoded as
        `decode_utf8` does.

    Returns
    -------
    hashes
        One number per row; 0 for nulls and empty strings.
    """
    if len(strings) == 0:
        return np.empty(0, np.int32)
    offsets, data = _offsets_and_data(strings)
    hashes = _hashes_of_words(data, offsets)
    if hashes is None:
        hashes = _hashes_in_blocks(data, offsets)
    if strings.null_count:  # the bytes of a null row are undefined
        hashes[strings.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes.view(np.int32)


def _hashes_in_blocks(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    count = len(offsets) - 1
    hashes = np.zeros(count, np.uint32)
    row = 0
    while row < count:
        stop = int(np.searchsorted(offsets, offsets[row] + _BLOCK_BYTES, "right")) - 1
        if stop > row:
            hashes[row:stop] = _block_hashes(data, offsets[row : stop + 1])
        else:
            stop = row + 1
            text = decode_utf8(data[offsets[row] : offsets[stop]].tobytes())
            hashes[row] = string_hash(text) & _INT32_WRAP
        row = stop
    return hashes


def _offsets_and_data(strings: Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    large = pa.types.is_large_string(strings.type) or pa.types.is_large_binary(strings.type)
    if not (large or pa.types.is_string(strings.type) or pa.types.is_binary(strings.type)):
        raise TypeError(f"expected an array of strings or bytes, not {strings.type}")
    _, offsets_buffer, data_buffer = strings.buffers()
    width = 8 if large else 4
    offsets = np.frombuffer(
        offsets_buffer, f"i{width}", len(strings) + 1, strings.offset * width
    ).astype(np.int64)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    return offsets, data


def _block_hashes(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    begin = int(offsets[0])
    block, bounds = data[begin : int(offsets[-1])], offsets - begin
    if not _not_ascii(block).any():
        return _polynomials(block, bounds)
    units = _utf16_units(block, bounds)
    if units is not None:
        return _polynomials(*units)
    hashes = _polynomials(block, bounds)
    rows = np.unique(np.searchsorted(bounds, np.flatnonzero(_not_ascii(block)), "right") - 1)
    for row in rows.tolist():  # the block has malformed bytes: non-ASCII rows go one by one
        text = decode_utf8(block[bounds[row] : bounds[row + 1]].tobytes())
        hashes[row] = string_hash(text) & _INT32_WRAP
    return hashes


def _hashes_of_words(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32] | None:
    """Hash rows of equal length, 8, 16, … 256 ASCII bytes, such as unique keys; None for others.

    Hashing eight bytes as one number takes a third of the time: neighbours are combined in place,
    in fields of 16 bits, then of 32, then of 64.
    """
    count, begin, width = len(offsets) - 1, int(offsets[0]), int(offsets[1] - offsets[0])
    if width % _WORD_BYTES or not 0 < width <= _MOST_IN_WORDS or (np.diff(offsets) != width).any():
        return None
    block = data[begin : begin + count * width]
    if _not_ascii(block).any():
        return None
    hashes = np.empty(count, np.uint32)
    for row in range(0, count, _WORD_ROWS):
        words = _word_hashes(block[row * width : (row + _WORD_ROWS) * width].view("<u8"))
        columns = words.reshape(-1, width // _WORD_BYTES).T
        part = hashes[row : row + _WORD_ROWS]
        part[:] = columns[0]
        for column in columns[1:]:
            part *= _WORD_FACTOR
            part += column
    return hashes


def _word_hashes(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Return the polynomial of the eight bytes of each number, the lowest byte first."""
    low, high = words & _EVEN_BYTES, words >> 8 & _EVEN_BYTES
    low *= 31
    low += high
    for field, factor, mask in ((16, 31**2, _EVEN_PAIRS), (32, 31**4, _LOW_HALF)):
        np.bitwise_and(low >> field, mask, out=high)
        low &= mask
        low *= factor
        low += high
    return low.astype(np.uint32)


def _not_ascii(block: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return block.view(np.int8) < 0


def _utf16_units(
    block: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64]] | None:
    """Return a block's UTF-16 units and where each row begins in them; None if one is malformed."""
    continuation = block.view(np.int8) < _FIRST_LEAD
    if continuation[bounds[:-1][bounds[:-1] < len(block)]].any():
        return None  # well-formed only as a whole: a character is split between two rows
    try:
        text = block.tobytes().decode()
    except UnicodeDecodeError:
        return None
    begun = np.zeros(len(block) + 1, np.int64)
    np.cumsum(~continuation + (block >= _FOUR_BYTE_LEAD).astype(np.int64), out=begun[1:])
    return np.frombuffer(text.encode(_UTF16), np.uint16), begun[bounds]


def _polynomials(units: npt.NDArray[Any], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    # 31 is odd, so it has an inverse modulo 2**32: sums of unit * 31**-position up to every
    # bound give each row's polynomial by one subtraction, without a loop over positions.
    powers, inverse_powers = _power_tables()
    sums = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units * inverse_powers[: len(units)], dtype=np.uint32, out=sums[1:])
    return (sums[bounds[1:]] - sums[bounds[:-1]]) * powers[bounds[1:]]


@lru_cache(maxsize=1)
def _power_tables() -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return ``31**(position - 1)`` and ``31**-position`` modulo 2**32."""
    inverse = pow(31, -1, 1 << 32)
    powers = np.full(_BLOCK_BYTES + 1, 31, np.uint32)
    powers[0] = inverse
    inverse_powers = np.full(_BLOCK_BYTES + 1, inverse, np.uint32)
    inverse_powers[0] = 1
    return (
        np.multiply.accumulate(powers, dtype=np.uint32),
        np.multiply.accumulate(inverse_powers, dtype=np.uint32),
    )
