"""The changes that a commit makes to files, each by a name at which tests can stop."""

from __future__ import annotations

import os
from typing import Any, Callable

from store_core.files.file_writing import flush_directory, sync_data, write_all, write_error
from store_core.files.regular_file import open_to_write

Hook = Callable[[str], None]


def no_hook(name: str) -> None:
    """Let a step pass."""


class CrashPoints:
    """Does file operations, and calls a hook before and after each.

    Parameters
    ----------
    hook
        Gets ``before <name>`` and ``after <name>``; whatever it raises goes up.
    """

    def __init__(self, hook: Hook = no_hook, *, sync: bool = True) -> None:
        self._hook, self.is_sync = hook, sync

    def run(self, name: str, action: Callable[..., Any], *arguments: Any) -> Any:
        """Do one step and return its result."""
        self._hook("before " + name)
        result = action(*arguments)
        self._hook("after " + name)
        return result

    def write(self, name: str, fd: int, at: int, data: memoryview) -> None:
        """Write bytes at a position of a file."""
        self.run(name, write_all, fd, at, data)

    def sync(self, name: str, fd: int) -> None:
        """Force a file to the disk."""
        if self.is_sync:
            self.run(name, sync_data, fd)

    def sync_directory(self, name: str, path: str) -> None:
        """Force the names in a directory to the disk."""
        if self.is_sync:
            self.run(name, flush_directory, path)

    def replace_file(self, name: str, path: str, data: bytes) -> None:
        """Put a small file in place, whole or not at all; a link there is replaced, not followed.

        Raises
        ------
        StoreWriteError
            It cannot be written.
        """
        temporary = path + ".tmp"
        try:
            fd = open_to_write(temporary, os.O_CREAT | os.O_TRUNC)
            try:
                self.write(name + " content", fd, 0, memoryview(data))
                self.sync(name + " content sync", fd)
            finally:
                os.close(fd)
            self.run(name + " rename", os.replace, temporary, path)
            self.sync_directory(name + " directory sync", os.path.dirname(path))
        except OSError as err:
            raise write_error(err, path) from err

    def remove_file(self, name: str, path: str) -> None:
        """Delete a file and force that to the disk.

        Raises
        ------
        StoreWriteError
            It cannot be deleted.
        """
        try:
            self.run(name, os.unlink, path)
            self.sync_directory(name + " directory sync", os.path.dirname(path))
        except OSError as err:
            raise write_error(err, path) from err
