"""Of some services a store has one at a time."""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from store_core.errors import StoreLockedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.services.service_thread import ServiceThread

    class Store(Protocol):
        """What services work on."""

        @property
        def config(self) -> MessageStoreConfig:
            """Its settings."""


class OnePerStore:
    """Knows which service of a kind runs for which store of this process."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._services: weakref.WeakKeyDictionary[Store, weakref.ref[ServiceThread]] = (
            weakref.WeakKeyDictionary()
        )

    @contextmanager
    def starting(self, store: Store, service: ServiceThread) -> Iterator[None]:
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
                    f"another service of this process {self._work}: stop that one",
                    store.config.store_path_root_dir,
                )
            yield
            self._services[store] = weakref.ref(service)
