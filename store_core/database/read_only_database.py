# SPDX-License-Identifier: Apache-2.0
"""Read a RocksDB database of a store, as it was when opened.

The library is ``rocksdict`` (extra ``rocksdb``), imported when a database is opened.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store_core.errors import FileVanishedError, StoreFormatError
from store_core.files.byte_source import SMALL_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.store_directory import FileEntry, StoreDirectory

DATABASE_PACKAGE = "rocksdict"
_OF_A_DATABASE = ("CURRENT", "IDENTITY", "LOCK")
_ATTEMPTS = 5
_TABLE, _LOG, _MANIFEST, _CURRENT = ".sst", ".log", "MANIFEST-", "CURRENT"
_CHUNK_BYTES = 8 << 20
_MOST_BYTES = {_CURRENT: 4096}


def database_path(directory: StoreDirectory, *names: str) -> str:
    """Return the path of a store's directory if it contains a file of RocksDB; else empty.

    Each database has all the files that are checked for; a copy may have lost one.
    """
    found = (directory.stat(directory.resolve(*names, name)) for name in _OF_A_DATABASE)
    is_database = any(entry is not None and not entry.is_dir for entry in found)
    return directory.resolve(*names) if is_database else ""


def databases_are_readable() -> bool:
    """Return whether the library is installed."""
    return importlib.util.find_spec(DATABASE_PACKAGE) is not None


class ReadOnlyDatabase:
    """A database of a store; takes no lock, and writes nothing to the store.

    Data that a broker has only in memory is missing: for queues, all since its last flush
    (``DefaultMessageStore`` of 5.3.3 writes them without RocksDB's log).

    Raises
    ------
    StoreFormatError
        The library cannot open the database; the text is the library's.
    StoreReadError
        A file cannot be read.
    """

    def __init__(self, directory: StoreDirectory, path: str) -> None:
        self.path = path
        for attempt in range(_ATTEMPTS):
            try:
                self._opened, self._families, self._copied_to = _open(directory, path)
            except FileVanishedError as err:  # a broker may have replaced its files
                if attempt == _ATTEMPTS - 1:  # or the file is lost: another attempt would not help
                    raise StoreFormatError(err.reason, path) from err
            else:
                return

    def has_family(self, family: str) -> bool:
        """Return whether the database has a column family of that name."""
        return family in self._families

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None if there is no such key.

        Raises
        ------
        StoreFormatError
            A table is damaged.
        """
        try:
            value: bytes | None = self._families[family].get(key)
        except Exception as err:  # the library raises no other class
            raise self._damaged(err) from err
        return value

    def last_key(self, family: str, prefix: bytes) -> bytes | None:
        """Return the greatest key with a prefix; None if there is none."""
        return self._edge(family, prefix, last=True)

    def first_key(self, family: str, prefix: bytes) -> bytes | None:
        """Return the smallest key with a prefix; None if there is none."""
        return self._edge(family, prefix, last=False)

    def items(self, family: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with a prefix, ascending, and their values; slow, for few keys.

        Raises
        ------
        StoreFormatError
            A table is damaged.
        """
        found = self._families[family].iter()
        found.seek(prefix)
        while self._is_valid(found) and found.key().startswith(prefix):
            yield found.key(), found.value()
            found.next()

    def pairs_from(self, family: str, start: bytes, most: int) -> list[tuple[bytes, bytes]]:
        """Return up to ``most`` keys from ``start`` on, ascending, with their values.

        Fast: a quarter of a µs per pair. Stops at a damaged table without an error; the caller must
        know how many pairs there should be.
        """
        return list(islice(self._families[family].items(from_key=start), most))

    def close(self) -> None:
        """Close the files."""
        self._families.clear()
        self._opened.close()

    def _edge(self, family: str, prefix: bytes, *, last: bool) -> bytes | None:
        found = self._families[family].iter()
        if last:
            found.seek_for_prev(prefix + b"\xff" * 8)  # a queue offset >= 0 follows
        else:
            found.seek(prefix)
        key: bytes | None = found.key() if self._is_valid(found) else None
        return key if key is not None and key.startswith(prefix) else None

    def _is_valid(self, found: Any) -> bool:
        if found.valid():
            return True
        try:
            found.status()
        except Exception as err:  # the library raises no other class
            raise self._damaged(err) from err
        return False

    def _damaged(self, err: Exception) -> StoreFormatError:
        text = str(err).replace(self._copied_to, self.path)
        return StoreFormatError(f"the RocksDB database is damaged: {text}", self.path)


def _open(directory: StoreDirectory, path: str) -> tuple[Any, dict[str, Any], str]:
    """Return an open database, its families, and the path of its copy, which is deleted again.

    All tables are opened immediately and stay open, even if they are deleted.
    """
    from rocksdict import AccessType, Options, Rdict  # noqa: PLC0415 (an extra)

    target = tempfile.mkdtemp(prefix="rocketmq-database-")
    try:
        copy_database(directory, path, target)
        names = Rdict.list_cf(target)
        options = Options(raw_mode=True)
        options.set_db_log_dir(target)
        options.set_max_open_files(-1)
        families = {name: Options(raw_mode=True) for name in names}
        opened = Rdict(target, options, families, AccessType.read_only())
        return opened, {name: opened.get_column_family(name) for name in names}, target
    except (StoreFormatError, FileVanishedError, OSError):
        raise
    except Exception as err:  # the library raises no other class
        text = str(err).replace(target, path)
        if "No such file" in text:
            raise FileVanishedError(
                f"a table was deleted meanwhile, or is lost: {text}", path
            ) from err
        raise StoreFormatError(f"the RocksDB database cannot be opened: {text}", path) from err
    finally:
        shutil.rmtree(target, ignore_errors=True)


# Reading a store must not change it, but RocksDB and its Python binding write files next to any
# database that they open, even read-only. So they get a copy: tables (``.sst``) never change once
# written, and are linked if they are local; the other files that they need are copied.
def copy_database(directory: StoreDirectory, path: str, target: str) -> None:
    """Copy or link the files of a database that the library needs into an empty directory.

    A broker may write the database meanwhile. Logs are copied first: data that moves from a log
    into a table meanwhile is in both. Tables come last: one that the copied manifest names exists,
    or was deleted since; then the database cannot be opened, and the caller tries again.

    Raises
    ------
    StoreReadError
        A file cannot be read.
    StoreFormatError
        A directory entry is not a regular file, or a file is too large.
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
        if entry.not_a_file:  # the library would wait for a writer of a FIFO
            text = f"is {entry.not_a_file}, where a file of a RocksDB database was expected"
            raise StoreFormatError(text, entry.path)
    return entries


def _copy(directory: StoreDirectory, entry: FileEntry, target: str) -> None:
    most = _MOST_BYTES.get(entry.name, SMALL_FILE_BYTES)
    if entry.size > most and not entry.name.endswith((_TABLE, _LOG)):  # the library reads all of it
        text = f"{entry.size} bytes long; such a file of a RocksDB database has at most {most}"
        raise StoreFormatError(text, entry.path)
    with directory.open(entry.path) as source, Path(target, entry.name).open("wb") as file:
        at = 0
        while (at := source.next_data(at)) < source.size:  # holes take up no space in the copy
            file.seek(at)
            at += file.write(source.read_at(at, _CHUNK_BYTES))
        file.truncate(source.size)
