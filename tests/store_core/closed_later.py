"""Files and stores that a test opens and leaves to the fixture of all tests here to close."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol, TypeVar


class Closable(Protocol):
    """What has a ``close``."""

    def close(self) -> object:
        """Close it."""


T = TypeVar("T", bound=Closable)
_OPENED = ExitStack()


def closed_later(opened: T) -> T:
    """Return what was given, and close it when the test has ended."""
    _OPENED.callback(opened.close)
    return opened


def close_all() -> None:
    """Close what was opened since."""
    _OPENED.close()
