# SPDX-License-Identifier: Apache-2.0
"""A description of all files below a directory, without following links, devices or holes."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

_MOST_READ = 64 << 20
_READ, _PAGE = 1 << 18, 1 << 12


def state_of(root: Path) -> dict[str, tuple[object, ...]]:
    """Return kind, mode, size, change time and digest of everything below a directory."""
    found: dict[str, tuple[object, ...]] = {}
    waiting = [os.fspath(root)]
    while waiting:
        path = waiting.pop()
        try:
            seen = os.lstat(path)
        except FileNotFoundError:
            continue
        kind = stat.S_IFMT(seen.st_mode)
        content = ""
        if kind == stat.S_IFDIR:
            names = sorted(os.listdir(path))
            waiting += [os.path.join(path, name) for name in names]
            content = str(len(names))
        elif kind == stat.S_IFREG:
            content = _digest(path, seen.st_size)
        elif kind == stat.S_IFLNK:
            content = os.readlink(path)
        name = os.path.relpath(path, root)
        found[name] = (kind, seen.st_mode, seen.st_size, seen.st_mtime_ns, content)
    return found


def differences(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> str:
    """Return the differences in words; empty if there are none."""
    found = [f"{name!a} is new" for name in after.keys() - before.keys()]
    found += [f"{name!a} is gone" for name in before.keys() - after.keys()]
    names = before.keys() & after.keys()
    found += [
        f"{name!a}: {before[name]} -> {after[name]}"
        for name in sorted(names)
        if before[name] != after[name]
    ]
    return "; ".join(found[:5])


def _digest(path: str, size: int) -> str:
    """Return a digest of the pages that are not zeros, or of a very large file's first 64 MiB."""
    digest = hashlib.sha1(usedforsecurity=False)
    fd = os.open(path, os.O_RDONLY)
    try:
        at, left = 0, _MOST_READ
        while at < size and left > 0:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA) // _PAGE * _PAGE
            except OSError:
                break
            data = os.pread(fd, _READ, at)
            if not data:
                break
            for page in range(0, len(data), _PAGE):
                part = data[page : page + _PAGE]
                if part.strip(b"\0"):  # a reader's map may turn a hole into zeros
                    digest.update(b"%d:" % (at + page))
                    digest.update(part)
            at, left = at + len(data), left - len(data)
    finally:
        os.close(fd)
    return digest.hexdigest()
