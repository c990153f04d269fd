"""A copy of a database's small files, with links to its tables: the library writes where it opens.

Reading a store changes nothing in it, but RocksDB and what binds it to Python put files of their
own beside a database that they open, also to read only. Tables (``.sst``) never change once they
are written, so links to them do; what changes is copied.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from store_core.errors import StoreFormatError
from store_core.files.regular_file import SMALL_FILE_BYTES

if TYPE_CHECKING:
    from store_core.files.store_directory import FileEntry, StoreDirectory

_TABLE, _LOG, _MANIFEST, _CURRENT = ".sst", ".log", "MANIFEST-", "CURRENT"
_CHUNK_BYTES = 8 << 20
_MOST_BYTES = {_CURRENT: 4096}


def copy_database(directory: StoreDirectory, path: str, target: str) -> None:
    """Make what the library needs of a database in an empty directory.

    A broker may write the database meanwhile. Logs are copied first: what goes from a log into a
    table meanwhile is in both then. Tables come last: what the copied manifest names is there, or
    was deleted since, and then the database cannot be opened; the caller tries again.

    Parameters
    ----------
    directory, path
        The store, and the directory of the database in it.
    target
        A directory of this machine. Tables of a remote store are copied to it.

    Raises
    ------
    StoreReadError
        A file cannot be read.
    StoreFormatError
        Something else than a regular file has the name of one.
    """
    entries = _files(directory, path)
    for entry in entries:
        if entry.name.endswith(_LOG):
            _copy(directory, entry, target)
    for entry in entries:
        if entry.name.startswith(_MANIFEST) or entry.name == _CURRENT:
            _copy(directory, entry, target)
    for entry in _files(directory, path):
        if not entry.name.endswith(_TABLE):
            continue
        if directory.is_local:
            Path(target, entry.name).symlink_to(Path(entry.path).absolute())
        else:
            _copy(directory, entry, target)


def _files(directory: StoreDirectory, path: str) -> list[FileEntry]:
    entries = [entry for entry in directory.list(path) if not entry.is_dir]
    for entry in entries:
        if entry.not_a_file:  # the library would wait for whoever writes to a FIFO
            text = f"is {entry.not_a_file}, where a file of a RocksDB database was expected"
            raise StoreFormatError(text, entry.path)
    return entries


def _copy(directory: StoreDirectory, entry: FileEntry, target: str) -> None:
    most = _MOST_BYTES.get(entry.name, SMALL_FILE_BYTES)
    if entry.size > most and not entry.name.endswith((_TABLE, _LOG)):  # the library reads it whole
        text = f"{entry.size} bytes long; such a file of a RocksDB database has at most {most}"
        raise StoreFormatError(text, entry.path)
    with directory.open(entry.path) as source, Path(target, entry.name).open("wb") as file:
        at = 0
        while (at := source.next_data(at)) < source.size:  # holes take no room in the copy either
            file.seek(at)
            at += file.write(source.read_at(at, _CHUNK_BYTES))
        file.truncate(source.size)
