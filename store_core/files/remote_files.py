"""The files of a store on a ``pyarrow.fs`` filesystem, with few requests and many at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from store_core.errors import StoreReadError
from store_core.files.file_entry import FileEntry
from store_core.files.remote_object import BLOCK_BYTES, Blocks, ObjectVersion, RemoteObject
from store_core.files.remote_requests import at_once, request
from store_core.files.remote_source import RemoteByteSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from store_core.files.byte_source import ByteSource

_FLAT = frozenset({"s3", "gcs", "abfs"})
"""Filesystems that list a whole tree as quickly as one directory: a thousand names a request."""
_OBJECTS_KEPT = 256
_BLOCKS_KEPT = 1024
"""Of all files together: 64 MiB."""


_Entries = list[FileEntry]  # the class has a method of that name


class _Kept:
    """What was asked for and is not asked again."""

    def __init__(self) -> None:
        self.listings: dict[str, _Entries] = {}
        self.trees: set[str] = set()
        self.objects: OrderedDict[str, RemoteObject] = OrderedDict()
        self.blocks = Blocks(_BLOCKS_KEPT)


class RemoteFiles:
    """Lists and opens; for any number of threads.

    Parameters
    ----------
    filesystem
        A ``pyarrow.fs.FileSystem``.
    root
        The store in it.
    hide
        Takes out of an error's text what may not be shown.
    """

    def __init__(self, filesystem: Any, root: str, hide: Callable[[str], str] = str) -> None:
        self.filesystem = filesystem
        self.root = root.rstrip("/")
        self._hide = hide
        self._lock = threading.Lock()
        self._kept: _Kept | None = None
        self._versions: dict[str, ObjectVersion] = {}
        self._is_python = str(filesystem.type_name).startswith("py::")

    def join(self, *parts: str) -> str:
        """Return a path below the root."""
        return "/".join([self.root, *(p for p in parts if p)])

    def remember(self) -> None:
        """Forget what is known; from now on nothing is asked for twice."""
        self._kept = _Kept()

    def forget(self, path: str, *, below: bool) -> None:
        """Ask anew for the listing of a directory, or for that and all below it."""
        kept = self._kept
        if kept is None:
            return
        with self._lock:
            kept.trees.discard(path)
            for known in (kept.listings, kept.objects):
                for at in _at_or_below(path, known) if below else [p for p in known if p == path]:
                    del known[at]

    def list(self, path: str) -> _Entries:
        """Return the entries of a directory; none when it is missing."""
        kept = self._kept
        if kept is not None:
            known = kept.listings.get(path)
            if known is None and self._is_missing(path, kept):
                known = []
            if known is not None:
                return [*known]
        found = self._listing(path)
        if kept is not None:
            kept.listings[path] = found
        return [*found]

    def _is_missing(self, path: str, kept: _Kept) -> bool:
        beside = kept.listings.get(path.rpartition("/")[0])
        return beside is not None and all(entry.path != path for entry in beside)

    def _listing(self, path: str, *, whole: bool = False) -> _Entries:
        from pyarrow.fs import FileSelector  # noqa: PLC0415 (needed for remote stores only)

        selector = FileSelector(path, allow_not_found=True, recursive=whole)
        infos = request(lambda: self.filesystem.get_file_info(selector), path, self._hide)
        found = [_entry(info) for info in infos]
        with self._lock:
            self._versions.update((e.path, _version(e)) for e in found if not e.is_dir)
        return found

    def list_ahead(self, paths: Iterable[str], *, whole: bool) -> None:
        """Ask for listings that will be needed, many at once; for what `remember` keeps.

        ``whole``: of all that lies below, too.
        """
        kept = self._kept
        if kept is None:
            return
        wanted = [path for path in paths if path not in (kept.trees if whole else kept.listings)]
        kept.trees.update(wanted if whole else ())
        if whole and self.filesystem.type_name in _FLAT:
            found = at_once(lambda path: self._listing(path, whole=True), wanted)
            for path, below in zip(wanted, found):
                kept.listings.update(_by_directory(path, below))
            return
        while wanted:
            found = at_once(self._listing, wanted)
            kept.listings.update(zip(wanted, found))
            wanted = [e.path for below in found for e in below if e.is_dir] if whole else []

    def stat(self, path: str) -> FileEntry | None:
        """Return what is known of a path, or None when it is missing."""
        if self._kept is None or not path.startswith(self.root + "/"):
            return self._stat(path)
        listed = self.list(path.rpartition("/")[0])  # its neighbours are asked for next
        return next((entry for entry in listed if entry.path == path), None)

    def _stat(self, path: str) -> FileEntry | None:
        info = request(lambda: self.filesystem.get_file_info(path), path, self._hide)
        return _entry(info) if info.type.value else None  # FileType.NotFound is 0

    def open(self, path: str) -> ByteSource:
        """Open an object; StoreReadError where it is none, or another one than was listed."""
        kept = self._kept
        if kept is None:
            return self._source(self._object(path), None)
        return self._kept_source(path, kept)

    def _kept_source(self, path: str, kept: _Kept) -> RemoteByteSource:
        with self._lock:
            remote = kept.objects.get(path)
        if remote is None:
            remote = self._object(path)
            with self._lock:
                kept.objects[path] = remote
                if len(kept.objects) > _OBJECTS_KEPT:
                    kept.objects.popitem(last=False)  # whoever reads it keeps it open
        return self._source(remote, kept.blocks)

    def _source(self, remote: RemoteObject, blocks: Blocks | None) -> RemoteByteSource:
        version = self._versions.get(remote.path)
        return RemoteByteSource(remote, blocks, lambda: self._check(remote.path), version)

    def fetch_ahead(self, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Ask for bytes that will be read, as (path, start, length), many at once.

        What cannot be read is told to whoever reads it.
        """
        kept = self._kept
        if kept is None:
            return

        def opened(path: str) -> RemoteByteSource | None:
            with suppress(StoreReadError):
                return self._kept_source(path, kept)
            return None

        def fetch(source: RemoteByteSource, number: int) -> None:
            with suppress(StoreReadError):
                source.read_at(number * BLOCK_BYTES, 1)

        wanted = list(ranges)
        paths = list(dict.fromkeys(path for path, _, _ in wanted))
        sources = dict(zip(paths, at_once(opened, paths)))
        blocks = {
            (path, number)
            for path, start, length in wanted
            for number in range(start // BLOCK_BYTES, (start + length - 1) // BLOCK_BYTES + 1)
        }
        known = ((sources[path], number) for path, number in sorted(blocks))
        at_once(lambda block: fetch(*block), [(s, n) for s, n in known if s is not None])

    def _object(self, path: str) -> RemoteObject:
        remote = RemoteObject(
            path,
            lambda: self.filesystem.open_input_file(path),
            self._hide,
            is_shared=not self._is_python,
        )
        listed = self._versions.get(path)
        if listed is not None:
            listed.check(ObjectVersion(remote.size, 0), path)
        return remote

    def versions(self, paths: Iterable[str]) -> dict[str, ObjectVersion]:
        """Return what the last listing said of some objects."""
        with self._lock:
            return {path: self._versions[path] for path in paths if path in self._versions}

    def expect(self, versions: Mapping[str, ObjectVersion]) -> None:
        """Take for the right objects what another process has listed."""
        with self._lock:
            self._versions.update(versions)

    def _check(self, path: str) -> None:
        listed = self._versions.get(path)
        if listed is not None:
            found = self._stat(path)
            listed.check(None if found is None else _version(found), path)


def _entry(info: Any) -> FileEntry:
    from pyarrow.fs import FileType  # noqa: PLC0415 (needed for remote stores only)

    modified = info.mtime_ns  # None where the filesystem keeps no times
    return FileEntry(
        info.base_name,
        info.path,
        info.size or 0,
        info.type == FileType.Directory,
        0 if modified is None else modified // 1_000_000,
    )


def _at_or_below(path: str, paths: Iterable[str]) -> list[str]:
    return [at for at in paths if at == path or at.startswith(path + "/")]


def _version(entry: FileEntry) -> ObjectVersion:
    return ObjectVersion(entry.size, entry.modified_ms)


def _by_directory(root: str, below: list[FileEntry]) -> dict[str, list[FileEntry]]:
    """Return the entries of a tree by directory; those between are there even if unnamed."""
    found: dict[str, dict[str, FileEntry]] = {root: {}}
    for entry in below:
        if entry.is_dir:
            found.setdefault(entry.path, {})
        parent, _, name = entry.path.rpartition("/")
        found.setdefault(parent, {})[name] = entry
    for path in list(found):
        while path != root:
            parent, _, name = path.rpartition("/")
            found.setdefault(parent, {}).setdefault(name, FileEntry(name, path, 0, True, 0))
            path = parent  # noqa: PLW2901 (up to the root)
    return {path: list(entries.values()) for path, entries in found.items()}
