# SPDX-License-Identifier: Apache-2.0
"""Values that admins put into a name server, by namespace and key.

Source: RocketMQ ``KVConfigManager``, ``KVConfigSerializeWrapper`` (release 5.3.3).
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

from rmqnet.errors import ClientError
from store_core.config.lenient_json import json_object, parse_lenient_json
from store_core.files.file_writing import make_directory, replace_file, write_errors

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Namespace of the queues that are fixed for order topics: ``broker:queues;broker:queues``."""

_TABLE = "configTable"
_Tables = dict[str, dict[str, str]]


class KVConfigManager:
    """Stores the values, in a file if it has one; any thread may call.

    Parameters
    ----------
    path
        The file (``kvConfig.json``), which need not exist; if empty, values are in memory only.

    Raises
    ------
    ClientError
        The file cannot be read or is not what a name server writes.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._lock = threading.Lock()
        self._tables = _load(Path(path)) if path else {}

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value; None if there is none."""
        return self._tables.get(namespace, {}).get(key)

    def table(self, namespace: str) -> dict[str, str] | None:
        """Return the values of a namespace by key; None if nothing was ever put there."""
        table = self._tables.get(namespace)
        return None if table is None else dict(table)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.

        Raises
        ------
        StoreWriteError
            The file cannot be written; the value is unchanged. `delete` raises it, too.
        """
        with self._lock:
            table = {**self._tables.get(namespace, {}), key: value}
            self._keep({**self._tables, namespace: table})

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value; nothing happens if there is none."""
        with self._lock:
            table = self._tables.get(namespace, {})
            if key in table:
                less = {name: value for name, value in table.items() if name != key}
                self._keep({**self._tables, namespace: less})

    def _keep(self, tables: _Tables) -> None:
        if self._path:
            text = json.dumps({_TABLE: tables}, separators=(",", ":"))
            with write_errors(self._path):
                make_directory(str(Path(self._path).resolve().parent))
                replace_file(self._path, text.encode())
        self._tables = tables  # readers see the old tables or the new ones


def _load(path: Path) -> _Tables:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as err:
        raise ClientError(f"the values of the name server in {path} cannot be read: {err}") from err
    try:
        return _tables(text)
    except ValueError as err:
        raise ClientError(
            f"{path} is not what a name server writes: {err}. Restore the file, or move it away"
        ) from err


def _tables(text: str) -> _Tables:
    content = json_object(parse_lenient_json(text or "null"), "the file")
    return {
        str(namespace): {str(key): str(value) for key, value in json_object(table, _TABLE).items()}
        for namespace, table in json_object(content.get(_TABLE), _TABLE).items()
    }
