"""What the system keeps of files in memory; a failed flush makes that differ from the disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from store_core.files.file_writing import sync_data, write_error
from store_core.files.regular_file import open_to_read

if TYPE_CHECKING:
    from collections.abc import Iterable


def drop_cached_pages(directories: Iterable[str]) -> None:
    """Force all files of directories, one after the other, and let them be read from the disk.

    Linux takes pages that it failed to write for clean and goes on showing them: a process that
    comes after the one whose flush failed would take them for what the disk has, and no flush of
    its own would write them. Pages that another process has mapped stay; systems without
    ``posix_fadvise`` keep all.

    Raises
    ------
    StoreWriteError
        A file cannot be forced: what it lost is not read any more at the next try.
    """
    for directory in directories:
        for base, _, names in os.walk(directory):
            for name in names:
                _read_anew(os.path.join(base, name))


def _read_anew(path: str) -> None:
    try:
        fd = open_to_read(path)
    except OSError:  # whoever needs it says so
        return
    try:
        sync_data(fd)
    except OSError as err:
        raise write_error(err, path) from err
    finally:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
