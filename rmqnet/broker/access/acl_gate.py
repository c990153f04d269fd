# SPDX-License-Identifier: Apache-2.0
"""The gate of a server: refuses requests without an account or permission.

Source: RocketMQ ``BrokerController.initialAcl``, ``PlainPermissionManager.watch`` (release 4.9.7).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from rmqnet.broker.access.plain_acl import AccessDeniedError, load_plain_acl
from rmqnet.remoting.codes import ResponseCode, request_name
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.errors import StoreConfigError
from store_core.services.service_thread import ServiceThread

if TYPE_CHECKING:
    from rmqnet.remoting.server_connection import ServerConnection

logger = logging.getLogger(__name__)

_LOOK_MS = 500  # as RocketMQ checks its files
_MOST_TOLD = 1000
_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"
"""Clients recognize a refusal only by this name, as its code is that of any failure."""


class AclGate(ServiceThread):
    """Checks each request with the accounts of a ``plain_acl.yml``, which it rereads on change.

    A file that has become unusable is logged once; the accounts stay as they were.

    Raises
    ------
    StoreConfigError, ClientError
        See `load_plain_acl`.
    """

    def __init__(self, path: str) -> None:
        super().__init__(_LOOK_MS)
        self._path = path
        self._seen = _state_of(path)
        self._acl = load_plain_acl(path)
        self._told: set[str] = set()

    @property
    def name(self) -> str:
        """Name of the service and its thread."""
        return "acl-file"

    def look(
        self, connection: ServerConnection, command: RemotingCommand
    ) -> RemotingCommand | None:
        """Return the answer that refuses a request, or None to allow it; a server's gate."""
        try:
            self._acl.check(connection.host, command)
        except AccessDeniedError as err:
            self._tell(connection.host, command, str(err))
            remark = f"{_EXCEPTION}: {err}"
            return command.refusal(ResponseCode.SYSTEM_ERROR, remark)
        return None

    def run_once(self) -> bool:
        """Read the file if it has changed; return whether the accounts were replaced."""
        state = _state_of(self._path)
        if state == self._seen:
            return False
        self._seen = state  # before reading: a change meanwhile is read next time
        try:
            self._acl = load_plain_acl(self._path)
        except StoreConfigError as err:
            logger.warning("the accounts are unchanged: %s", err)
            return False
        logger.info("reloaded the accounts of %s", self._path)
        return True

    def _tell(self, host: str, command: RemotingCommand, reason: str) -> None:
        """Log the first refusal of a host, which may retry forever."""
        if host not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(host)
            logger.warning("%s may not do %s: %s", host, request_name(command.code), reason)


def _state_of(path: str) -> tuple[int, int, int] | None:
    """Return values that change with a file; None if it does not exist."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
