"""The one place where files of a store are opened: regular files alone, without waiting.

Opening a FIFO waits for somebody at its other end, and reading a terminal or a device may never
end; a store that came from elsewhere can hold one in place of any file.
"""

from __future__ import annotations

import errno
import os
import stat as stat_mode
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_KINDS = {
    stat_mode.S_IFDIR: "a directory",
    stat_mode.S_IFIFO: "a FIFO",
    stat_mode.S_IFSOCK: "a socket",
    stat_mode.S_IFCHR: "a device",
    stat_mode.S_IFBLK: "a device",
}
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NOT_REGULAR = errno.EINVAL

SMALL_FILE_BYTES = 512 << 20
"""Most that is read at once of a file such as ``topics.json``: many times what brokers write."""


def missing_directory(path: str) -> str:
    """Return the topmost directory above a path that is not there; empty: all of them are."""
    return next((str(above) for above in reversed(Path(path).parents) if not above.is_dir()), "")


def open_to_read(path: str) -> int:
    """Open a regular file, also behind a link, and return its descriptor.

    Raises
    ------
    OSError
        It cannot be opened, or is no regular file; the text says what it is.
    """
    return _open_regular(path, os.O_RDONLY, 0, _allow)


def open_to_write(path: str, flags: int = 0) -> int:
    """Open a regular file to read and write, never through a link; return its descriptor.

    Nor through one of two names: a copy made with ``cp -al`` or ``rsync --link-dest`` has the
    other, and would change with it.

    Raises
    ------
    OSError
        It cannot be opened, or is a link, has other names, or is no regular file; the text says
        what it is.
    """
    try:
        return _open_regular(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o644, refuse_other_names)
    except OSError:
        refuse_link(path)
        raise


def read_file(path: str) -> bytes:
    """Return the content of a small regular file; OSError as from `open_to_read`, or its size."""
    with os.fdopen(open_to_read(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > SMALL_FILE_BYTES:
            raise OSError(errno.EFBIG, too_large(size), path)
        return file.read(SMALL_FILE_BYTES)


def too_large(size: int) -> str:
    """Return what to say of a small file that is none."""
    return (
        f"{size} bytes long; such a file has at most {SMALL_FILE_BYTES}. It is damaged: restore "
        "it, or move it out of the store"
    )


def check_regular(path: str) -> None:
    """Raise OSError where ``path`` is no regular file, for what opens files by itself."""
    os.close(open_to_read(path))


def refuse_link(path: str) -> None:
    """Raise OSError where ``path`` is a link, whatever it leads to."""
    if Path(path).is_symlink():
        text = (
            f"is a link to {Path(path).readlink()}; nothing is written through links to files: put "
            "the file itself there"
        )
        raise OSError(errno.ELOOP, text, path)


def refuse_other_names(path: str, found: os.stat_result) -> None:
    """Raise OSError where a file has other names, through which it would be written too."""
    if stat_mode.S_ISREG(found.st_mode) and found.st_nlink > 1:
        text = (
            f"has {found.st_nlink} names (hard links): what is written here would be written to a "
            "file elsewhere, such as that of a backup. Copy the store (cp -a) and take the copy"
        )
        raise OSError(errno.EMLINK, text, path)


def kind_of_file(mode: int) -> str:
    """Return what a mode of ``stat`` stands for, where that is no regular file; else ''."""
    return "" if stat_mode.S_ISREG(mode) else _KINDS.get(stat_mode.S_IFMT(mode), "no file")


def _open_regular(
    path: str, flags: int, permissions: int, refuse: Callable[[str, os.stat_result], None]
) -> int:
    # Asked for first, as opening alone does something to a few devices (a tape is wound back),
    # and may cut the file.
    found = _stat(path)
    if found is not None:
        _refuse_kind(path, found.st_mode)
        refuse(path, found)
    fd = os.open(path, flags | _FLAGS, permissions)
    try:
        found = os.fstat(fd)
        _refuse_kind(path, found.st_mode)
        refuse(path, found)
    except OSError as err:
        os.close(fd)
        err.filename = path  # a descriptor has no name
        raise
    return fd


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:  # opening it says why, or makes it
        return None
    except ValueError as err:
        raise OSError(_NOT_REGULAR, "is no path: it holds a NUL", path) from err


def _allow(path: str, found: os.stat_result) -> None:
    """Let a file be read, whatever its names."""


def _refuse_kind(path: str, mode: int) -> None:
    kind = kind_of_file(mode)
    if kind:
        raise OSError(_NOT_REGULAR, f"is {kind}, where a regular file was expected", path)
