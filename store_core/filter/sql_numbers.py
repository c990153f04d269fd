"""Numbers in texts as Java reads them, for comparisons of a property with a number.

Source: ``Integer.valueOf``, ``Long.valueOf``, ``Double.valueOf`` (OpenJDK 17), as called by
RocketMQ's ``ComparisonExpression.__compare`` (release 5.3.3).
"""

from __future__ import annotations

import math
import re
import struct
import unicodedata

from store_core.codec.java_string import java_integer

_JAVA_TRIM = "".join(map(chr, range(0x21)))
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?)(0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED = re.compile(r"([+-]?)(NaN|Infinity)")
_LAST_SINGLE_UNIT = "\uffff"


def parse_integer(text: str, bits: int) -> int | None:
    """Return what ``Integer.valueOf`` (32 bits) or ``Long.valueOf`` (64) return; None: they throw.

    A sign, then digits of any script, no blanks; in range.
    """
    if not text.isascii():
        text = "".join(map(_ascii_digit, text))
    return java_integer(text, bits)


def _ascii_digit(character: str) -> str:
    """Return a digit of any script as ASCII; Java looks at UTF-16 units, so none above U+FFFF."""
    if character > _LAST_SINGLE_UNIT:
        return character
    digit = unicodedata.decimal(character, None)
    return character if digit is None else str(digit)


def parse_double(text: str) -> float | None:
    """Return what ``Double.valueOf`` returns; None where it throws.

    Blanks around it, ``1d``, ``5.``, ``0x1p3``, ``NaN`` and ``-Infinity`` are numbers; ``inf``,
    ``1_0``, ``0x10`` and digits of other scripts are none.
    """
    text = text.strip(_JAVA_TRIM)
    found = _DECIMAL.fullmatch(text)
    if found:
        return float(found[1])
    found = _NAMED.fullmatch(text)
    if found:
        return math.nan if found[2] == "NaN" else float(found[1] + "inf")
    found = _HEXADECIMAL.fullmatch(text)
    if found is None:
        return None
    try:
        number = float.fromhex(found[2])
    except OverflowError:
        number = math.inf
    return -number if found[1] == "-" else number


def double_order(number: float) -> int:
    """Return a key that orders as ``Double.compare``: -0.0 before 0.0, NaN after all and equal."""
    number = math.nan if math.isnan(number) else number  # Java knows one NaN
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits if bits >= 0 else bits ^ 0x7FFFFFFFFFFFFFFF
