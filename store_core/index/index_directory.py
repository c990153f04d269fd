"""The directory of the index files: which there are, which expired, which have to be forced."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from store_core.errors import CorruptRecordError, StoreReadError
from store_core.files.byte_source import LocalByteSource
from store_core.files.file_writing import flush_directory, sync_file, write_error
from store_core.index.index_file import read_index_header
from store_core.index.index_writer import index_file_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path


class IndexDirectory:
    """Deletes and forces whole index files.

    Parameters
    ----------
    path
        The directory; it may be missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def delete(self, names: Collection[str]) -> None:
        """Delete files.

        Raises
        ------
        StoreWriteError
            One cannot be deleted.
        """
        with self.errors():
            for name in names:
                (self.path / name).unlink()
            if names:
                flush_directory(str(self.path))

    def delete_all(self) -> None:
        """Delete every index file."""
        self.delete(index_file_names(self.path))

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files, oldest first, whose records are gone; return how many. Never the last.

        Source: ``IndexService.deleteExpiredFile``.
        """
        expired = []
        for name in index_file_names(self.path)[:-1]:
            try:
                with LocalByteSource(str(self.path / name)) as source:
                    header = read_index_header(source)
            except (CorruptRecordError, StoreReadError):
                break
            if header.end_phy_offset >= min_phy_offset:
                break
            expired.append(name)
        self.delete(expired)
        return len(expired)

    def sync(self, names: Collection[str]) -> None:
        """Force what anybody wrote to some files to the disk.

        Raises
        ------
        StoreWriteError
            One cannot be forced.
        """
        with self.errors():
            for name in names:
                sync_file(str(self.path / name))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn an ``OSError`` into one that names the file (`StoreWriteError`)."""
        try:
            yield
        except OSError as err:
            raise write_error(err, str(err.filename or self.path)) from err
