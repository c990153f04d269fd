# SPDX-License-Identifier: Apache-2.0
"""The files of a store on a ``pyarrow.fs`` filesystem, read with few requests in parallel."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from store_core.errors import StoreReadError
from store_core.files.byte_source import ByteSource
from store_core.files.file_entry import FileEntry
from store_core.files.remote_object import BLOCK_BYTES, Blocks, ObjectVersion, RemoteObject
from store_core.files.remote_requests import at_once, request, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    import numpy.typing as npt

_FLAT = frozenset({"s3", "gcs", "abfs"})
"""Filesystems that list a whole tree as fast as one directory: a thousand names per request."""
_OBJECTS_KEPT = 256
_BLOCKS_KEPT = 1024
"""For all files together: 64 MiB."""
_Entries = list[FileEntry]  # RemoteFiles has a method named list
JOIN_BYTES = 1 << 16
"""Pieces closer than this are fetched together: a request costs about as much as such a gap."""
_OWN_BLOCKS = 8
_LONGEST_KEPT_BYTES = 8 << 20
"""A longer read is not cached in blocks."""
_zero_tails: dict[tuple[str, ObjectVersion | None], int] = {}
_MOST_ZERO_TAILS = 1024
PIECE_BYTES = 4 << 20
_MOST_AHEAD = 8
"""Pieces that are being fetched or wait to be read: 32 MiB."""


class _Kept:
    """Cached answers, so that nothing is requested twice."""

    def __init__(self) -> None:
        self.listings: dict[str, _Entries] = {}
        self.trees: set[str] = set()
        self.objects: OrderedDict[str, RemoteObject] = OrderedDict()
        self.blocks = Blocks(_BLOCKS_KEPT)


class RemoteFiles:
    """Lists and opens files; for any number of threads."""

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
        """Start an empty cache; from now on nothing is requested twice."""
        self._kept = _Kept()

    def forget(self, path: str, *, below: bool) -> None:
        """Drop the cached listing of a directory, or of that and everything below it."""
        kept = self._kept
        if kept is None:
            return
        with self._lock:
            kept.trees.discard(path)
            for known in (kept.listings, kept.objects):
                for at in _at_or_below(path, known) if below else [p for p in known if p == path]:
                    del known[at]

    def list(self, path: str) -> _Entries:
        """Return the entries of a directory; none if it is missing."""
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
        """Request listings that will be needed, in parallel; only after `remember`.

        ``whole``: also those of everything below.
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
        """Return the entry of a path, or None if it is missing."""
        if self._kept is None or not path.startswith(self.root + "/"):
            return self._stat(path)
        listed = self.list(path.rpartition("/")[0])  # its neighbours are needed next
        return next((entry for entry in listed if entry.path == path), None)

    def _stat(self, path: str) -> FileEntry | None:
        info = request(lambda: self.filesystem.get_file_info(path), path, self._hide)
        return _entry(info) if info.type.value else None  # FileType.NotFound is 0

    def open(self, path: str) -> ByteSource:
        """Open an object; StoreReadError if there is none, or it is not the one that was listed."""
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
                    kept.objects.popitem(last=False)  # its readers keep it open
        return self._source(remote, kept.blocks)

    def _source(self, remote: RemoteObject, blocks: Blocks | None) -> RemoteByteSource:
        version = self._versions.get(remote.path)
        return RemoteByteSource(remote, blocks, lambda: self._check(remote.path), version)

    def fetch_ahead(self, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Request bytes that will be read, as (path, start, length), in parallel.

        Errors are ignored here: the later read raises them.
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
        """Return the versions of objects in the last listing."""
        with self._lock:
            return {path: self._versions[path] for path in paths if path in self._versions}

    def expect(self, versions: Mapping[str, ObjectVersion]) -> None:
        """Use the versions that another process has listed as those of the right objects."""
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
    """Return the entries of a tree by directory, adding directories that are not listed."""
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


class RemoteByteSource(ByteSource):
    """An object as a file; every read copies.

    Small reads fetch and cache whole blocks, so no bytes are requested twice: remote files are
    those of stopped stores or copies.

    Parameters
    ----------
    blocks
        A cache that outlives this source; the object then stays open. If None, the source caches
        eight blocks and closes the object.
    """

    def __init__(
        self,
        remote: RemoteObject,
        blocks: Blocks | None = None,
        check: Callable[[], None] | None = None,
        version: ObjectVersion | None = None,
    ) -> None:
        self.path, self.size = remote.path, remote.size
        self._remote, self._check = remote, check
        is_known = version is not None and version.modified_ms > 0
        self._identity = (remote.path, version) if is_known else None
        self._is_owner = blocks is None
        self._blocks = Blocks(_OWN_BLOCKS) if blocks is None else blocks
        self._ahead: ObjectPrefetch | None = None

    def read_at(self, start: int, length: int) -> bytes:
        """Return bytes of the file; see ``ByteSource``."""
        start, stop = self._clip(start, length)
        if start == stop:
            return b""
        if self._ahead is not None and self._ahead.holds(start):
            upto = min(stop, self._ahead.stop)
            data = self._ahead.read(start, upto)
            return data if upto == stop else data + self._remote.read(upto, stop)
        first, last = start // BLOCK_BYTES, (stop - 1) // BLOCK_BYTES
        if last - first > 1 and (self._is_owner or stop - start >= _LONGEST_KEPT_BYTES):
            return self._remote.read(start, stop)
        data = b"".join(self._block_run(first, last))
        return data[start - first * BLOCK_BYTES : stop - first * BLOCK_BYTES]

    def _block_run(self, first: int, last: int) -> list[bytes]:
        """Return adjacent blocks; one request fetches from the first missing one to the last."""
        found = [self._blocks.get(self._remote, number) for number in range(first, last + 1)]
        lacking = [first + i for i, block in enumerate(found) if block is None]
        if lacking:
            begin = lacking[0] * BLOCK_BYTES
            data = self._remote.read(begin, min((lacking[-1] + 1) * BLOCK_BYTES, self.size))
            for number in range(lacking[0], lacking[-1] + 1):
                at = number * BLOCK_BYTES - begin
                found[number - first] = block = data[at : at + BLOCK_BYTES]
                self._blocks.put(self._remote, number, block)
        return [block for block in found if block is not None]

    def views(self, ranges: Sequence[tuple[int, int]]) -> list[npt.NDArray[np.uint8]]:
        """Return arrays of ranges, fetched exactly and in parallel; none is cached."""
        clipped = [self._clip(start, length) for start, length in ranges]
        return [
            np.frombuffer(data, np.uint8)
            for data in at_once(lambda r: self._remote.read(*r) if r[0] < r[1] else b"", clipped)
        ]

    def _gather(self, starts: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
        order = np.argsort(starts, kind="stable")
        ordered = starts[order]
        pieces = np.empty((len(starts), width), np.uint8)
        runs = np.split(np.arange(len(starts)), joined_breaks(ordered))
        begins = [int(ordered[rows[0]]) for rows in runs]
        lengths = [int(ordered[rows[-1]]) + width - at for rows, at in zip(runs, begins)]
        asked = list(zip(begins, lengths))
        blocks = self.views(asked) if len(asked) > 1 else [self.view(*asked[0])]
        for rows, first, block in zip(runs, begins, blocks):
            pieces[order[rows]] = sliding_window_view(block, width)[ordered[rows] - first]
        return pieces

    def read_ahead(self, start: int, stop: int) -> None:
        """Fetch a range from front to back before it is read, in bounded memory."""
        start, stop = self._clip(start, max(stop - start, 0))
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = ObjectPrefetch(self._remote, start, stop) if start < stop else None

    def next_data(self, start: int) -> int:
        """Return the size if an earlier scan of the same object found only zeros from here on."""
        zeros = self.size if self._identity is None else _zero_tails.get(self._identity, self.size)
        return self.size if start >= zeros else min(start, self.size)

    def note_zeros(self, start: int) -> None:
        """Remember it in this process: a segment that a broker was filling ends with many zeros."""
        if self._identity is not None:
            _zero_tails[self._identity] = min(start, _zero_tails.get(self._identity, start))
            while len(_zero_tails) > _MOST_ZERO_TAILS:
                _zero_tails.pop(next(iter(_zero_tails)), None)

    def check_unchanged(self) -> None:
        """Raise `StoreReadError` if the object is not the one that was listed."""
        if self._check is not None:
            self._check()

    def close(self) -> None:
        """Drop what was read ahead, and close the object if it is this source's own."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        if self._is_owner:
            self._remote.close()


def joined_breaks(ordered: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the indexes, in ascending positions, where a new request begins."""
    return np.flatnonzero(np.diff(ordered) > JOIN_BYTES) + 1


class ObjectPrefetch:
    """Prefetches pieces of ``[begin, stop)`` of an object; few at first, as readers may stop."""

    def __init__(self, remote: RemoteObject, begin: int, stop: int) -> None:
        self._remote, self.begin, self.stop = remote, begin, stop
        self._pieces: dict[int, Future[bytes]] = {}
        self._first, self._ahead = 0, 1
        self._fetch(0, 0)

    def holds(self, start: int) -> bool:
        """Return whether a position is in the range, and not in a piece that was dropped."""
        return self.begin + self._first * PIECE_BYTES <= start < self.stop

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)`` of the range; pieces before them are dropped."""
        first, last = (start - self.begin) // PIECE_BYTES, (stop - 1 - self.begin) // PIECE_BYTES
        for number in range(self._first, first):
            dropped = self._pieces.pop(number, None)
            if dropped is not None:
                dropped.cancel()
        self._first = first
        if last > 0:  # the reader goes on
            self._ahead = min(2 * self._ahead, _MOST_AHEAD)
        self._fetch(first, last + self._ahead)
        parts = list(self._parts(start, stop, first, last))
        whole = parts[0].obj
        is_whole = len(parts) == 1 and isinstance(whole, bytes) and len(parts[0]) == len(whole)
        return whole if is_whole and isinstance(whole, bytes) else b"".join(parts)

    def _parts(self, begin: int, stop: int, first: int, last: int) -> Iterator[memoryview]:
        for number in range(first, last + 1):
            piece = self._pieces[number].result()
            at = self.begin + number * PIECE_BYTES
            yield memoryview(piece)[max(begin - at, 0) : max(stop - at, 0)]

    def _fetch(self, first: int, last: int) -> None:
        count = -(-(self.stop - self.begin) // PIECE_BYTES)
        for number in range(first, min(last + 1, count)):
            if number not in self._pieces:
                self._pieces[number] = start(partial(self._piece, number))

    def _piece(self, number: int) -> bytes:
        at = self.begin + number * PIECE_BYTES
        return self._remote.read(at, min(at + PIECE_BYTES, self.stop))

    def close(self) -> None:
        """Drop pieces that wait; requests that are under way end by themselves."""
        for piece in self._pieces.values():
            piece.cancel()
        self._pieces.clear()
