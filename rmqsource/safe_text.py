"""Texts of a store made safe to show: nothing in them steers a terminal or a spreadsheet."""

from __future__ import annotations

import json
from typing import Any, Callable

_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a spreadsheet takes for the begin of a formula; the last four are the wide forms."""


def printable(text: str) -> str:
    """Return the text with every character that is not printable escaped.

    Those are control characters (ESC, BEL, those of C1), marks that turn the direction of writing,
    halves of surrogate pairs, which stand for bytes that are no UTF-8, and line ends.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def json_text(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return a value as JSON in which every character is printable; it says the same."""
    text = json.dumps(value, ensure_ascii=False, default=default)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def spreadsheet_text(text: str) -> str:
    """Return a cell that a spreadsheet takes for text: a formula gets a quote before it."""
    shown = printable(text)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown
