# SPDX-License-Identifier: Apache-2.0
"""Stops whatever a failed test left running, so that it makes no other test fail."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_PATIENCE_S = 20.0
_VERBS = ("shutdown", "stop", "close", "cleanup")
_started: weakref.WeakSet[Any] = weakref.WeakSet()


def watch_starts() -> None:
    """Record all clients, brokers and stores that are started from now on."""
    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.namesrv.name_server import NameServer
    from rmqnet.served_store import ServedStore
    from store_core.message_store import MessageStore

    for owner in (ClientInstance, ServedStore, NameServer, MessageStore):
        owner.start = _noted(owner.start)  # type: ignore[attr-defined]


def _noted(start: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(start)
    def noted(started: Any, *given: Any, **named: Any) -> Any:
        _started.add(started)
        return start(started, *given, **named)

    return noted


def running() -> set[int]:
    """Return marks of everything that was started and may still run."""
    return {id(each) for each in _started}


def stop_started(before: set[int]) -> None:
    """Shut down everything started since, and every streaming query."""
    order = ("ClientInstance", "ServedStore", "NameServer", "MessageStore")
    since = [each for each in _started if id(each) not in before]
    for each in sorted(since, key=lambda one: order.index(type(one).__name__)):
        _patiently(each.shutdown)
    module = sys.modules.get("pyspark.sql")
    session = module.SparkSession.getActiveSession() if module else None
    for query in session.streams.active if session is not None else ():
        _patiently(query.stop)


def stop_named(names: Mapping[str, object], modules: Iterable[str]) -> None:
    """Stop the objects in a program's variables, newest first; only types of these packages."""
    packages = tuple(modules)
    for value in reversed(list(names.values())):
        if isinstance(value, type) or type(value).__module__.split(".")[0] not in packages:
            continue
        verb = next((name for name in _VERBS if callable(getattr(value, name, None))), None)
        if verb is not None:
            _patiently(getattr(value, verb))


def _patiently(stop: Callable[[], object]) -> None:
    """Call a function, but wait only some seconds for it: the test has failed already."""

    def try_it() -> None:
        try:
            stop()
        except Exception as err:
            print(f"not stopped: {err!r}", file=sys.stderr)

    thread = threading.Thread(target=try_it, daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
