"""Put a finished directory in the place of another so that a kill leaves one of them there."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from functools import lru_cache
from typing import Any

from store_core.files.file_writing import flush_directory

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_ABLE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)


def put_in_place(new: str, target: str, aside: str) -> None:
    """Rename ``new`` to ``target``; what was there gets the name ``aside``.

    All three lie on one filesystem, ``aside`` does not exist. On Linux the two directories change
    places in one step. Elsewhere there is a moment without ``target``: see `restore`.

    Raises
    ------
    OSError
        A rename failed; the old directory is at ``target`` or at ``aside``.
    """
    if not os.path.lexists(target):
        os.rename(new, target)
    elif exchange(new, target):
        os.rename(new, aside)
    else:
        os.rename(target, aside)
        os.rename(new, target)
    _flush_parents(new, target, aside)


def take_away(target: str, aside: str) -> None:
    """Rename ``target``, if it is there, to ``aside``."""
    if os.path.lexists(target):
        os.rename(target, aside)
        _flush_parents(target, aside)


def restore(target: str, aside: str) -> bool:
    """Bring back what a killed `put_in_place` had put aside, if nothing is at ``target``."""
    if os.path.lexists(target) or not os.path.lexists(aside):
        return False
    os.rename(aside, target)
    _flush_parents(target, aside)
    return True


def remove_tree(path: str) -> None:
    """Delete a directory with all in it, if it is there."""
    if os.path.lexists(path):
        shutil.rmtree(path)


def exchange(first: str, second: str) -> bool:
    """Let two directories change names in one step; False where the system cannot do that.

    Raises
    ------
    OSError
        It can, but failed.
    """
    call = _renameat2()
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_ABLE:
        return False
    raise OSError(number, os.strerror(number), first)


@lru_cache(maxsize=1)
def _renameat2() -> Any:
    """Return the C library's ``renameat2`` (Linux, glibc 2.28), or None."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        path, number = ctypes.c_char_p, ctypes.c_int
        call.argtypes = (number, path, number, path, ctypes.c_uint)
        call.restype = number
    return call


def _flush_parents(*paths: str) -> None:
    for parent in sorted({os.path.dirname(path) for path in paths}):
        flush_directory(parent)
