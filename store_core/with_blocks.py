"""What ends with its ``with`` block, by the name of the method that ends it."""

from __future__ import annotations

from typing import Protocol, TypeVar

_T = TypeVar("_T")
_Starts = TypeVar("_Starts", bound="_Startable")


class _Closable(Protocol):
    def close(self) -> object: ...


class _Startable(Protocol):
    def start(self) -> object: ...


class _ShutDown(Protocol):
    def shutdown(self) -> object: ...


class _Stoppable(Protocol):
    def stop(self) -> object: ...


class Closing:
    """Is open already, and closed at the end of its block."""

    __slots__ = ()

    def __enter__(self: _T) -> _T:
        return self

    def __exit__(self: _Closable, *_: object) -> None:
        self.close()


class ShuttingDown:
    """Starts with its block, and is shut down at the end of it."""

    __slots__ = ()

    def __enter__(self: _Starts) -> _Starts:
        self.start()
        return self

    def __exit__(self: _ShutDown, *_: object) -> None:
        self.shutdown()


class Stopping:
    """Starts with its block, and stops at the end of it."""

    __slots__ = ()

    def __enter__(self: _Starts) -> _Starts:
        self.start()
        return self

    def __exit__(self: _Stoppable, *_: object) -> None:
        self.stop()
