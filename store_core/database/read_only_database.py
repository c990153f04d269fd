"""One RocksDB database of a store, as it was when it was opened; read only.

The library is ``rocksdict`` (extra ``rocksdb``), loaded when a database is opened.
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
    """Return the path of a directory of a store if RocksDB's files lie in it, else nothing.

    Each database has all of these files; a copy may have lost one.
    """
    found = (directory.stat(directory.resolve(*names, name)) for name in _OF_A_DATABASE)
    is_database = any(entry is not None and not entry.is_dir for entry in found)
    return directory.resolve(*names) if is_database else ""


def databases_are_readable() -> bool:
    """Return whether the library is installed."""
    return importlib.util.find_spec(DATABASE_PACKAGE) is not None


class ReadOnlyDatabase:
    """A database of a store; takes no lock, and writes nothing to the store.

    What a broker has in its memory only is not there: of queues, what came since it last flushed
    (``DefaultMessageStore`` of 5.3.3 writes them without a log of RocksDB's own).

    Raises
    ------
    StoreFormatError
        The library cannot open it; the text is the library's.
    StoreReadError
        A file cannot be read.
    """

    def __init__(self, directory: StoreDirectory, path: str) -> None:
        self.path = path
        for attempt in range(_ATTEMPTS):
            try:
                self._opened, self._families, self._copied_to = _open(directory, path)
            except FileVanishedError as err:  # a broker goes on with other files meanwhile
                if attempt == _ATTEMPTS - 1:  # or it is lost: to try again would not help
                    raise StoreFormatError(err.reason, path) from err
            else:
                return

    def has_family(self, family: str) -> bool:
        """Return whether there is a column family of that name."""
        return family in self._families

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return a value; None where there is no such key.

        Raises
        ------
        StoreFormatError
            A table is damaged.
        """
        try:
            value: bytes | None = self._families[family].get(key)
        except Exception as err:  # the library knows no other
            raise self._damaged(err) from err
        return value

    def last_key(self, family: str, prefix: bytes) -> bytes | None:
        """Return the greatest key that begins so; None without one."""
        return self._edge(family, prefix, last=True)

    def first_key(self, family: str, prefix: bytes) -> bytes | None:
        """Return the smallest key that begins so; None without one."""
        return self._edge(family, prefix, last=False)

    def items(self, family: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys that begin so, ascending, with their values; one by one, so for few of them.

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
        """Return up to so many keys from one on, ascending, with their values.

        Fast: a quarter of a µs a pair. It just ends at a damaged table; the caller knows how many
        there should be.
        """
        return list(islice(self._families[family].items(from_key=start), most))

    def close(self) -> None:
        """Close the files."""
        self._families.clear()
        self._opened.close()

    def _edge(self, family: str, prefix: bytes, *, last: bool) -> bytes | None:
        found = self._families[family].iter()
        if last:
            found.seek_for_prev(prefix + b"\xff" * 8)  # a queue offset follows, not negative
        else:
            found.seek(prefix)
        key: bytes | None = found.key() if self._is_valid(found) else None
        return key if key is not None and key.startswith(prefix) else None

    def _is_valid(self, found: Any) -> bool:
        if found.valid():
            return True
        try:
            found.status()
        except Exception as err:  # the library knows no other
            raise self._damaged(err) from err
        return False

    def _damaged(self, err: Exception) -> StoreFormatError:
        text = str(err).replace(self._copied_to, self.path)
        return StoreFormatError(f"the RocksDB database is damaged: {text}", self.path)


def _open(directory: StoreDirectory, path: str) -> tuple[Any, dict[str, Any], str]:
    """Return an open database, its families, and where the copy was that is gone again.

    All tables are opened at once and stay open, whoever deletes them.
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
    except Exception as err:  # the library knows no other
        text = str(err).replace(target, path)
        if "No such file" in text:
            raise FileVanishedError(
                f"a table was deleted meanwhile, or is lost: {text}", path
            ) from err
        raise StoreFormatError(f"the RocksDB database cannot be opened: {text}", path) from err
    finally:
        shutil.rmtree(target, ignore_errors=True)


# Reading a store changes nothing in it, but RocksDB and what binds it to Python put files of their
# own beside a database that they open, also to read only. Tables (``.sst``) never change once they
# are written, so links to them do; what changes is copied.
def copy_database(directory: StoreDirectory, path: str, target: str) -> None:
    """Make what the library needs of a database in an empty directory.

    A broker may write the database meanwhile. Logs are copied first: what goes from a log into a
    table meanwhile is in both then. Tables come last: what the copied manifest names is there, or
    was deleted since, and then the database cannot be opened; the caller tries again.

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
