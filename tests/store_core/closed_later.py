# SPDX-License-Identifier: Apache-2.0
"""Files and stores that a test opens, and that a fixture of all tests here closes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol, TypeVar


class Closable(Protocol):
    """Anything with a ``close``."""

    def close(self) -> object:
        """Close it."""


T = TypeVar("T", bound=Closable)
_OPENED = ExitStack()


def closed_later(opened: T) -> T:
    """Return the argument, and close it when the test has ended."""
    _OPENED.callback(opened.close)
    return opened


def close_all() -> None:
    """Close everything opened since."""
    _OPENED.close()
