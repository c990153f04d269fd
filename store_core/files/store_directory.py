# SPDX-License-Identifier: Apache-2.0
"""A store root and the files below it, on this machine or on a ``pyarrow.fs`` filesystem."""

from __future__ import annotations

import glob
import os
import re
import stat as stat_mode
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, unquote_to_bytes

from store_core.errors import (
    FileVanishedError,
    StoreFormatError,
    StoreNotFoundError,
    StoreReadError,
)
from store_core.files.byte_source import (
    SMALL_FILE_BYTES,
    ByteSource,
    LocalByteSource,
    kind_of_file,
    read_error,
    too_large,
)
from store_core.files.file_entry import FileEntry
from store_core.files.store_uri import StoreUri

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from store_core.files.remote_files import RemoteFiles
    from store_core.files.remote_object import ObjectVersion

__all__ = ["FileEntry", "StoreDirectory", "expand_paths", "local_path", "named_store"]

_FILE_URI = re.compile(r"file:(?://(?:localhost)?(?=/))?(?=/)", re.IGNORECASE)
_REMOTE_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^?]*)(\?.*)?", re.DOTALL)
_GLOB = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{[^{}]*,[^{}]*\}")
_REMOTE_GLOB = re.compile(r"[*\[]")  # "?" begins the query of a URI
_NO_DIRECTORY = "is a file, a pipe or a link that leads nowhere, not a store directory"


