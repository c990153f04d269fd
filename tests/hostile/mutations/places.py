# SPDX-License-Identifier: Apache-2.0
"""Where a mutation may be made: files, entries and positions of a store."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path


def files_below(root: Path, part: str = "") -> list[Path]:
    """Return the regular files below the root, or below one of its directories."""
    top = root / part
    found = []
    for place, directories, names in os.walk(top):
        directories.sort()
        found += [Path(place, name) for name in sorted(names)]
    return [path for path in found if path.is_file() and not path.is_symlink()]


def any_file(chance: random.Random, root: Path, least: int = 0) -> Path | None:
    """Return a random file; each directory of the root is equally likely."""
    kinds: dict[str, list[Path]] = {}
    for path in files_below(root):
        if path.stat().st_size >= least:
            kinds.setdefault(path.relative_to(root).parts[0], []).append(path)
    return chance.choice(kinds[chance.choice(sorted(kinds))]) if kinds else None


def any_entry(chance: random.Random, root: Path) -> Path | None:
    """Return a file or a directory below the root."""
    entries = [path for path in sorted(root.rglob("*"))]
    top = [path for path in entries if path.parent == root]
    if not entries:
        return None
    return chance.choice(top if top and chance.random() < 0.3 else entries)


def any_position(chance: random.Random, path: Path) -> int:
    """Return a position, more likely at the beginning or in data than in a hole."""
    size = path.stat().st_size
    if size <= 0:
        return 0
    way = chance.random()
    if way < 0.25:
        return chance.randrange(min(size, 64))
    if way < 0.85:
        return chance.randrange(data_end(path, size))
    return chance.randrange(size)


def data_end(path: Path, size: int) -> int:
    """Return roughly where the trailing zeros begin, at least 1."""
    with path.open("rb") as file:
        at = size
        while at > 0:
            step = min(at, 1 << 16)
            try:
                if os.lseek(file.fileno(), at - step, os.SEEK_DATA) >= at:
                    at -= step
                    continue
            except OSError:  # only a hole follows
                at -= step
                continue
            data = os.pread(file.fileno(), step, at - step).rstrip(b"\0")
            if data:
                return at - step + len(data)
            at -= step
    return 1


def overwrite(path: Path, at: int, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, data, at)
    finally:
        os.close(fd)


def short(root: Path, path: Path) -> str:
    return ascii(str(path.relative_to(root)))


def file_of(chance: random.Random, root: Path, part: str) -> Path | None:
    found = [path for path in files_below(root, part) if path.stat().st_size]
    return chance.choice(found) if found else None


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def outside_of(root: Path) -> Path:
    """Return a directory outside the store, to which nothing may be written."""
    place = root.parent / "outside"
    if not place.is_dir():
        (place / "old").mkdir(parents=True)
        (place / "file").write_bytes(b"not of the store\n" * 300)
        (place / "old" / "file").write_bytes(b"kept")
        for path in (place / "old" / "file", place / "old", place / "file", place):
            os.utime(path, (1e9, 1e9))
    return place
