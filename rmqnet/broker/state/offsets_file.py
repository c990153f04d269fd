"""How far consumer groups of a store are that is only read: in memory, and in a file elsewhere."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from rmqnet.broker.state.consumer_offset_manager import ConsumerOffsetManager
from store_core.config.config_files import find_json_file
from store_core.errors import StoreConfigError, StoreFormatError, StorePermissionError
from store_core.files.store_directory import StoreDirectory, local_path

if TYPE_CHECKING:
    from rmqnet.broker.broker_config import BrokerConfig

logger = logging.getLogger(__name__)


class OffsetsBesideStore(ConsumerOffsetManager):
    """The offsets of the store, and those that were committed since, which it does not get.

    Parameters
    ----------
    config, root, clock
        See `ConsumerOffsetManager`.
    path
        The file, in the form of ``consumerOffset.json``; what it says counts more than what the
        store says. None: changes are kept in memory.

    Raises
    ------
    StoreConfigError
        The file lies in the store.
    """

    def __init__(
        self, config: BrokerConfig, root: str, clock: Callable[[], int], path: str | None
    ) -> None:
        super().__init__(config, root, clock, is_read_only=path is None)
        self._file = None if path is None else str(Path(local_path(path)).absolute())
        if self._file is not None and not StoreDirectory(root).leaves(self._file):
            raise StoreConfigError(
                f"offsets_file={path}: lies in the store, which is only read; choose another place"
            )

    def load(self) -> None:
        """Take over what the store says, as far as it can be read, then what the file says.

        Raises
        ------
        StoreFormatError, StoreReadError
            The file, which would be overwritten, cannot be read.
        """
        try:
            super().load()
        except (StoreFormatError, StorePermissionError) as err:
            logger.warning("%s; groups begin as if nothing were noted of them", err)
        if self._file is None:
            return
        place = StoreDirectory(str(Path(self._file).parent))
        found = find_json_file(place, self._file, self.assign)
        self._is_sound = found is not None and found[1]

    def _path(self) -> str:
        return super()._path() if self._file is None else self._file
