"""All index files of a store: queries as RocketMQ answers them, and exact look-ups."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING

from store_core.config.message_store_config import DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM
from store_core.errors import CorruptRecordError, StoreConfigError, StoreReadError
from store_core.index.index_file import IndexFile, read_index_header
from store_core.index.index_queries import IndexFileEntry, IndexQueries, UnusableIndexFile
from store_core.index.index_sizes import INDEX_SIZE_OPTIONS, resolve_sizes
from store_core.layout.index import INDEX_HEADER
from store_core.layout.store_paths import INDEX_DIR

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory

_OPEN_FILES = 64
_INDEX_NAME = re.compile(r"[0-9]+", re.ASCII)


class IndexService(IndexQueries):
    """The files below ``index``, read only, as they were when this object was made.

    Attributes
    ----------
    sizes
        Slots and entries of the files: as configured, else RocketMQ's defaults where the length
        is theirs, else proved by a file's content. None: not known.

    Raises
    ------
    StoreConfigError
        The configured sizes contradict what a file's content proves.
    StoreReadError
        The directory cannot be read.
    """

    def __init__(
        self, directory: StoreDirectory, config: MessageStoreConfig, *, stopped: bool = False
    ) -> None:
        self.directory = directory
        super().__init__(config.max_msgs_num_batch, stopped=stopped)
        self._open: OrderedDict[str, IndexFile] = OrderedDict()
        listed = directory.list(directory.resolve(INDEX_DIR))
        entries = [e for e in listed if not e.is_dir and _INDEX_NAME.fullmatch(e.name)]
        directory.fetch_ahead((entry.path, 0, INDEX_HEADER.size) for entry in entries)
        self.sizes = resolve_sizes(directory, entries, config)
        for entry in sorted(entries, key=lambda e: (int(e.name), e.name)):
            self._add(entry.path)

    def _add(self, path: str) -> None:
        try:
            with self.directory.open(path) as source:
                if self.sizes is None:
                    read_index_header(source)
                    reason = f"sizes are not known; give {INDEX_SIZE_OPTIONS}"
                    self.unusable += (UnusableIndexFile(path, reason),)
                else:
                    header = IndexFile(source, *self.sizes).header
                    self.files += (IndexFileEntry(path, header),)
        except (CorruptRecordError, StoreReadError) as err:
            self.unusable += (UnusableIndexFile(path, err.reason),)

    def close(self) -> None:
        """Close the files; they are opened again when they are needed."""
        while self._open:
            self._open.popitem()[1].source.close()

    def _file(self, path: str) -> IndexFile:
        file = self._open.pop(path, None)
        if file is None:
            source = self.directory.open(path)
            try:
                file = IndexFile(source, *self._require_sizes())
            except BaseException:
                source.close()
                raise
        self._open[path] = file
        if len(self._open) > _OPEN_FILES:
            self._open.popitem(last=False)[1].source.close()
        return file

    def _require_sizes(self) -> tuple[int, int]:
        if self.sizes is not None:
            return self.sizes
        if self.unusable:
            raise StoreConfigError(
                f"{self.unusable[-1].path}: slots and entries of the index files cannot be found "
                f"from the files; give {INDEX_SIZE_OPTIONS}"
            )
        return DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM  # there is no file
