"""Of some services a store has one at a time."""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from store_core.errors import StoreLockedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.services.service_thread import ServiceThread


class OnePerStore:
    """Knows which service of a kind runs for which store of this process."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._services: weakref.WeakKeyDictionary[object, weakref.ref[ServiceThread]] = (
            weakref.WeakKeyDictionary()
        )

    @contextmanager
    def starting(self, store: object, root: str, service: ServiceThread) -> Iterator[None]:
        """Start a service in the block, while no other one starts; it may be the one that runs.

        Raises
        ------
        StoreLockedError
            Another one runs: everything would be done twice.
        """
        with self._lock:
            other = self._services.get(store, lambda: None)()
            if other is not None and other is not service and other.is_running:
                raise StoreLockedError(
                    f"another service of this process {self._work}: stop that one", root
                )
            yield
            self._services[store] = weakref.ref(service)
