# SPDX-License-Identifier: Apache-2.0
"""Make texts of a store safe to show: nothing in them controls a terminal or a spreadsheet."""

from __future__ import annotations

import json
from typing import Any, Callable

_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters that begin a formula in a spreadsheet; the last four are the full-width forms."""


def printable(text: str) -> str:
    """Return the text with every character that is not printable escaped.

    Such characters are control characters (ESC, BEL, C1), marks that change the direction of
    writing, lone surrogates, which represent bytes that are not UTF-8, and line ends.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def json_text(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return a value as equivalent JSON in which every character is printable."""
    text = json.dumps(value, ensure_ascii=False, default=default)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def spreadsheet_text(text: str) -> str:
    """Return a cell that a spreadsheet reads as text: a formula gets a leading quote."""
    shown = printable(text)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown
