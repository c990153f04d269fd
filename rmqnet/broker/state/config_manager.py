"""State that is kept in one JSON file below ``config``.

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
    """A table that any number of threads use, and its file.

    Fields of the file that have no meaning here are kept. A save that is cut off leaves the old
    content: in the file, or in its ``.bak``.

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
        """The store (``storePathRootDir``) below which the file is."""
        return self._root

    @property
    def data_version(self) -> DataVersion:
        """How often the table has changed."""
        return self._version

    def load(self) -> None:
        """Take over what the file says, or its ``.bak``; without both nothing changes.

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
        """Do as `load`; a file that cannot be read counts as missing, with a warning.

        What is there is kept beside it: the next `persist` writes the file anew.
        """
        try:
            self.load()
        except StoreFormatError as err:
            kept = set_aside(self._path())
            logger.warning("%s; it counts as missing, and is kept as %s", err, kept)

    def assign(self, data: dict[str, Any], *, whole: bool = False) -> None:
        """Take over the content of the file, or of a master's answer that has the same form.

        Raises
        ------
        ValueError
            It is something else; the text names the field. Nothing was changed.
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
        """Return the content as answers to slaves and clients have it: without spaces."""
        content = self.to_json()
        return to_queue_json({key: content[key] for key in sorted(content)}).encode()

    def persist(self) -> None:
        """Write the file; what it said before becomes its ``.bak``.

        Raises
        ------
        StoreWriteError
            It cannot be written.
        """
        if self._is_read_only:
            return
        with self._saving:
            save_config_at(self._path(), self.to_json(), replace_file, is_sound=self._is_sound)
            self._is_sound = True

    def _persist_or_log(self) -> None:
        """Write the file; where that fails, go on: clients shall not suffer from a full disk.

        The next change tries again.
        """
        try:
            self.persist()
        except StoreError as err:
            logger.warning("%s is not saved: %s", self.FILE_NAME, err)

    def _path(self) -> str:
        """Return where it is saved."""
        return config_path(self._root, self.FILE_NAME)

    @abstractmethod
    def _begin(self) -> None:
        """Make the tables as they are before anything is loaded."""

    @abstractmethod
    def _take(self, data: dict[str, Any], whole: bool) -> Mapping[str, Any]:
        """Take the tables over, all or none; return the fields that are none of them."""

    @abstractmethod
    def _tables(self) -> dict[str, Any]:
        """Return the tables as the file has them."""

    def _count_version(self) -> None:
        """Note a change; the caller holds the lock."""
        self._version = self._version.next(self._clock())


def without(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields of an object but these and the version."""
    return {key: value for key, value in data.items() if key not in (*names, _VERSION)}
