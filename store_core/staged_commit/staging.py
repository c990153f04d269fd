"""The directories that jobs stage in: which there are, and how one is taken away.

Only what a write made is ever deleted: a directory that a job names, with no other files in it
than a job makes, reached without following a link.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from store_core.errors import StoreWriteError
from store_core.files.byte_source import read_error
from store_core.files.file_writing import make_directory, write_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.store_directory import StoreDirectory

STAGING_DIRECTORY = "_staging"
INTENT_FILE = "intent.json"
_JOB = re.compile(r"[0-9a-f]{32}")
_JOB_FILE = re.compile(  # files of records had no number once
    r"part-[0-9]{6,}-[0-9a-f]{32}(?:(?:\.[0-9]{5,})?\.records|\.rows)|intent\.json(?:\.tmp)?"
)
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_staging(root: str) -> str:
    """Return the directory below which jobs stage; made where it is missing.

    Raises
    ------
    StoreWriteError
        It is a link or a file, or cannot be made.
    """
    path = os.path.join(root, STAGING_DIRECTORY)
    check_staging(root)
    try:
        make_directory(path)
    except OSError as err:
        raise write_error(err, path) from err
    return path


def check_staging(root: str) -> None:
    """Raise StoreWriteError where a link or a file is in the place of the staging directory."""
    path = os.path.join(root, STAGING_DIRECTORY)
    if os.path.islink(path):
        raise StoreWriteError(
            "is a symbolic link, which writes do not follow: they delete what lies below it. "
            "Remove the link; a directory is made in its place",
            path,
        )
    if os.path.lexists(path) and not os.path.isdir(path):
        raise StoreWriteError("is no directory, but writes stage there; move it away", path)


def job_directories(store: StoreDirectory) -> list[str]:
    """Return the directories of the jobs that were staged below a store root.

    Links are none, and nothing below a link is; what has another name than a job is not looked at.

    Raises
    ------
    StoreReadError
        A directory may be there, but cannot be looked at.
    """
    staging = store.resolve(STAGING_DIRECTORY)
    if store.is_local and not _is_directory(staging):
        return []
    return [
        entry.path
        for entry in store.list(staging)
        if entry.is_dir
        and _JOB.fullmatch(entry.name)
        and (not store.is_local or _is_directory(entry.path))
    ]


def staged_files(directory: str) -> dict[str, os.stat_result]:
    """Return the files of a job by name.

    Raises
    ------
    StoreWriteError
        Something lies there that no write made, or a link is in the place of the directory.
    OSError
        It is gone, or cannot be read.
    """
    with _opened(directory) as (_, job):
        return _files(job, directory)


def remove_job(directory: str) -> None:
    """Delete the directory of a job with all that it staged; one that is gone is no error.

    Raises
    ------
    StoreWriteError
        It cannot be deleted, or holds something that no write made; then nothing was deleted.
    """
    try:
        with _opened(directory) as (staging, job):
            for name in _files(job, directory):
                with suppress(FileNotFoundError):  # somebody else is at it, too
                    os.unlink(name, dir_fd=job)
            os.rmdir(os.path.basename(directory), dir_fd=staging)
    except FileNotFoundError:
        return
    except OSError as err:
        raise write_error(err, directory) from err


@contextmanager
def _opened(directory: str) -> Iterator[tuple[int, int]]:
    """Open the staging directory and that of a job in it; links are not followed."""
    staging = os.open(os.path.dirname(directory), _DIRECTORY_FLAGS)
    try:
        job = os.open(os.path.basename(directory), _DIRECTORY_FLAGS, dir_fd=staging)
        try:
            yield staging, job
        finally:
            os.close(job)
    finally:
        os.close(staging)


def _files(job: int, directory: str) -> dict[str, os.stat_result]:
    found = {}
    for name in os.listdir(job):
        with suppress(FileNotFoundError):
            found[name] = os.stat(name, dir_fd=job, follow_symlinks=False)
            if not (_JOB_FILE.fullmatch(name) and stat.S_ISREG(found[name].st_mode)):
                raise StoreWriteError(
                    f"holds {name!r}, which no write makes, so nothing in it is deleted; look at "
                    "it, and delete the directory yourself",
                    directory,
                )
    return found


def _is_directory(path: str) -> bool:
    """Return whether it is one; StoreReadError where nobody can tell: jobs must not be missed."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as err:
        raise read_error(err, path) from err
