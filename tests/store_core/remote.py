# SPDX-License-Identifier: Apache-2.0
"""A store directory that behaves like remote storage, over local files; it counts requests."""

from __future__ import annotations

import pytest
from pyarrow.fs import LocalFileSystem

from bench.object_store import ObjectStore
from store_core.files import remote_filesystem
from store_core.files.remote_files import RemoteByteSource, RemoteFiles
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


def object_directory(store: ObjectStore, root: str) -> StoreDirectory:
    """Return a store on an `ObjectStore`."""
    directory = StoreDirectory(root)
    directory.is_local = False
    directory._files = RemoteFiles(store, root)
    return directory


def serve_objects(monkeypatch: pytest.MonkeyPatch, store: ObjectStore, root: str) -> str:
    """Let `StoreDirectory` find a store on an `ObjectStore`; return its URI, which has secrets."""
    monkeypatch.setattr(remote_filesystem, "open_filesystem", lambda _uri: (store, root))
    return "s3://AKIAKEY:SEC%2FRET@bucket/store?region=eu"


SHOWN_URI = "s3://bucket/store?region=eu"
