"""Make the next items in a thread while one is worked on."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Items that a thread makes before they are asked for.

    Parameters
    ----------
    items
        None is no item. Closed by `close`.
    most
        Made and not yet taken at a time; what such an item refers to must outlive the making of
        as many others.
    """

    def __init__(self, items: Generator[T, None, None], most: int = 1) -> None:
        self._items, self._most = items, most
        self._pool = ThreadPoolExecutor(1, "ahead")
        self._coming: deque[Future[T | None]] = deque()

    def begin(self) -> None:
        """Let the thread begin now, instead of when the first item is asked for."""
        while len(self._coming) < self._most:
            self._submit()

    def __iter__(self) -> Iterator[T]:
        """Yield the items, once."""
        self.begin()
        while (item := self._coming.popleft().result()) is not None:
            self._submit()
            yield item

    def close(self) -> None:
        """Wait for the thread, and close the items."""
        self._pool.shutdown(cancel_futures=True)
        self._items.close()

    def __enter__(self) -> Prefetch[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self) -> None:
        self._coming.append(self._pool.submit(next, self._items, None))
