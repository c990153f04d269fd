"""Texts of a store as HTML: nothing in them is markup, nothing in them steers a screen."""

from __future__ import annotations

import html

from rmqsource.safe_text import printable


def text(value: str) -> str:
    """Return a text as HTML, for contents and for attributes in double quotes."""
    return html.escape(printable(value), quote=True)


def note(value: str) -> str:
    """Return a remark as a paragraph."""
    return f'<p class="note">{text(value)}</p>\n'
