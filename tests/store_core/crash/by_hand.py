# SPDX-License-Identifier: Apache-2.0
"""Stores whose services run only when a test says so: no threads, no waits, repeatable."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from store_core import MessageStore
from store_core.services.service_thread import ServiceThread


@contextmanager
def without_threads() -> Iterator[None]:
    """Start no thread for stores that are started within the block.

    A put that waits for a flush then flushes itself; `dispatch_all`, `run_some_service` and
    ``shutdown`` do dispatch and all other work.
    """
    with mock.patch.object(ServiceThread, "start", return_value=None):
        yield


@contextmanager
def nothing_forced() -> Iterator[None]:
    """Force nothing to the real disk, which only takes time; wrap this around any recording."""
    with mock.patch.multiple(os, fsync=lambda _: None, fdatasync=lambda _: None):
        yield


def dispatch_all(store: MessageStore) -> None:
    """Dispatch everything that was flushed, or needs no flush, to queues and index."""
    services = store.services
    while services.reput.run_once() or services.build_index.run_once():
        pass


def run_some_service(store: MessageStore, generator: random.Random) -> None:
    """Let one of the services do its work."""
    services = store.services
    chosen = generator.choice(
        [
            services.reput,
            services.reput,
            services.build_index,
            services.flush.flush_service,
            services.flush_queues,
            services.checkpoint,
            services.correct_logic_offset,
        ]
    )
    chosen.run_once()
