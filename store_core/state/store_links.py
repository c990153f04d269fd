"""Links in a store, and hard links: files behind them are read, and never written."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from store_core.errors import StoreWriteError
from store_core.files.regular_file import refuse_link, refuse_other_names
from store_core.layout.store_paths import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIR,
    INDEX_DIR,
    LOCK_FILE,
    QUEUE_DIRS,
)

_WRITTEN = (LOCK_FILE, ABORT_FILE, CHECKPOINT_FILE)
_WRITTEN_BELOW = (COMMIT_LOG_DIR, INDEX_DIR)


def refuse_links_out(root: str) -> None:
    """Raise where a directory of a store is a link out of it, or a file is or has another name.

    A copy made with ``cp -a`` holds the links of the store it was made of: what is written through
    them goes into that one, whose lock nobody took. All files of a copy made with ``cp -al`` are
    those of the other store; looked at here are the few whose names are known, before any is
    changed. Whatever else is a link is refused where it is opened.

    Parameters
    ----------
    root
        The store; it may be behind a link itself.

    Raises
    ------
    StoreWriteError
        There is such a link; or a directory cannot be read.
    """
    real = os.path.realpath(root)
    _refuse_files(root)
    _look_at(root, real)
    for name in QUEUE_DIRS:
        for topic in _look_at(str(Path(root, name)), real):
            _look_at(topic, real)


def _refuse_files(root: str) -> None:
    files = [Path(root, name) for name in _WRITTEN]
    try:
        # Found at shutdown only, where they are written or removed, the store would be as after a
        # crash.
        refuse_link(str(Path(root, CHECKPOINT_FILE)))
        _refuse_directory(Path(root, ABORT_FILE))
        for name in _WRITTEN_BELOW:
            with suppress(FileNotFoundError, NotADirectoryError):
                files += Path(root, name).iterdir()
        for file in files:
            with suppress(FileNotFoundError, NotADirectoryError):
                refuse_other_names(str(file), file.lstat())
    except OSError as err:
        raise StoreWriteError(err.strerror or str(err), os.fsdecode(err.filename or root)) from err


def _refuse_directory(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        text = "is a directory, where brokers have a file that a clean stop removes: move it away"
        raise OSError(errno.EISDIR, text, str(path))


def _look_at(path: str, real_root: str) -> list[str]:
    """Return the directories in a directory, none of which is a link out of the store."""
    directories = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_symlink():
                    _check(entry.path, real_root)
                if entry.is_dir():
                    directories.append(entry.path)
    except (FileNotFoundError, NotADirectoryError):  # of whoever opens it to say
        return []
    except OSError as err:
        raise StoreWriteError(err.strerror or str(err), path) from err
    return directories


def _check(path: str, real_root: str) -> None:
    target = os.path.realpath(path)
    if not Path(target).is_dir() or os.path.commonpath([real_root, target]) == real_root:
        return
    advice = "mount that directory here, or move it here"
    if Path(path).name == COMMIT_LOG_DIR:
        advice = f"remove the link and give storePathCommitLog={target} in the configuration"
    raise StoreWriteError(
        f"is a link out of the store, to {target}; nothing is written through it: {advice}", path
    )