class _LocalFiles:
    def __init__(self, root: str) -> None:
        self.root = root

    def join(self, *parts: str) -> str:
        return os.path.join(self.root, *parts)

    def list(self, path: str) -> list[FileEntry]:
        try:
            with os.scandir(path) as scan:
                return [entry for item in scan if (entry := _scanned_entry(item)) is not None]
        except FileNotFoundError as err:
            if os.path.islink(path):  # an unmounted disk must not pass for an empty directory
                raise StoreReadError(_broken_link(path), path) from err
            return []
        except OSError as err:
            raise read_error(err, path) from err

    def stat(self, path: str) -> FileEntry | None:
        try:
            return _local_entry(os.path.basename(path), path, os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            if os.path.islink(path):
                name = os.path.basename(path)
                return FileEntry(
                    name=name,
                    path=path,
                    size=0,
                    is_dir=False,
                    modified_ms=0,
                    not_a_file=_broken_link(path),
                )
            return None
        except (OSError, ValueError) as err:  # ValueError: a NUL in the path
            raise StoreReadError(str(err), path) from err

    def open(self, path: str) -> ByteSource:
        return LocalByteSource(path)


def _scanned_entry(item: os.DirEntry[str]) -> FileEntry | None:
    try:
        return _local_entry(item.name, item.path, item.stat())
    except OSError:
        if item.is_symlink():
            return FileEntry(
                name=item.name,
                path=item.path,
                size=0,
                is_dir=False,
                modified_ms=0,
                not_a_file=_broken_link(item.path),
            )
        if not os.path.lexists(item.path):  # deleted meanwhile
            return None
        raise


def _broken_link(path: str) -> str:
    return f"a link to {os.readlink(path)}, which leads nowhere (is its disk mounted?)"


def _local_entry(name: str, path: str, found: os.stat_result) -> FileEntry:
    is_dir = stat_mode.S_ISDIR(found.st_mode)
    size = 0 if is_dir else found.st_size
    kind = "" if is_dir else kind_of_file(found.st_mode)
    return FileEntry(
        name=name,
        path=path,
        size=size,
        is_dir=is_dir,
        modified_ms=found.st_mtime_ns // 1_000_000,
        not_a_file=kind,
    )


class StoreDirectory:
    """A store root (``storePathRootDir``). Cheap to make and to pickle; opens nothing by itself.

    Parameters
    ----------
    uri
        A local path, a ``file:`` URI, or any URI that ``pyarrow.fs`` or fsspec opens. A relative
        path is made absolute here, so that it means the same in every process.
    base
        The directory that a relative path starts at; the working directory if empty.
    """

    def __init__(self, uri: str | os.PathLike[str], base: str = "") -> None:
        uri = os.fspath(uri)
        self.is_local = not _is_remote(uri)
        self.uri = named_store(uri)
        self._local_root = (
            os.path.abspath(os.path.join(base, local_path(uri))) if self.is_local else ""
        )
        self._files: _LocalFiles | RemoteFiles | None = None

    def __repr__(self) -> str:
        return f"StoreDirectory({self.uri!r})"

    def __getstate__(self) -> tuple[str, str]:
        return self.uri, self._local_root

    def __setstate__(self, state: tuple[str, str]) -> None:
        self.uri, self._local_root = state
        self.is_local = not _is_remote(self.uri)
        self._files = None

    def check_root(self) -> None:
        """Raise `StoreNotFoundError` if the root does not exist or is not a directory."""
        if not self.is_local and self.list(self.resolve()):
            return
        root = self.stat(self.resolve())
        if root is None or not root.is_dir:
            what = "does not exist" if root is None else _NO_DIRECTORY
            raise StoreNotFoundError(
                f"{self.uri}: {what}; give the store root (storePathRootDir), the directory that "
                "holds commitlog/"
            )

    def resolve(self, *parts: str) -> str:
        """Return the path of ``parts`` below the root, in the form the other methods take."""
        return self._opened().join(*parts)

    def leaves(self, path: str) -> bool:
        """Return whether a path leads out of the store, through any links; False if remote."""
        if not self.is_local:
            return False
        root, real = os.path.realpath(self._local_root), os.path.realpath(path)
        return os.path.commonpath([root, real]) != root

    def list(self, path: str) -> list[FileEntry]:
        """Return the entries of a directory by name; none if it is missing.

        Raises
        ------
        StoreReadError
            It cannot be read, or is not a directory.
        """
        return sorted(self._opened().list(path))

    def remember(self) -> None:
        """For a remote store: start an empty cache; from now on nothing is requested twice.

        For callers that read a store once, as it is now. Local files are never cached.
        """
        if not self.is_local:
            self._remote().remember()

    def forget(self, path: str, *, below: bool = True) -> None:
        """Drop what is cached of a directory, and with ``below`` of everything below it."""
        if not self.is_local:
            self._remote().forget(path, below=below)

    def list_ahead(self, paths: Iterable[str], *, whole: bool = False) -> None:
        """Request listings that will be needed, in parallel, if that saves time (`remember`).

        ``whole``: also those of everything below.
        """
        if not self.is_local:
            self._remote().list_ahead(paths, whole=whole)

    def fetch_ahead(self, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Request bytes to be read, as (path, start, length), in parallel; see `list_ahead`."""
        if not self.is_local:
            self._remote().fetch_ahead(ranges)

    def versions(self, paths: Iterable[str]) -> dict[str, ObjectVersion]:
        """Return the versions of remote files, for `expect` in another process."""
        return {} if self.is_local else self._remote().versions(paths)

    def expect(self, versions: Mapping[str, ObjectVersion]) -> None:
        """Refuse remote files that differ from the versions that another process has listed."""
        if not self.is_local:
            self._remote().expect(versions)

    def _remote(self) -> RemoteFiles:
        files = self._opened()
        assert not isinstance(files, _LocalFiles)
        return files

    def stat(self, path: str) -> FileEntry | None:
        """Return the entry of ``path``, or None if it is missing."""
        return self._opened().stat(path)

    def open(self, path: str) -> ByteSource:
        """Open a file read-only; StoreReadError if it is missing or cannot be read."""
        return self._opened().open(path)

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a small file, or None if it is missing or a directory.

        Raises
        ------
        StoreFormatError
            It has more than `SMALL_FILE_BYTES`.
        """
        entry = self.stat(path)
        if entry is None or entry.is_dir:
            return None
        try:
            source = self.open(path)
        except FileVanishedError:  # deleted meanwhile
            return None
        with source:
            if source.size > SMALL_FILE_BYTES:
                raise StoreFormatError(too_large(source.size), path)
            return source.read_at(0, source.size)

    def read_head(self, path: str, length: int) -> bytes | None:
        """Return the first bytes of a file, or None if it is missing or a directory."""
        entry = self.stat(path)
        if entry is None or entry.is_dir:
            return None
        with self.open(path) as source:
            return source.read_at(0, length)

    def _opened(self) -> _LocalFiles | RemoteFiles:
        if self._files is None:
            if self.is_local:
                self._files = _LocalFiles(self._local_root)
            else:
                self._files = _remote_files(self.uri)
        return self._files


def _remote_files(shown: str) -> RemoteFiles:
    from store_core.files import remote_filesystem  # noqa: PLC0415 (needed for remote stores only)
    from store_core.files.remote_files import RemoteFiles  # noqa: PLC0415

    uri = StoreUri(shown)
    return RemoteFiles(*remote_filesystem.open_filesystem(uri), uri.hide_in)


def _is_remote(uri: str) -> bool:
    return _REMOTE_URI.fullmatch(uri) is not None and _FILE_URI.match(uri) is None


def named_store(path: str) -> str:
    """Return a store's path or URI as it may be shown; see `StoreUri` and `utf8_path`."""
    return StoreUri(path) if _is_remote(path) else utf8_path(path)


def utf8_path(path: str, base: str = "") -> str:
    """Return a path that is not UTF-8 as a ``file:`` URI, any other as it is.

    Columns, JSON and options accept only UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        with suppress(UnicodeEncodeError):  # a lone surrogate: there is no such file
            return "file://" + quote(os.fsencode(os.path.abspath(os.path.join(base, path))))
    return path


def local_path(uri: str) -> str:
    """Return the path of a local store: ``file:`` URIs are decoded, paths returned as given."""
    prefix = _FILE_URI.match(uri)
    return os.fsdecode(unquote_to_bytes(uri[prefix.end() :])) if prefix else uri


def expand_paths(paths: Sequence[str], base: str = "") -> list[str]:
    """Return store roots: globs (``*``, ``?``, ``[…]``) as the sorted directories they match.

    A path without glob characters, or one that exists as spelled, is returned as given. In remote
    URIs ``?`` begins the query, so it is not a glob character there.

    Parameters
    ----------
    base
        The directory that relative paths start at; the working directory if empty.

    Raises
    ------
    StoreNotFoundError
        A pattern matches no directory.
    """
    expanded: list[str] = []
    for path in paths:
        given = named_store(path)
        found = _expand_remote(given) if isinstance(given, StoreUri) else _expand_local(path, base)
        if not found:
            raise StoreNotFoundError(f"no directory matches {given!r}")
        place = os.path.join(base, local_path(path))
        if _BRACES.search(path) and not _is_remote(path) and not os.path.lexists(place):
            raise StoreNotFoundError(
                f"no directory is named {path!r}: a glob cannot contain braces here; give a list "
                "of paths"
            )
        expanded.extend(found)
    return expanded


def _expand_local(pattern: str, base: str) -> list[str]:
    prefix = _FILE_URI.match(pattern)
    path = local_path(pattern)
    place = os.path.join(base, path)
    if not _GLOB.search(path) or os.path.lexists(place):
        return [pattern]
    added = place[: len(place) - len(path)]
    matches = glob.glob(glob.escape(added) + path)
    found = sorted(p[len(added) :] for p in matches if os.path.isdir(p))
    if prefix:
        return [prefix.group() + quote(os.fsencode(p)) for p in found]
    return [utf8_path(p, base) for p in found]


def _expand_remote(pattern: StoreUri) -> list[str]:
    parts = _REMOTE_URI.fullmatch(pattern.location)
    if parts is None or not _REMOTE_GLOB.search(parts.group(2)):
        return [pattern]
    scheme, path, query = parts.group(1), parts.group(2), parts.group(3) or ""
    authority, *names = path.rstrip("/").split("/")
    found = [authority]
    for name in names:
        if _REMOTE_GLOB.search(name):
            found = [
                f"{base}/{quote(entry.name)}"
                for base in found
                for entry in _remote_directories(f"{scheme}{base}/{query}")
                if fnmatchcase(entry.name, unquote(name))
            ]
        else:
            found = [f"{base}/{name}" for base in found]
    return [StoreUri(f"{scheme}{base}{query}") for base in sorted(found)]


def _remote_directories(uri: str) -> list[FileEntry]:
    directory = StoreDirectory(uri)
    return [entry for entry in directory.list(directory.resolve()) if entry.is_dir]
