# SPDX-License-Identifier: Apache-2.0
"""Base classes of context managers that end with ``close`` or ``shutdown``."""

from __future__ import annotations

from typing import Protocol, TypeVar

_T = TypeVar("_T")
_S = TypeVar("_S", bound="_Service")


class _Closable(Protocol):
    def close(self) -> object: ...


class _Service(Protocol):
    def start(self) -> object: ...

    def shutdown(self) -> object: ...


class Closing:
    """An object that is open already, and is closed at the end of its block."""

    __slots__ = ()

    def __enter__(self: _T) -> _T:
        return self

    def __exit__(self: _Closable, *_: object) -> None:
        self.close()


class ShuttingDown:
    """A service that starts with its block, and is shut down at the end of it."""

    __slots__ = ()

    def __enter__(self: _S) -> _S:
        self.start()
        return self

    def __exit__(self: _Service, *_: object) -> None:
        self.shutdown()
