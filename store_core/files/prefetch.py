"""Make the next item in a thread while one is worked on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

T = TypeVar("T")


def prefetch(items: Generator[T, None, None]) -> Iterator[T]:
    """Yield items; the next one is made meanwhile, at most one.

    What an item refers to must outlive the making of the next one.
    """
    with ThreadPoolExecutor(1, "ahead") as pool:
        try:
            coming = pool.submit(next, items, None)
            while (item := coming.result()) is not None:
                coming = pool.submit(next, items, None)
                yield item
        finally:
            pool.shutdown()
            items.close()
