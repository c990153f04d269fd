"""Whose request the calling thread works on: who has left needs no answer."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqnet.errors import RemotingConnectError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqnet.remoting.server_connection import ServerConnection

_current = threading.local()


@contextmanager
def working_for(connection: ServerConnection) -> Iterator[None]:
    """Have `check_wanted` in a block look at this client."""
    _current.connection = connection
    try:
        yield
    finally:
        _current.connection = None


def check_wanted() -> None:
    """End work whose client has left: to be called now and then by what may take long.

    Raises
    ------
    RemotingConnectError
        The client is not there any more, or the server stops.
    """
    connection = getattr(_current, "connection", None)
    if connection is not None and not connection.is_open:
        raise RemotingConnectError(f"{connection.address} has left before its answer was ready")
