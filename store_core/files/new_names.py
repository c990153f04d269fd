"""Directories with new names in them, whose names are forced to the disk together."""

from __future__ import annotations

from store_core.files.file_writing import flush_directory, make_unforced_directory


class NewNames:
    """Keeps account of the directories that have new names in them, until they are forced.

    Of a thousand new queues the file system then writes all names at once; forced one by one each
    takes a write of its own.
    """

    def __init__(self) -> None:
        self._directories: set[str] = set()

    def add(self, directory: str) -> None:
        """Take note of a directory in which a file was made."""
        self._directories.add(directory)

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents where they are missing."""
        self._directories.update(make_unforced_directory(path))

    def flush(self) -> None:
        """Force all names; what other threads make meanwhile, this call or the next does.

        Raises
        ------
        OSError
            A directory cannot be forced; the next call tries again.
        """
        for directory in sorted(self._directories):
            self._directories.discard(directory)  # at first: what is made meanwhile counts again
            try:
                flush_directory(directory)
            except FileNotFoundError:  # deleted meanwhile
                continue
            except OSError:
                self._directories.add(directory)
                raise
