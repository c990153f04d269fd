"""A store directory that behaves as a remote one, over local files; it counts what is asked."""

from __future__ import annotations

from pyarrow.fs import LocalFileSystem

from store_core.files.remote_files import RemoteFiles
from store_core.files.remote_source import RemoteByteSource
from store_core.files.store_directory import StoreDirectory


class CountingSource(RemoteByteSource):
    bytes_read = 0

    def read_at(self, start: int, length: int) -> bytes:
        data = super().read_at(start, length)
        self.bytes_read += len(data)
        return data


class RemoteDirectory(StoreDirectory):
    """All reads go through ``pyarrow.fs``; nothing is mapped."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.is_local = False
        self._files = RemoteFiles(LocalFileSystem(), root)

    def open(self, path: str) -> CountingSource:
        opened = super().open(path)
        assert isinstance(opened, RemoteByteSource)
        return CountingSource(opened._remote, None if opened._is_owner else opened._blocks)
