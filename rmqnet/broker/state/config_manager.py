# SPDX-License-Identifier: Apache-2.0
"""State that is stored in one JSON file below ``config``.

Source: RocketMQ ``ConfigManager`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Callable, ClassVar

from rmqnet.client.queue_json import to_queue_json
from store_core.config.config_files import find_config_file
from store_core.config.config_writing import config_path, save_config_at, set_aside
from store_core.config.data_version import DataVersion, parse_data_version
from store_core.errors import StoreError, StoreFormatError
from store_core.files.file_writing import replace_file
from store_core.files.store_directory import StoreDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.broker.broker_config import BrokerConfig

logger = logging.getLogger(__name__)

_VERSION = "dataVersion"


class ConfigManager(ABC):
    """A table that any thread may use, and its file.

    Fields of the file that are unknown here are preserved. An interrupted save leaves the old
    content in the file or in its ``.bak``.

    Parameters
    ----------
    clock
        Returns ms since the epoch.
    """

    FILE_NAME: ClassVar[str]

    def __init__(
        self,
        config: BrokerConfig,
        root: str,
        clock: Callable[[], int],
        *,
        is_read_only: bool = False,
    ) -> None:
        self._config = config
        self._root = root
        self._clock = clock
        self._is_read_only = is_read_only
        self._lock = threading.RLock()
        self._saving = threading.Lock()
        self._is_sound = False
        self._version = DataVersion(timestamp=clock())
        self._more: dict[str, Any] = {}
        self._begin()

    @property
    def root(self) -> str:
        """Directory of the store (``storePathRootDir``) that contains the file."""
        return self._root

    @property
    def data_version(self) -> DataVersion:
        """Version of the table, which counts its changes."""
        return self._version

    def load(self) -> None:
        """Load the file, or else its ``.bak``; without both nothing changes.

        Raises
        ------
        StoreFormatError
            Neither of them is what a broker writes. Nothing was changed.
        StoreReadError
            A file cannot be read.
        """
        directory = StoreDirectory(self._root)
        found = find_config_file(directory, self.FILE_NAME, self.assign)
        self._is_sound = found is not None and found[1]

    def load_or_set_aside(self) -> None:
        """Do as `load`; a malformed file counts as missing, with a warning.

        It is renamed, and the next `persist` writes a new file.
        """
        try:
            self.load()
        except StoreFormatError as err:
            kept = set_aside(self._path())
            logger.warning(
                "%s; it is treated as missing, and the old file is kept as %s", err, kept
            )

    def assign(self, data: dict[str, Any], *, whole: bool = False) -> None:
        """Load the content of the file, or of a master's answer in the same form.

        Raises
        ------
        ValueError
            The content is malformed; the text names the field. Nothing was changed.
        """
        version = parse_data_version(data.get(_VERSION)) if _VERSION in data else self._version
        with self._lock:
            self._more = {**self._more, **self._take(data, whole)}
            self._version = version

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file; a copy, whose keys may be whole numbers."""
        with self._lock:
            return {**self._more, _VERSION: self._version.to_json(), **self._tables()}

    def encode(self) -> bytes:
        """Return the content for answers to slaves and clients, without spaces."""
        content = self.to_json()
        return to_queue_json({key: content[key] for key in sorted(content)}).encode()

    def persist(self) -> None:
        """Write the file; its previous content becomes its ``.bak``.

        Raises
        ------
        StoreWriteError
            The file cannot be written.
        """
        if self._is_read_only:
            return
        with self._saving:
            save_config_at(self._path(), self.to_json(), replace_file, is_sound=self._is_sound)
            self._is_sound = True

    def _persist_or_log(self) -> None:
        """Write the file, or log why not, so that clients can continue despite a full disk.

        The next change tries again.
        """
        try:
            self.persist()
        except StoreError as err:
            logger.warning("cannot save %s: %s", self.FILE_NAME, err)

    def _path(self) -> str:
        """Return the path of the file."""
        return config_path(self._root, self.FILE_NAME)

    @abstractmethod
    def _begin(self) -> None:
        """Make the tables as they are before a load."""

    @abstractmethod
    def _take(self, data: dict[str, Any], whole: bool) -> Mapping[str, Any]:
        """Load the tables, all or none; return the other fields."""

    @abstractmethod
    def _tables(self) -> dict[str, Any]:
        """Return the tables in the form of the file."""

    def _count_version(self) -> None:
        """Increment the version; the caller has the lock."""
        self._version = self._version.next(self._clock())


def without(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields of an object, except these and the version."""
    return {key: value for key, value in data.items() if key not in (*names, _VERSION)}
