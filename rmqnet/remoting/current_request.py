# SPDX-License-Identifier: Apache-2.0
"""The client whose request a thread works on; one that has left needs no answer."""

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
    """Make `check_wanted` check this client within a block."""
    _current.connection = connection
    try:
        yield
    finally:
        _current.connection = None


def check_wanted() -> None:
    """End work whose client has left; work that may take long calls this now and then.

    Raises
    ------
    RemotingConnectError
        The client has disconnected, or the server is stopping.
    """
    connection = getattr(_current, "connection", None)
    if connection is not None and not connection.is_open:
        raise RemotingConnectError(f"{connection.address} has left before its answer was ready")
